#!/bin/sh
# Checks the artifacts of `make dist` as a user meets them: builds them again in
# another directory and without a network, installs the Debian and the RPM package
# in a clean Debian, and runs the image with podman, or in a chroot where no
# container can be started. Runs the arm64 program if qemu-user-static is installed.
# Needs Debian, root, mmdebstrap, lintian, rpm, podman with runc or crun, and python3.
# After `make dist PLATFORMS=…`, set the same PLATFORMS.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
server= loaded=
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	[ -z "$loaded" ] || command podman rmi --force "$loaded" >/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
say() { printf '\n== %s\n' "$*"; }

arch=$(dpkg --print-architecture)
deb=$(ls dist/turnpike_*_"$arch".deb)
rpm=$(ls dist/turnpike-*."$(uname -m)".rpm)
image=$(ls dist/turnpike_*_image.tar)

say "Checksums"
(cd dist && sha256sum --check --quiet SHA256SUMS)

say "Build again in another directory, without a network"
if [ -z "$(git status --porcelain)" ]; then
	git clone -q . "$work/again"
	# The clone has no tags that were made since, and the modules are in the cache.
	version=$(basename "$image" _image.tar)
	GOPROXY=off unshare --net make -C "$work/again" dist VERSION="${version#turnpike_}" MAINTAINER="${MAINTAINER:-}" PLATFORMS="${PLATFORMS:-}"
	diff dist/SHA256SUMS "$work/again/dist/SHA256SUMS"
	rm -rf "$work/again"
else
	echo "skipped: the working tree has uncommitted changes"
fi

say "lintian"
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$deb"

chat() { # ADDRESS KEY
	curl -fsS "http://$1/v1/chat/completions" -H "Authorization: Bearer $2" -H 'Content-Type: application/json' \
		-d '{"model":"gpt-5.4-mini","messages":[{"role":"user","content":"Hello!"}]}'
	echo
}
# Serves a request. RUN starts the program as the user of the service.
serve() { # NAME ADDRESS FIRST_RUN_FILE DATA RUN...
	log=$work/$1.log address=$2 first=$3 data=$4
	shift 4
	"$@" serve --data "$data" --listen "$address" --log-format json >"$log" 2>&1 &
	server=$!
	tries=0
	until "$@" healthcheck --url "http://$address"; do
		tries=$((tries + 1))
		[ "$tries" -lt 50 ] || { cat "$log"; exit 1; }
		sleep 0.5
	done
	"$@" setup-link --data "$data" --public-url "http://$address"
	chat "$address" "$(sed -n 's/^ *\(tp_test_[A-Za-z0-9]*\)$/\1/p' "$first")"
	kill "$server"
	wait "$server" || { cat "$log"; exit 1; }
	server=
}
serve_chroot() { # NAME ROOT USER ADDRESS DATA
	mkdir -p "$2/$5"
	chown "$3" "$2/$5"
	serve "$1" "$4" "$2/$5/first-run.txt" "/$5" chroot --userspec="$3" "$2" /usr/bin/turnpike
}
installed() {
	chroot "$root" getent passwd turnpike
	chroot "$root" systemctl is-enabled turnpike
	warnings=$(chroot "$root" systemd-analyze verify turnpike.service 2>&1) || true
	test -z "$warnings" || { echo "$warnings"; exit 1; }
	test "$(stat -c %a "$root/etc/turnpike/env")" = 600
	user=$(chroot "$root" id -u turnpike):$(chroot "$root" id -g turnpike)
}

say "Install the Debian package in a clean Debian"
root=$work/debian
mmdebstrap --quiet --variant=minbase --include=systemd,init-system-helpers bookworm "$root"
cp "$deb" "$root/tmp/turnpike.deb"
chroot "$root" dpkg --install /tmp/turnpike.deb
installed
serve_chroot deb "$root" "$user" 127.0.0.1:18080 var/lib/turnpike

say "Remove the Debian package"
chroot "$root" dpkg --purge turnpike
test -f "$root/var/lib/turnpike/master.key"
test ! -e "$root/etc/turnpike/env"
rm -r "$root/var/lib/turnpike"
chroot "$root" userdel turnpike

say "Install the RPM package, with its scripts"
rpm --query --package --info "$rpm"
rpm --query --package --list "$rpm"
# Debian's database of packages doesn't have the dependencies.
rpm --root "$root" --initdb
rpm --root "$root" --install --nodeps "$(realpath "$rpm")"
rpm --root "$root" --verify --nodeps turnpike
installed
serve_chroot rpm "$root" "$user" 127.0.0.1:18080 var/lib/turnpike
echo 'TURNPIKE_LISTEN=127.0.0.1:8080' >>"$root/etc/turnpike/env"
rpm --root "$root" --erase --nodeps turnpike
test ! -e "$root/usr/bin/turnpike"
test ! -e "$root/etc/systemd/system/multi-user.target.wants/turnpike.service"
test -f "$root/etc/turnpike/env.rpmsave"
test -f "$root/var/lib/turnpike/master.key"

say "Run the image"
runtime=$(command -v runc || command -v crun)
loaded=$(podman load -q -i "$image" | sed 's/.*: //')
podman() { command podman --runtime "$runtime" "$@"; }
# As deploy/compose does, and with limits that don't exceed those of an unprivileged root.
if podman run -d --rm --name turnpike-distcheck --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges \
	--ulimit nofile=1024:1024 --ulimit nproc=512:512 --network host -e TURNPIKE_LISTEN=127.0.0.1:18081 "$loaded"; then
	tries=0
	until podman exec turnpike-distcheck turnpike healthcheck; do
		tries=$((tries + 1))
		[ "$tries" -lt 50 ]
		sleep 0.2
	done
	podman exec turnpike-distcheck turnpike setup-link
	chat 127.0.0.1:18081 "$(podman exec turnpike-distcheck turnpike keys create --env test --json | sed -n 's/.*"value": "\(tp_test_[^"]*\)".*/\1/p')"
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
	serve_chroot image "$work/image" 65532:65532 127.0.0.1:18081 data
fi

say "Run the arm64 program"
archive=$(ls dist/turnpike_*_linux_arm64.tar.gz 2>/dev/null || true)
if [ "$arch" != amd64 ] || [ -z "$archive" ]; then
	echo "skipped: there is no program for another architecture"
elif command -v qemu-aarch64-static >/dev/null; then
	mkdir "$work/arm64"
	tar -xzf "$archive" -C "$work/arm64" --strip-components=1
	qemu-aarch64-static "$work/arm64/turnpike" version
	serve arm64 127.0.0.1:18082 "$work/arm64/data/first-run.txt" "$work/arm64/data" qemu-aarch64-static "$work/arm64/turnpike"
else
	echo "skipped: qemu-user-static is not installed"
fi
say "Everything works"
