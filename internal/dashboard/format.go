package dashboard

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
	"turnpike/internal/web"
)

// functions are the template functions. Each accepts a value or a pointer, and shows a
// dash for a missing value.
var functions = template.FuncMap{
	"time":       showTime,
	"stamp":      showStamp,
	"date":       showDate,
	"ago":        showAgo,
	"credits":    showCredits,
	"rounded":    showRounded,
	"aligned":    showAligned,
	"count":      showCount,
	"countdown":  countdown,
	"bytes":      showBytes,
	"ms":         showDuration,
	"json":       showJSON[json.RawMessage],
	"text":       text,
	"breakable":  breakable,
	"dict":       dict,
	"lower":      strings.ToLower,
	"join":       strings.Join,
	"percent":    func(part, whole credits.Micro) int64 { return percent(int64(part), int64(whole)) },
	"static":     staticURL,
	"icon":       showIcon,
	"alerts":     showThresholds,
	"short":      shortened,
	"verifyTabs": verifyTabs,
	"month":      showMonth,
	"reason":     shortReason,
	"seconds":    func(n int64) string { return roughly(time.Duration(n) * time.Second) },
	"words":      func(s string) string { return strings.ReplaceAll(s, "_", " ") },
}

const none = "–"

// indirect follows a pointer. A nil pointer is nil.
func indirect(v any) any {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer {
		return v
	}
	if p.IsNil() {
		return nil
	}
	return p.Elem().Interface()
}

// text formats the initial value of a form field.
func text(v any) string {
	if v = indirect(v); v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func timeOf(v any) (time.Time, bool) {
	t, _ := indirect(v).(time.Time)
	return t.UTC(), !t.IsZero()
}

// showTime formats a time in UTC. The script shows the local time instead, with UTC in the
// tooltip.
func showTime(v any) template.HTML {
	t, ok := timeOf(v)
	if !ok {
		return none
	}
	return timeElement(t, " data-local", t.Format("Jan 2, 2006, 15:04:05 UTC"))
}

// showStamp formats a time for a list, without the year.
func showStamp(v any) template.HTML {
	t, ok := timeOf(v)
	if !ok {
		return none
	}
	return timeElement(t, ` data-local="short"`, t.Format("Jan 2, 15:04:05 UTC"))
}

// showDate formats the day of a time, in UTC.
func showDate(v any) template.HTML {
	t, ok := timeOf(v)
	if !ok {
		return none
	}
	return timeElement(t, "", t.Format("Jan 2, 2006"))
}

func timeElement(t time.Time, attributes, words string) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC"%s>%s</time>`, //nolint:gosec // digits and units only
		t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05.000"), attributes, words))
}

// showAgo formats how long ago a time was, or how far ahead it is.
func showAgo(now time.Time, v any) template.HTML {
	t, ok := timeOf(v)
	d := now.Sub(t)
	switch {
	case !ok:
		return none
	case d >= 0 && d < time.Second:
		return timeElement(t, "", "just now")
	case d < 0 && d > -time.Second:
		return timeElement(t, "", "now")
	case d < 0:
		return timeElement(t, "", "in "+roughly(roundUp(-d)))
	}
	return timeElement(t, "", roughly(d)+" ago")
}

var timeUnits = []struct {
	size time.Duration
	name string
}{{24 * time.Hour, " days"}, {time.Hour, " h"}, {time.Minute, " min"}, {time.Second, " s"}}

// largestUnit returns the index of a duration's largest unit. Days count from two up.
func largestUnit(d time.Duration) int {
	i := 0
	for i+1 < len(timeUnits) && (d < timeUnits[i].size || i == 0 && d < 48*time.Hour) {
		i++
	}
	return i
}

// roundUp adds a few seconds to a time ahead, so that seven days are still seven when the page shows them.
func roundUp(d time.Duration) time.Duration {
	size := timeUnits[largestUnit(d+time.Minute)].size
	if rest := d % size; size > time.Minute && size-rest <= time.Minute {
		return d - rest + size
	}
	return d
}

// roughly formats a duration in its largest unit.
func roughly(d time.Duration) string {
	unit := timeUnits[largestUnit(d)]
	return showCount(int64(d/unit.size)) + unit.name
}

// countdown formats a duration in its two largest units.
func countdown(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	i := largestUnit(d)
	if i+1 < len(timeUnits) && d%timeUnits[i].size >= timeUnits[i+1].size {
		next := timeUnits[i+1]
		return roughly(d) + " " + showCount(int64(d%timeUnits[i].size/next.size)) + next.name
	}
	return roughly(d)
}

