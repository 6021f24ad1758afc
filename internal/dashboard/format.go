package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/credits"
)

// functions are what templates can call. Each takes the value and pointers to
// it alike, and shows a dash for what is not there.
var functions = template.FuncMap{
	"time":    showTime,
	"ago":     func(now time.Time, t any) template.HTML { return showAgo(now, t) },
	"credits": showCredits,
	"count":   showCount,
	"bytes":   showBytes,
	"ms":      showDuration,
	"json":    showJSON,
	"text":    text,
	"dict":    dict,
	"lower":   strings.ToLower,
	"join":    strings.Join,
	"percent": func(part, whole credits.Micro) int64 { return percent(int64(part), int64(whole)) },
	"static":  staticURL,
	"span":    span,
	"short":   shortened,
	"capital": capital,
	"words":   func(s string) string { return strings.ReplaceAll(s, "_", " ") },
}

const none = "–"

// plainWord is what a message begins with when that is no value: no address,
// nothing quoted, no name of a field.
var plainWord = regexp.MustCompile(`^[a-z]+(-[a-z]+)*[,:;]?( |$)`)

// capital has a message begin with a capital letter, as sentences do.
func capital(s string) string {
	if !plainWord.MatchString(s) {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// text writes any value that a form field can begin with.
func text(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case *string:
		if x == nil {
			return ""
		}
		return *x
	case *int64:
		if x == nil {
			return ""
		}
		return strconv.FormatInt(*x, 10)
	case *credits.Micro:
		if x == nil {
			return ""
		}
		return x.String()
	}
	return fmt.Sprint(v)
}

func timeOf(v any) (time.Time, bool) {
	switch t := v.(type) {
	case time.Time:
		return t, !t.IsZero()
	case *time.Time:
		if t != nil {
			return *t, true
		}
	}
	return time.Time{}, false
}

// showTime is a moment, in UTC to the second. The script adds the reader's own
// time to what hovering shows.
func showTime(v any) template.HTML {
	t, ok := timeOf(v)
	if !ok {
		return none
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s</time>`, //nolint:gosec // digits only
		t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05.000"), t.Format("2 Jan 2006 15:04:05")))
}

// showAgo is how long ago a moment was, or how long it will take to come.
func showAgo(now time.Time, v any) template.HTML {
	t, ok := timeOf(v)
	if !ok {
		return none
	}
	t = t.UTC()
	d, form := now.Sub(t), "%s ago"
	if d < 0 {
		d, form = -d, "in %s"
	}
	words := fmt.Sprintf(form, roughly(d))
	if d < time.Second {
		words = "now"
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s</time>`, t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05.000"), words)) //nolint:gosec // digits only
}

// roughly is a duration in its largest unit.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// countdown is a duration in its two largest units.
func countdown(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	switch {
	case d < time.Minute:
		return roughly(d)
	case d < time.Hour:
		return twoUnits(d, time.Minute, time.Second)
	case d < 48*time.Hour:
		return twoUnits(d, time.Hour, time.Minute)
	}
	return twoUnits(d, 24*time.Hour, time.Hour)
}

var unitNames = map[time.Duration]string{time.Second: " s", time.Minute: " min", time.Hour: " h", 24 * time.Hour: " days"}

func twoUnits(d, large, small time.Duration) string {
	first := showCount(int64(d/large)) + unitNames[large]
	if rest := d % large / small; rest > 0 {
		return first + " " + showCount(int64(rest)) + unitNames[small]
	}
	return first
}

// span is a duration that somebody has set: exact, in its largest whole unit.
func span(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, " days"}, {time.Hour, " h"}, {time.Minute, " min"}, {time.Second, " s"}} {
		if n := int64(d / unit.size); n > 0 && d%unit.size == 0 && (n > 1 || unit.size < 24*time.Hour) {
			return strconv.FormatInt(n, 10) + unit.name
		}
	}
	return d.String()
}

// showCredits groups the digits and leaves at least two behind the point when
// there are any.
func showCredits(v any) string {
	var m credits.Micro
	switch x := v.(type) {
	case credits.Micro:
		m = x
	case *credits.Micro:
		if x == nil {
			return none
		}
		m = *x
	default:
		return fmt.Sprint(v)
	}
	whole, part, hasPart := strings.Cut(m.String(), ".")
	whole = grouped(whole)
	if !hasPart {
		return whole
	}
	if len(part) == 1 {
		part += "0"
	}
	return whole + "." + part
}

func grouped(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// showCount is a whole number with grouped digits.
func showCount(v any) string {
	switch n := v.(type) {
	case *int64:
		if n == nil {
			return none
		}
		return grouped(strconv.FormatInt(*n, 10))
	case nil:
		return none
	}
	return grouped(fmt.Sprint(v))
}

// showBytes has the units of the settings.
func showBytes(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	case n < 1<<30:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
}

func showDuration(d time.Duration) string {
	switch {
	case d == 0:
		return none
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 2, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	}
	return roughly(d)
}

// showJSON indents a document; what is none is shown as it is.
func showJSON(v any) string {
	var raw []byte
	switch x := v.(type) {
	case json.RawMessage:
		raw = x
	case []byte:
		raw = x
	case string:
		raw = []byte(x)
	default:
		raw, _ = json.Marshal(v)
	}
	var out bytes.Buffer
	if len(raw) == 0 || json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}

// plainJSON is a document of ours as people read it: the letters that are
// escaped for pages (<, > and &) are themselves again.
func plainJSON(raw json.RawMessage) string {
	words := json.NewDecoder(bytes.NewReader(raw))
	words.UseNumber()
	var v any
	if words.Decode(&v) != nil {
		return string(raw)
	}
	var out bytes.Buffer
	plain := json.NewEncoder(&out)
	plain.SetEscapeHTML(false)
	plain.SetIndent("", "  ")
	_ = plain.Encode(v) // it was JSON: cannot fail
	return strings.TrimSpace(out.String())
}

func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return min(100, max(0, int64(float64(part)/float64(whole)*100)))
}

// shortened cuts a text for a line of a list.
func shortened(s string, n int) string {
	letters := []rune(s)
	if len(letters) <= n {
		return s
	}
	return string(letters[:n-1]) + "…"
}

// lastDay is the day that ends at the moment, or in which it lies.
func lastDay(end time.Time) string { return end.UTC().Add(-time.Microsecond).Format(time.DateOnly) }

// showAddresses writes ranges one to a line, those of one address as the address.
func showAddresses(list []netip.Prefix) string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = n.String()
		if n.IsSingleIP() {
			out[i] = n.Addr().String()
		}
	}
	return strings.Join(out, "\n")
}
