package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Colours of a terminal. All have the same length, also the one that is none,
// so that a column of coloured cells stays aligned.
const (
	plain  = "\x1b[39m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	blue   = "\x1b[34m"
)

// paint colours a text for a terminal, unless its owner wants none (no-color.org).
// No other colour or command is left in it.
func (e *env) paint(colour, text string) string {
	text = visible(text)
	if !isTerminal(e.out) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return colour + text + plain
}

// status colours the word for how something is.
func (e *env) status(word string) string {
	switch word {
	case "succeeded", "completed", "active":
		return e.paint(green, word)
	case "failed", "stopped":
		return e.paint(red, word)
	case "retrying", "held", "paused", "cancelling", "cancelled":
		return e.paint(yellow, word)
	case "pending", "running", "queued", "in_progress":
		return e.paint(blue, word)
	}
	return e.paint(plain, word)
}

// at is a moment: for people in their own time, for other programs in UTC.
func (e *env) at(unix int64) string {
	t := time.Unix(unix, 0)
	if isTerminal(e.out) {
		return t.Local().Format(time.DateTime)
	}
	return t.UTC().Format(time.RFC3339)
}

// ahead says how far off a moment is.
func ahead(unix *int64, now time.Time) string {
	if unix == nil {
		return "-"
	}
	if d := time.Unix(*unix, 0).Sub(now); d >= time.Second {
		return "in " + span(d)
	}
	return "now"
}

// painted is a cell of a table that went through paint.
type painted string

// cell is what stands in a table. Only our own colours may be more than text.
func cell(v any) string {
	if p, ok := v.(painted); ok {
		return string(p)
	}
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(visible(fmt.Sprint(v)))
}

// visible is what strangers sent, without the power to steer a terminal.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// parseMoment reads a time: a span back from now (90s, 2h, 7d), a date or a
// date and time in the user's own time, RFC 3339, or Unix seconds. Nothing is
// the zero time.
func parseMoment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if s == "now" {
		return now, nil
	}
	// Unix seconds have at least nine digits since 1973.
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && len(s) >= 9 {
		return time.Unix(n, 0), nil
	}
	if back, ok := parseSpan(s); ok {
		return now.Add(-back), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New(strconv.Quote(s) + " is no time; say 2h or 7d (ago), 2026-03-01, 2026-03-01T12:00:00Z, or Unix seconds")
}

// parseSpan is time.ParseDuration with days and weeks.
func parseSpan(s string) (time.Duration, bool) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseFloat(number, 64)
			if err != nil || !(n >= 0 && n <= 36500) { // which NaN is not, either
				return 0, false
			}
			return time.Duration(n * float64(length)), true
		}
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}
