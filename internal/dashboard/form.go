package dashboard

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
)

// What forms and addresses say is read here.

// kept is the part of the address that the parameters are.
func (v *visit) kept(params []string) string {
	out := url.Values{}
	for _, name := range params {
		if value := v.query(name); value != "" {
			out.Set(name, value)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "?" + out.Encode()
}

// momentLayout is how browsers write a day and time.
const momentLayout = "2006-01-02T15:04"

// parseMoment reads a time in UTC; an empty one is none.
func parseMoment(name, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{momentLayout, "2006-01-02T15:04:05", time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fault.Invalid(name, "a time is written as 2006-01-31T15:04, in UTC")
}

// thousands is a number with commas between its thousands, as pages show it.
var thousands = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$`)

// ungrouped takes those commas out. One that stands elsewhere may be meant as a
// decimal point: it stays, so that "2,5" is refused and does not become 25.
func ungrouped(s string) string {
	if thousands.MatchString(s) {
		return strings.ReplaceAll(s, ",", "")
	}
	return s
}

// formCredits reads an amount; an empty field is none.
func (v *visit) formCredits(name string) (*credits.Micro, error) {
	s := ungrouped(v.form(name))
	if s == "" {
		return nil, nil
	}
	m, err := credits.Parse(s)
	if err != nil || m < 0 {
		return nil, fault.Invalid(name, "an amount is a number of credits, such as 100 or 2.5, with at most six decimals and not above %s", credits.Max)
	}
	return &m, nil
}

// formNumber reads a whole number; an empty field is none.
func (v *visit) formNumber(name string) (*int64, error) {
	s := ungrouped(v.form(name))
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return nil, fault.Invalid(name, "this must be a whole number")
	}
	return &n, nil
}

// formLastDay reads a day, which ends at midnight UTC; an empty field is none.
// A day that was not changed leaves the moment as it was, to the second.
func (v *visit) formLastDay(name string, before *time.Time) (*time.Time, error) {
	s := v.form(name)
	if s == "" {
		return nil, nil
	}
	if before != nil && s == lastDay(*before) {
		return before, nil
	}
	day, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return nil, fault.Invalid(name, "a day is written as 2006-01-31")
	}
	day = day.AddDate(0, 0, 1)
	if !day.After(v.now()) {
		return nil, fault.Invalid(name, "the last day must not be in the past")
	}
	return &day, nil
}
