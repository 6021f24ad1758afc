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

// queryString returns the given query parameters of the page, for a link.
func (req *request) queryString(params []string) string {
	out := url.Values{}
	for _, name := range params {
		if value := req.query(name); value != "" {
			out.Set(name, value)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "?" + out.Encode()
}

// timeLayout is how browsers send a day and time.
const timeLayout = "2006-01-02T15:04"

// parseTime reads a time in UTC. An empty string is the zero time.
func parseTime(name, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{timeLayout, "2006-01-02T15:04:05", time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fault.Invalid(name, "Enter a time as 2006-01-31T15:04, in UTC.")
}

// thousands matches a number with commas between its thousands, as pages show it.
var thousands = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$`)

// ungrouped removes those commas. Others may be meant as decimal points and stay, so
// that "2,5" is rejected and doesn't become 25.
func ungrouped(s string) string {
	if thousands.MatchString(s) {
		return strings.ReplaceAll(s, ",", "")
	}
	return s
}

// formCredits reads an amount. An empty field is nil.
func (req *request) formCredits(name string) (*credits.Micro, error) {
	s := ungrouped(req.form(name))
	if s == "" {
		return nil, nil
	}
	m, err := credits.Parse(s)
	if err != nil || m < 0 {
		return nil, fault.Invalid(name, "Enter a number of credits such as 100 or 2.5, with at most six decimals and at most %s.", credits.Max)
	}
	return &m, nil
}

// formNumber reads a whole number. An empty field is nil.
func (req *request) formNumber(name string) (*int64, error) {
	s := ungrouped(req.form(name))
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return nil, fault.Invalid(name, "Enter a whole number.")
	}
	return &n, nil
}

// formLastDay reads a day, which ends at midnight UTC. An empty field is nil, and a day
// that wasn't changed keeps the previous time to the second.
func (req *request) formLastDay(name string, before *time.Time) (*time.Time, error) {
	s := req.form(name)
	if s == "" {
		return nil, nil
	}
	if before != nil && s == lastDay(*before) {
		return before, nil
	}
	day, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return nil, fault.Invalid(name, "Enter a day as 2006-01-31.")
	}
	day = day.AddDate(0, 0, 1)
	if !day.After(req.now()) {
		return nil, fault.Invalid(name, "The last day cannot be in the past.")
	}
	return &day, nil
}
