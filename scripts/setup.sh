#!/bin/sh
# Installs what the tests need, where apt-get and the permission to use it exist, else reports what is missing:
# PostgreSQL's server binaries, Node with npm and Python for clients in those languages, curl and openssl for the
# examples, espeak-ng for speech, and ffmpeg to convert audio and check videos. Arguments add to the list: "chromium" for the browser tests,
# "compiler" for the race detector, "prometheus" for the test of the alert rules.
# The server itself needs none of them.
set -eu

has_postgres() {
	for dir in $(echo "$PATH" | tr ':' ' ') /usr/lib/postgresql/*/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
			return 0
		fi
	done
	return 1
}

# A compiler without the C library's headers is not enough.
has_compiler() {
	cc=$(go env CC)
	echo '#include <stdlib.h>' | ${cc:-gcc} -E - >/dev/null 2>&1
}

has_ffmpeg() {
	command -v ffmpeg >/dev/null 2>&1 && command -v ffprobe >/dev/null 2>&1
}

has_examples() {
	for program in curl openssl python3; do
		command -v "$program" >/dev/null 2>&1 || return 1
	done
}

has_chromium() {
	command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1
}

has_ha() {
	for program in patroni etcd haproxy pgbouncer; do
		PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null 2>&1 || return 1
	done
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

may_install() {
	command -v apt-get >/dev/null 2>&1 || return 1
	[ "$(id -u)" = 0 ] || sudo -n true >/dev/null 2>&1
}

apt_install() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
		-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" </dev/null
}

# Debian's package creates and starts a server of its own. The tests have no use
# for it, so it is told not to, and only for this one installation.
install_postgres() {
	conf=/etc/postgresql-common/createcluster.conf
	apt_install postgresql-common
	as_root cp -p "$conf" "$conf.turnpike"
	trap 'as_root mv -f "$conf.turnpike" "$conf"' EXIT
	echo 'create_main_cluster = false' | as_root tee -a "$conf" >/dev/null
	apt_install postgresql
	as_root mv -f "$conf.turnpike" "$conf"
	trap - EXIT
}

# The packages start their services. In runlevel 1, they don't.
install_ha() {
	as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
		patroni python3-etcd etcd-server haproxy pgbouncer </dev/null
}

wants() {
	case " $extras " in *" $1 "*) return 0 ;; esac
	return 1
}

extras="$*"
missing=
if ! has_postgres; then
	if [ -n "${TURNPIKE_TEST_DATABASE_URL:-}" ]; then
		echo "setup: no PostgreSQL server binaries; the tests use TURNPIKE_TEST_DATABASE_URL," \
			"those that restart a server will fail"
	else
		missing="$missing postgresql"
	fi
fi
if wants compiler; then
	has_compiler || missing="$missing gcc"
fi
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
has_examples || missing="$missing python3"
command -v espeak-ng >/dev/null 2>&1 || missing="$missing espeak-ng"
has_ffmpeg || missing="$missing ffmpeg"
if wants chromium; then
	has_chromium || missing="$missing chromium"
fi

if wants prometheus; then
	command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
fi

if wants ha; then
	has_ha || missing="$missing patroni"
fi

if [ -z "$missing" ]; then
	exit 0
fi
if may_install; then
	echo "setup: installing$missing"
	as_root apt-get update -q </dev/null || echo "setup: apt-get update failed, trying with the lists there are"
	case "$missing" in *gcc*) apt_install gcc libc6-dev ;; esac
	case "$missing" in *nodejs*) apt_install nodejs ;; esac
	case "$missing" in *npm*) apt_install npm ;; esac
	case "$missing" in *python3*) apt_install curl openssl python3 ;; esac
	case "$missing" in *espeak-ng*) apt_install espeak-ng ;; esac
	case "$missing" in *ffmpeg*) apt_install ffmpeg ;; esac
	case "$missing" in *chromium*) apt_install chromium ;; esac
	case "$missing" in *prometheus*) apt_install prometheus ;; esac
	case "$missing" in *postgresql*) install_postgres ;; esac
	case "$missing" in *patroni*) install_ha ;; esac
fi

failed=
case "$missing" in
*postgresql*)
	if ! has_postgres; then
		failed=1
		echo "setup: the tests need PostgreSQL's server binaries (initdb and postgres) on PATH or in" \
			"/usr/lib/postgresql/*/bin. Debian and Ubuntu: apt-get install postgresql; Fedora: dnf install" \
			"postgresql-server; macOS: brew install postgresql. Or set TURNPIKE_TEST_DATABASE_URL to a server" \
			"that the tests may create schemas on." >&2
	fi
	;;
esac
if wants compiler && ! has_compiler; then
	failed=1
	echo "setup: the race detector needs a C compiler and the C library's headers. Debian and Ubuntu:" \
		"apt-get install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install." >&2
fi
if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
	failed=1
	echo "setup: the tests run receivers and clients in several languages and need Node (18 or later) and npm." \
		"Debian and Ubuntu: apt-get install nodejs npm." >&2
fi
if ! has_examples; then
	failed=1
	echo "setup: the tests run the dashboard's examples and need curl, openssl and python3. Debian and Ubuntu:" \
		"apt-get install curl openssl python3." >&2
fi
if ! command -v espeak-ng >/dev/null 2>&1 || ! has_ffmpeg; then
	failed=1
	echo "setup: the tests make speech and videos and need espeak-ng, and ffmpeg with ffprobe. Debian and Ubuntu:" \
		"apt-get install espeak-ng ffmpeg; Fedora: dnf install espeak-ng ffmpeg-free; macOS: brew install espeak-ng ffmpeg." >&2
fi
if wants chromium && ! has_chromium; then
	failed=1
	echo "setup: the tests of the dashboard need Chromium. Debian: apt-get install chromium; Fedora: dnf install chromium;" \
		"macOS: brew install chromium." >&2
fi
if wants prometheus && ! command -v promtool >/dev/null 2>&1; then
	failed=1
	echo "setup: the test of the alert rules needs promtool. Debian and Ubuntu: apt-get install prometheus;" \
		"macOS: brew install prometheus." >&2
fi
if wants ha && ! has_ha; then
	failed=1
	echo "setup: make chaos-ha needs patroni, etcd, haproxy and pgbouncer. Debian:" \
		"apt-get install patroni python3-etcd etcd-server haproxy pgbouncer." >&2
fi
if [ -n "$failed" ]; then
	echo "setup: could not install them from here: that takes apt-get, and root or sudo without a password." >&2
	exit 1
fi
