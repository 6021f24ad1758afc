#!/bin/sh
# Creates the secrets of compose.cluster.yaml: ./init.sh turnpike.example.com
set -eu
cd "$(dirname "$0")"

if [ $# -ne 1 ]; then
	echo "usage: ./init.sh DOMAIN, such as turnpike.example.com" >&2
	exit 2
fi
if [ -e secrets ]; then
	echo "secrets exists already. A new master key couldn't read the database. To start over, delete the volumes and secrets." >&2
	exit 1
fi
random() { openssl rand -hex 32; }

# The directory keeps other users out. The files are readable, because each
# container has another user.
mkdir -m 0700 secrets
umask 022
password=$(random)
key=$(openssl rand -hex 10)
secret=$(random)
printf '%s' "$password" >secrets/postgres_password
printf 'postgres://turnpike:%s@postgres/turnpike?sslmode=disable' "$password" >secrets/database_url
random >secrets/master_key
random >secrets/grafana_password
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$key" "$secret" >secrets/bucket_credentials
printf 'ROOT_ACCESS_KEY=%s\nROOT_SECRET_KEY=%s\n' "$key" "$secret" >secrets/bucket.env
printf 'TURNPIKE_DOMAIN=%s\n' "$1" >.env
echo "Created the secrets. Keep a copy of secrets/master_key: without it, no one can read the secrets in the database."
