package logsearch

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/credits"
)

// message is an error that is shown to people: sentences that say what to do.
type message string

func (m message) Error() string { return string(m) }

func invalid(format string, args ...any) error { return message(fmt.Sprintf(format, args...)) }

// onlyEqual refuses comparisons.
func onlyEqual(op Op) error {
	if op != Equal {
		return invalid("This field can't be compared with %s. Use a colon.", op)
	}
	return nil
}

// Text reads any text.
func Text(to *string) func(Op, string) error {
	return func(op Op, value string) error {
		if err := onlyEqual(op); err != nil {
			return err
		}
		*to = value
		return nil
	}
}

// OneOf reads one of the values. Capitals don't matter.
func OneOf[T ~string](to *T, values []T) func(Op, string) error {
	return func(op Op, value string) error {
		if err := onlyEqual(op); err != nil {
			return err
		}
		i := slices.IndexFunc(values, func(v T) bool { return strings.EqualFold(string(v), value) })
		if i < 0 {
			return invalid("Unknown value %q. Known values: %s.", value, strings.Join(Strings(values), ", "))
		}
		*to = values[i]
		return nil
	}
}

// Strings converts a list of named strings.
func Strings[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// Range is a range of whole numbers. Both ends are inclusive, and nil is open.
type Range struct{ Min, Max *int64 }

// bound sets the end of a range that a comparison gives.
func (r *Range) bound(op Op, n int64) {
	switch op {
	case Equal:
		r.Min, r.Max = &n, &n
	case Above:
		n++
		r.Min = &n
	case AtLeast:
		r.Min = &n
	case Below:
		n--
		r.Max = &n
	case AtMost:
		r.Max = &n
	}
}

// Failed is the value of all statuses from 400 on.
const Failed = "failed"

var statusClass = regexp.MustCompile(`^[1-5][xX]{2}$`)

// Status reads an HTTP status: 404, 4xx, >=500 or failed.
func Status(to *Range) func(Op, string) error {
	return func(op Op, value string) error {
		wrong := invalid("Enter a status such as 404, 4xx, >=500 or failed.")
		if op == Equal && strings.EqualFold(value, Failed) {
			to.bound(AtLeast, 400)
			return nil
		}
		if op == Equal && statusClass.MatchString(value) {
			low := int64(value[0]-'0') * 100
			to.bound(AtLeast, low)
			to.bound(AtMost, low+99)
			return nil
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 100 || n > 599 {
			return wrong
		}
		to.bound(op, n)
		return nil
	}
}

// Duration reads a comparison with a duration, such as >2s or <300ms, in microseconds.
func Duration(to *Range) func(Op, string) error {
	return func(op Op, value string) error {
		if op == Equal {
			return invalid("Compare the duration, as in >2s or <300ms.")
		}
		d, err := time.ParseDuration(strings.ToLower(value))
		if err != nil {
			return invalid("Enter a duration with a unit, such as 300ms, 2s or 1m.")
		}
		if d <= 0 || d > 24*time.Hour {
			return invalid("Enter a duration of up to 24h.")
		}
		to.bound(op, d.Microseconds())
		return nil
	}
}

// Credits reads a comparison with an amount, such as >0.5, in millionths.
func Credits(to *Range) func(Op, string) error {
	return func(op Op, value string) error {
		m, err := credits.Parse(value)
		if err != nil {
			return invalid("Enter a number of credits such as >100 or >0.5.")
		}
		to.bound(op, int64(m))
		return nil
	}
}

// Period is a time range: the last hours, or from a time until another.
type Period struct {
	Last        time.Duration
	From, Until time.Time // zero is open; Until is exclusive
}

// Lasts are the ranges that pickers offer.
var Lasts = []struct{ Value, Label string }{
	{"15m", "Last 15 minutes"}, {"1h", "Last hour"}, {"24h", "Last 24 hours"}, {"7d", "Last 7 days"}, {"30d", "Last 30 days"}}

// Bounds returns when the period starts and ends. Zero is open.
func (p *Period) Bounds(now time.Time) (from, until time.Time) {
	if p.Last > 0 {
		return now.Add(-p.Last), time.Time{}
	}
	return p.From, p.Until
}

// Fields returns the fields of the period.
func (p *Period) Fields(now time.Time) []Field {
	values := make([]string, len(Lasts))
	for i, l := range Lasts {
		values[i] = l.Value
	}
	return []Field{
		{Name: "last", Help: "24h", Values: values, Set: p.setLast},
		{Name: "from", Help: now.UTC().Format(dayLayout), Set: p.setTime(&p.From, now, false)},
		{Name: "until", Help: now.UTC().Format(timeLayout), Set: p.setTime(&p.Until, now, true)},
	}
}

// maxLast is the longest relative range. Times before 1970 have no IDs.
const maxLast = 10 * 365 * 24 * time.Hour

var lastPattern = regexp.MustCompile(`^([0-9]{1,6})([smhdw])$`)

var lastUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}

func (p *Period) setLast(op Op, value string) error {
	if err := onlyEqual(op); err != nil {
		return err
	}
	if !p.From.IsZero() || !p.Until.IsZero() {
		return invalid("Use either last, or from and until.")
	}
	m := lastPattern.FindStringSubmatch(strings.ToLower(value))
	if m == nil {
		return invalid("Enter a range such as 15m, 24h, 7d or 2w.")
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // at most six digits
	d := time.Duration(n) * lastUnits[m[2]]
	if d <= 0 || d > maxLast {
		return invalid("Enter a range of up to ten years.")
	}
	p.Last = d
	return nil
}

const (
	dayLayout  = "2006-01-02"
	timeLayout = "2006-01-02T15:04"
)

var timeLayouts = []string{timeLayout, "2006-01-02T15:04:05", time.RFC3339, "2006-01-02 15:04", "2006-01-02 15:04:05"}

// setTime reads a time in UTC, or a time of today. A day as the end of a range is included.
func (p *Period) setTime(to *time.Time, now time.Time, end bool) func(Op, string) error {
	return func(op Op, value string) error {
		if err := onlyEqual(op); err != nil {
			return err
		}
		if p.Last > 0 {
			return invalid("Use either last, or from and until.")
		}
		t, err := parseTime(value, now, end)
		if err != nil {
			return err
		}
		if end && !p.From.IsZero() && !t.After(p.From) || !end && !p.Until.IsZero() && !t.Before(p.Until) {
			return invalid("The range must start before it ends.")
		}
		*to = t
		return nil
	}
}

func parseTime(value string, now time.Time, end bool) (time.Time, error) {
	if t, err := time.Parse(dayLayout, value); err == nil {
		if end {
			t = t.AddDate(0, 0, 1)
		}
		return checkTime(t)
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, value); err == nil {
			return checkTime(t.UTC())
		}
	}
	if t, err := time.Parse("15:04", value); err == nil {
		now = now.UTC()
		return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC), nil
	}
	return time.Time{}, invalid("Enter a time in UTC such as %s, %s or 15:04.", dayLayout, timeLayout)
}

func checkTime(t time.Time) (time.Time, error) {
	if t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, invalid("Enter a time after 1970.")
	}
	return t, nil
}
