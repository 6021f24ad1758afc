#!/bin/sh
# Runs govulncheck where its database can be reached. No network is no error;
# a vulnerability that our code calls is.
set -eu

reachable() {
	url=https://vuln.go.dev/index/db.json
	if command -v curl >/dev/null 2>&1; then
		curl --silent --fail --max-time 5 --output /dev/null "$url"
	elif command -v wget >/dev/null 2>&1; then
		wget --quiet --tries=1 --timeout=5 --output-document=/dev/null "$url"
	else
		return 1
	fi
}

if ! reachable; then
	echo "govulncheck skipped: its database cannot be reached from here"
	exit 0
fi
echo "go tool govulncheck ./..."
code=0
go tool govulncheck ./... || code=$?
# 3 means vulnerabilities; anything else may be a network that went away.
if [ "$code" -ne 0 ] && [ "$code" -ne 3 ] && ! reachable; then
	echo "govulncheck skipped: its database could no longer be reached"
	exit 0
fi
exit "$code"
