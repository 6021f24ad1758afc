package table

import (
	"strconv"
	"time"
)

// stamps are the date formats in names of snapshots:
// -2024-08-06, -20240806, -0613 (June 13th), -2407 (July 2024), -09-2025, -06-17.
var stamps = []string{"2006-01-02", "20060102", "0102", "0601", "01-2006", "01-02"}

// IsStamp reports whether a suffix identifies a snapshot: a date, or a number such as 001. A
// shorter number is a version: claude-sonnet-5-1 is another model than claude-sonnet-5.
func IsStamp(suffix string) bool {
	if suffix == "" || suffix[len(suffix)-1] < '0' || suffix[len(suffix)-1] > '9' { // most names
		return false
	}
	if len(suffix) == 3 {
		_, err := strconv.Atoi(suffix)
		return err == nil && suffix[0] == '0'
	}
	for _, layout := range stamps {
		if len(suffix) != len(layout) {
			continue
		}
		if _, err := time.Parse(layout, suffix); err == nil {
			return true
		}
	}
	return false
}

// Day returns the day of a stamp, or the zero time if it has no year: 1106 is November 6th,
// because there were no such models in 2011.
func Day(stamp string) time.Time {
	for _, layout := range stamps {
		if day, err := time.Parse(layout, stamp); err == nil && day.Year() >= 2020 {
			return day
		}
	}
	return time.Time{}
}
