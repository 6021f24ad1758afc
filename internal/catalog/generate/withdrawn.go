package main

import (
	"regexp"
	"strings"

	"turnpike/internal/catalog/table"
)

// turned is how some write a snapshot of Anthropic's: claude-4-opus-20250514 is
// claude-opus-4-20250514.
var turned = regexp.MustCompile(`^claude-(\d+)-([a-z]+)-(\d{8})$`)

// passOn gives the day on which a model is withdrawn to the names that lead to
// it: the facts have it for the snapshots, and often not for their aliases. One
// with several snapshots is there for as long as the last of them.
func passOn(rows []table.Row) {
	days := map[[2]string]string{}
	for _, row := range rows {
		days[[2]string{row.Provider, row.ID}] = row.DeprecatedOn
	}
	day := func(row *table.Row, id string) string { return days[[2]string{row.Provider, id}] }
	for _, find := range []func(row *table.Row) string{
		func(row *table.Row) string { return day(row, turned.ReplaceAllString(row.ID, "claude-$2-$1-$3")) },
		func(row *table.Row) string { return lastOf(snapshots(rows, row)) },
		func(row *table.Row) string { return day(row, strings.TrimSuffix(row.ID, "-latest")) },
	} {
		for i := range rows {
			if row := &rows[i]; row.DeprecatedOn == "" {
				row.DeprecatedOn = find(row)
				days[[2]string{row.Provider, row.ID}] = row.DeprecatedOn
			}
		}
	}
}

func snapshots(rows []table.Row, of *table.Row) (list []table.Row) {
	for _, row := range rows {
		if stamp, ok := strings.CutPrefix(row.ID, of.ID+"-"); ok && row.Provider == of.Provider && table.IsStamp(stamp) {
			list = append(list, row)
		}
	}
	return list
}

// lastOf is the day on which the last of them is withdrawn, or empty if one is
// there to stay.
func lastOf(rows []table.Row) (last string) {
	for _, row := range rows {
		if row.DeprecatedOn == "" {
			return ""
		}
		last = max(last, row.DeprecatedOn)
	}
	return last
}