// showCredits groups the digits, and shows at least two decimals if there are any.
func showCredits(v any) string {
	if v = indirect(v); v == nil {
		return none
	}
	amount := web.GroupThousands(fmt.Sprint(v))
	if len(amount) > 1 && amount[len(amount)-2] == '.' {
		amount += "0"
	}
	return amount
}

// showRounded formats credits for headlines: with two decimals, from one credit up.
func showRounded(v any) string {
	amount, ok := indirect(v).(credits.Micro)
	if !ok || amount < credits.Credit || amount%credits.Credit == 0 {
		return showCredits(v)
	}
	return web.GroupThousands(strconv.FormatFloat(amount.Float(), 'f', 2, 64))
}

// showAligned formats credits for columns: with four decimals, so that the points are
// below each other. The tooltip has the exact amount. Zero is a dash.
func showAligned(v any) template.HTML {
	amount, ok := indirect(v).(credits.Micro)
	if !ok || amount == 0 {
		return none
	}
	short := web.GroupThousands(strconv.FormatFloat(amount.Float(), 'f', 4, 64))
	if exact := showCredits(amount); len(exact) > len(short) {
		return template.HTML(`<span title="` + exact + `">` + short + `</span>`) //nolint:gosec // digits only
	}
	return template.HTML(short) //nolint:gosec // digits only
}

// showCount formats a whole number with grouped digits.
func showCount(v any) string {
	if v = indirect(v); v == nil {
		return none
	}
	return web.GroupThousands(fmt.Sprint(v))
}

// showBytes uses the units of the settings.
func showBytes(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	size, units := float64(n)/(1<<10), []string{" KiB", " MiB", " GiB"}
	for size >= 1<<10 && len(units) > 1 {
		size, units = size/(1<<10), units[1:]
	}
	return strconv.FormatFloat(size, 'f', 1, 64) + units[0]
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

// showMonth formats a month, such as 2026-11.
func showMonth(v any) string {
	t, err := time.Parse("2006-01", fmt.Sprint(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return t.Format("January 2006")
}

// shortReason shortens the reason of a failed attempt for lists, where the status says enough.
func shortReason(s string) string {
	if rest, ok := strings.CutPrefix(s, "the endpoint returned "); ok {
		return strings.TrimSuffix(rest, " instead of a 2xx status")
	}
	return s
}

// between returns the time from one moment to the other, or 0 if either is missing.
func between(from, to *time.Time) time.Duration {
	if from == nil || to == nil {
		return 0
	}
	return to.Sub(*from)
}

// showJSON indents JSON and removes escapes that strings don't need. Other text stays as
// it is.
func showJSON[T ~[]byte | ~string](text T) string {
	out, _ := jsontext.AppendFormat(nil, text, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.WithIndent("  "))
	return string(out)
}

// breakable lets lines of JSON break between its values instead of inside words.
func breakable(text string) template.HTML {
	return template.HTML(strings.NewReplacer(",", ",<wbr>", "{", "{<wbr>", "[", "[<wbr>").Replace(template.HTMLEscapeString(text))) //nolint:gosec // escaped
}

func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return min(100, max(0, int64(float64(part)/float64(whole)*100)))
}

// shortened truncates text for a row of a list.
func shortened(s string, n int) string {
	if clip(s, n).Cut == 0 {
		return s
	}
	return clip(s, n-1).Text + "…"
}

// lastDay returns the day that ends at a time, or contains it.
func lastDay(end time.Time) string { return end.UTC().Add(-time.Microsecond).Format(time.DateOnly) }

// showAddresses formats ranges, one per line, without the prefix length of single
// addresses.
func showAddresses(list []netip.Prefix) string {
	return strings.Join(web.Map(list, web.ShowPrefix), "\n")
}

// clipped is text that may be cut off.
type clipped struct {
	Text string
	Cut  int // omitted characters
}

// clip keeps the first characters of a string.
func clip(s string, most int) clipped {
	if len(s) <= most {
		return clipped{Text: s}
	}
	n := 0
	for i := range s {
		if n == most {
			return clipped{Text: s[:i], Cut: utf8.RuneCountInString(s[i:])}
		}
		n++
	}
	return clipped{Text: s}
}

// clip is clip, unless the query asks for the whole text.
func (req *request) clip(s string, most int) clipped {
	if req.query("all") != "" {
		return clipped{Text: s}
	}
	return clip(s, most)
}

// escapeInvisible shows every character of a string: invisible ones, and those that
// change the text direction, are written as JSON escapes.
func escapeInvisible(s string) string {
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && r != ' ' && (unicode.Is(unicode.C, r) || unicode.Is(unicode.Z, r))
	}
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			out.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xD800+(r>>10), 0xDC00+(r&0x3FF))
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
