package main

import (
	"regexp"
	"strings"

	"turnpike/internal/catalog/table"
)

// swappedName is another spelling of Anthropic's snapshots: claude-4-opus-20250514 is
// claude-opus-4-20250514.
var swappedName = regexp.MustCompile(`^claude-(\d+)-([a-z]+)-(\d{8})$`)

// inheritDeprecation copies deprecation dates from snapshots to their aliases, which often lack
// them. A model with several snapshots gets the last date.
func inheritDeprecation(rows []table.Row) {
	days := map[[2]string]string{}
	for _, row := range rows {
		days[[2]string{row.Provider, row.ID}] = row.DeprecatedOn
	}
	day := func(row *table.Row, id string) string { return days[[2]string{row.Provider, id}] }
	for _, find := range []func(row *table.Row) string{
		func(row *table.Row) string { return day(row, swappedName.ReplaceAllString(row.ID, "claude-$2-$1-$3")) },
		func(row *table.Row) string { return lastDeprecation(snapshots(rows, row)) },
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

// lastDeprecation returns the last deprecation date, or "" if one of the rows has none.
func lastDeprecation(rows []table.Row) (last string) {
	for _, row := range rows {
		if row.DeprecatedOn == "" {
			return ""
		}
		last = max(last, row.DeprecatedOn)
	}
	return last
}
