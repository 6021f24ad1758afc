#!/bin/sh
# Measures a commit and the working tree in turn, so that both have the same machine:
#
#	scripts/compare.sh COMMIT PART [ROUNDS [BENCH FLAG...]]
#
# PART is a part of make bench. It prints the ratios, the CPU and the values with targets of all rounds.
set -eu

commit=$1 part=$2 rounds=${3:-3}
shift "$(($# < 3 ? $# : 3))"
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'git worktree remove --force "$out/before"; rm -rf "$out"' EXIT
git worktree add --quiet --detach "$out/before" "$commit"
ln -s "$PWD" "$out/after"

for round in $(seq "$rounds"); do
	for tree in before after; do
		# It fails if a target is missed; then it has written its report.
		(cd "$out/$tree" && go run ./test/bench -only "$part" -rounds 1 "$@") >"$out/$tree-$round.md" || [ -s "$out/$tree-$round.md" ]
	done
done

# cells prints "section, row, column<tab>cell" for the columns that matter.
cells() {
	awk -F ' *\\| *' '
		/^## / { section = substr($0, 4); header = 0 }
		/^\|-/ { next }
		!/^\|/ { header = 0 }
		/^\|/ && !header { for (i = 2; i < NF; i++) name[i] = $i; header = 1; next }
		/^\|/ { for (i = 3; i < NF; i++) if (name[i] ~ /^(measured|ratio|share.*|.*CPU.*)$/) print section ", " $2 ", " name[i] "\t" $i }
	' "$1"
}
for tree in before after; do
	for round in $(seq "$rounds"); do
		cells "$out/$tree-$round.md" | sed "s/^/$tree\t/"
	done
done | awk -F '\t' '
	!($2 in seen) { seen[$2]; order[++n] = $2 }
	{ values[$1, $2] = values[$1, $2] (values[$1, $2] == "" ? "" : ", ") $3 }
	END {
		print "| | before | after |\n|---|---|---|"
		for (i = 1; i <= n; i++) print "| " order[i] " | " values["before", order[i]] " | " values["after", order[i]] " |"
	}'
