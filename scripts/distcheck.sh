#!/bin/sh
# Checks the artifacts of `make dist` as a user meets them: installs the Debian
# package in a clean Debian, and runs the image with podman, or in a chroot where
# no container can be started. Needs Debian, root, mmdebstrap, lintian and python3.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
server=
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
say() { printf '\n== %s\n' "$*"; }

arch=$(dpkg --print-architecture)
deb=$(ls dist/turnpike_*_"$arch".deb)
image=$(ls dist/turnpike_*_image.tar)

say "Checksums"
(cd dist && sha256sum --check --quiet SHA256SUMS)

say "lintian"
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$deb"

say "Install the package in a clean Debian"
root=$work/debian
mmdebstrap --quiet --variant=minbase --include=systemd,init-system-helpers bookworm "$root"
cp "$deb" "$root/tmp/turnpike.deb"
chroot "$root" dpkg --install /tmp/turnpike.deb
chroot "$root" getent passwd turnpike
chroot "$root" systemctl is-enabled turnpike
chroot "$root" systemd-analyze verify turnpike.service
test "$(stat -c %a "$root/etc/turnpike/env")" = 600

# Serves a request, as the user of the service.
serve() { # NAME ROOT USER ADDRESS DATA
	mkdir -p "$2/$5"
	chown "$3" "$2/$5"
	chroot --userspec="$3" "$2" /usr/bin/turnpike serve --data "/$5" --listen "$4" --log-format json >"$work/$1.log" 2>&1 &
	server=$!
	tries=0
	until chroot --userspec="$3" "$2" /usr/bin/turnpike healthcheck --url "http://$4"; do
		tries=$((tries + 1))
		[ "$tries" -lt 50 ] || { cat "$work/$1.log"; exit 1; }
		sleep 0.2
	done
	chroot --userspec="$3" "$2" /usr/bin/turnpike setup-link --data "/$5" --public-url "http://$4"
	key=$(sed -n 's/^ *\(tp_test_[A-Za-z0-9]*\)$/\1/p' "$2/$5/first-run.txt")
	curl -fsS "http://$4/v1/chat/completions" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' \
		-d '{"model":"gpt-5.4-mini","messages":[{"role":"user","content":"Hello!"}]}'
	echo
	kill "$server"
	wait "$server" || { cat "$work/$1.log"; exit 1; }
	server=
}
serve package "$root" "$(chroot "$root" id -u turnpike):$(chroot "$root" id -g turnpike)" 127.0.0.1:18080 var/lib/turnpike

say "Remove the package"
chroot "$root" dpkg --purge turnpike
test -f "$root/var/lib/turnpike/master.key"
test ! -e "$root/etc/turnpike/env"

say "Run the image"
runtime=$(command -v runc || command -v crun)
name=$(podman load -q -i "$image" | sed 's/.*: //')
podman() { command podman --runtime "$runtime" "$@"; }
# Limits that don't exceed those of an unprivileged root.
if podman run -d --rm --name turnpike-distcheck --ulimit nofile=1024:1024 --ulimit nproc=512:512 --network host -e TURNPIKE_LISTEN=127.0.0.1:18081 "$name"; then
	tries=0
	until podman exec turnpike-distcheck turnpike healthcheck; do
		tries=$((tries + 1))
		[ "$tries" -lt 50 ]
		sleep 0.2
	done
	podman exec turnpike-distcheck turnpike setup-link
	podman stop turnpike-distcheck
else
	echo "podman can't start a container here; running the unpacked image in a chroot as its user"
	mkdir "$work/image"
	python3 - "$image" "$work/image" "$arch" <<'PYTHON'
import json, subprocess, sys, tarfile
layout = tarfile.open(sys.argv[1])
blob = lambda digest: layout.extractfile("blobs/" + digest.replace(":", "/"))
index = json.load(blob(json.load(layout.extractfile("index.json"))["manifests"][0]["digest"]))
manifest = next(m for m in index["manifests"] if m["platform"]["architecture"] == sys.argv[3])
for layer in json.load(blob(manifest["digest"]))["layers"]:
    subprocess.run(["tar", "-xzf", "-", "-C", sys.argv[2], "--numeric-owner"], input=blob(layer["digest"]).read(), check=True)
PYTHON
	serve image "$work/image" 65532:65532 127.0.0.1:18081 data
fi
say "Everything works"
