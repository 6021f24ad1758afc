package cli

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode"
)

// Terminal colors. All have the same length, so that a column of colored cells
// stays aligned.
const (
	plain  = "\x1b[39m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	blue   = "\x1b[34m"
)

// paint colors a text on a terminal, unless the user disabled colors (no-color.org).
func (e *env) paint(color, text string) string {
	text = visible(text)
	if !isTerminal(e.out) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return color + text + plain
}

func (e *env) status(v any) string {
	switch word := fmt.Sprint(v); word {
	case "succeeded", "completed", "active":
		return e.paint(green, word)
	case "failed", "stopped":
		return e.paint(red, word)
	case "retrying", "held", "paused", "cancelling", "cancelled", "awaiting_approval", "requires_action":
		return e.paint(yellow, word)
	case "pending", "running", "queued", "in_progress", "verifying":
		return e.paint(blue, word)
	default:
		return e.paint(plain, word)
	}
}

// at formats a time: local on a terminal, UTC for other programs.
func (e *env) at(unix int64) string {
	t := time.Unix(unix, 0)
	if isTerminal(e.out) {
		return t.Local().Format(time.DateTime)
	}
	return t.UTC().Format(time.RFC3339)
}

// until formats the time that remains until a time, which may be null.
func until(unix any) string {
	n, ok := unix.(int64)
	if !ok {
		return "-"
	}
	if d := time.Until(time.Unix(n, 0)); d >= time.Second {
		return "in " + formatDuration(d)
	}
	return "now"
}

// visible replaces the characters that control a terminal.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

//go:embed details.tmpl
var detailText string

func (e *env) detailTemplates() *template.Template {
	if e.templates == nil {
		e.templates = template.Must(template.New("").Funcs(template.FuncMap{
			"at": e.at, "status": e.status, "red": func(s string) string { return e.paint(red, s) }, "yellow": func(s string) string { return e.paint(yellow, s) },
			"until": until, "indent": indent, "long": longText, "oneLine": oneLine, "grouped": grouped, "bytes": formatBytes, "failure": failureText,
			"httpStatus": func(code int64) string {
				return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(int(code))))
			},
			"kind": func(id string) string { return jobKind(id).Noun() },
			"json": func(o object) (string, error) {
				text, err := json.MarshalIndent(o, "", "  ")
				return string(text), err
			},
			"seconds": func(n int64) string { return formatDuration(time.Duration(n) * time.Second) },
			"default": func(fallback string, v any) any {
				if v == nil {
					return fallback
				}
				return v
			},
			"ago": func(unix any) string {
				if n, ok := unix.(int64); ok {
					return formatDuration(time.Since(time.Unix(n, 0))) + " ago"
				}
				return "never"
			},
			"join":    joined,
			"several": several,
		}).Parse(detailText))
	}
	return e.templates
}

func joined(values []any) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ","), "[]")
}

// several shows a long list by its first values and how many follow.
func several(values []any) string {
	const shown = 3
	if len(values) <= shown+1 {
		return joined(values)
	}
	return fmt.Sprintf("%s and %d more", joined(values[:shown]), len(values)-shown)
}

func (e *env) render(w io.Writer, v any, names ...string) error {
	for _, name := range names {
		if err := e.detailTemplates().ExecuteTemplate(w, name, v); err != nil {
			return err
		}
	}
	return nil
}

// indent puts lead before the first line and spaces before the others, so that
// no line of foreign text looks like one of ours.
func indent(lead, text string) string {
	return lead + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+strings.Repeat(" ", len(lead)))
}

func longText(text string) string {
	if r := []rune(text); len(r) > 2000 {
		return fmt.Sprintf("%s…\n(%d bytes; use --json for the full text)", string(r[:2000]), len(text))
	}
	return text
}

// oneLine puts the beginning of a text on one line.
func oneLine(s string) string {
	text := strings.Join(strings.Fields(visible(s)), " ")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return text
}

func failureText(o object) string {
	return fmt.Sprintf("%s (%s)", oneLine(o.str("message")), cmp.Or(o.str("code"), o.str("class")))
}

func formatBytes(n int64) string {
	size, unit := float64(n), "bytes"
	for _, next := range []string{"KB", "MB", "GB", "TB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, next
	}
	if unit == "bytes" {
		return counted(n, "byte", unit)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// grouped formats a number with thousands separators.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// counted formats a number with its noun.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// formatDuration formats a duration: 45s, 3m20s, 2h05m, 3d4h.
func formatDuration(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s/3600%24)
}

// parseTime parses a time: a duration before now (90s, 2h, 7d), a local date or
// time, RFC 3339, or Unix seconds. An empty string is the zero time.
func parseTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if s == "now" {
		return now, nil
	}
	// Unix seconds have had at least nine digits since 1973.
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && len(s) >= 9 {
		return time.Unix(n, 0), nil
	}
	if d, ok := parseDuration(s); ok {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New(strconv.Quote(s) + " is not a time; use 2h or 7d (ago), 2026-03-01, 2026-03-01T12:00:00Z, or Unix seconds")
}

// parseDuration is time.ParseDuration with days and weeks.
func parseDuration(s string) (time.Duration, bool) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseFloat(number, 64)
			if err != nil || !(n >= 0 && n <= 36500) { // also false for NaN
				return 0, false
			}
			return time.Duration(n * float64(length)), true
		}
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// confirmed asks a question and reports whether the answer is yes.
func (e *env) confirmed(ctx context.Context, question string) bool {
	fmt.Fprint(e.err, question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(e.in).ReadString('\n') // the end of the input is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(e.err)
		return false
	case a := <-answer:
		return a == "y" || a == "yes"
	}
}
