#!/bin/sh
# Runs each fuzz target for a while: go test takes one at a time.
# What it finds lands in the package's testdata/fuzz; commit that with the fix.
set -eu

duration=${1:-20s}
list=$(mktemp)
trap 'rm -f "$list"' EXIT
grep -rEo --include='*_test.go' '^func Fuzz[[:alnum:]_]*' . >"$list" || true
if [ ! -s "$list" ]; then
	echo "fuzz: there are no fuzz targets"
	exit 0
fi
while IFS=: read -r file func; do
	target=${func#func }
	echo "fuzz: $target in $(dirname "$file") for $duration"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$(dirname "$file")" </dev/null
done <"$list"
