package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	redraw     = 100 * time.Millisecond // of the bar on a terminal
	sparse     = 5 * time.Second        // between lines anywhere else
	rateWindow = 10 * time.Second       // over which the rate is taken
	barWidth   = 24
	minBar     = 6  // on a narrow terminal; with less room there is none
	fallback   = 80 // columns, where the terminal does not say
)

// progress shows how far something has come. On a terminal it is a bar that
// clears itself; elsewhere it is a line every few seconds, so that a quick run
// prints nothing.
type progress struct {
	out   io.Writer
	label string
	now   func() time.Time
	width func() int // of the terminal; nil when there is none

	mu       sync.Mutex
	total    int64 // 0 when it is not known
	n        int64
	marks    []mark // of the last seconds, oldest first
	drawn    time.Time
	occupied int // columns that the bar takes now
	over     bool
}

// mark is how far it had come at a moment.
type mark struct {
	at time.Time
	n  int64
}

// newProgress begins at nought; a total of nought is one that is not known.
func newProgress(out io.Writer, label string, total int64) *progress {
	p := &progress{out: out, label: label, total: total, now: time.Now}
	if f, ok := out.(*os.File); ok && isTerminal(f) && os.Getenv("TERM") != "dumb" {
		p.width = func() int {
			// Asked each time: the window may have been resized.
			if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
				return w
			}
			return fallback
		}
	}
	p.begin()
	return p
}

func (p *progress) begin() {
	start := p.now()
	p.marks = []mark{{start, 0}}
	if p.width == nil {
		p.drawn = start // the first line after some time, not at once
	}
}

// Set says how much is done.
func (p *progress) Set(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	now := p.now()
	p.n = n
	p.mark(now)
	if p.width != nil && now.Sub(p.drawn) >= redraw {
		p.draw(now)
	}
	if p.width == nil && now.Sub(p.drawn) >= sparse {
		p.drawn = now
		fmt.Fprintf(p.out, "%s: %s\n", p.label, strings.Join(p.figures(now), ", "))
	}
}

// Done clears the bar. A second time is fine.
func (p *progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && p.width != nil {
		p.clear(p.width())
	}
	p.over = true
}

// mark remembers the step and forgets what is older than the window, but for
// the last one before it.
func (p *progress) mark(now time.Time) {
	for len(p.marks) > 1 && now.Sub(p.marks[1].at) >= rateWindow {
		p.marks = p.marks[1:]
	}
	if now.Sub(p.marks[len(p.marks)-1].at) >= redraw {
		p.marks = append(p.marks, mark{now, p.n})
	}
}

func (p *progress) rate(now time.Time) float64 {
	since := p.marks[0]
	if d := now.Sub(since.at).Seconds(); d > 0 {
		return float64(p.n-since.n) / d
	}
	return 0
}

// figures are the numbers: done of total, rate, and the time that is left.
func (p *progress) figures(now time.Time) []string {
	rate := p.rate(now)
	out := []string{grouped(p.n)}
	if p.total > 0 {
		out[0] += fmt.Sprintf("/%s (%d%%)", grouped(p.total), 100*min(p.n, p.total)/p.total)
	}
	if rate > 0 {
		out = append(out, perSecond(rate))
		if left := p.total - p.n; left > 0 {
			out = append(out, "ETA "+span(time.Duration(float64(left)/rate*float64(time.Second))))
		}
	}
	return out
}

func (p *progress) draw(now time.Time) {
	width := p.width()
	p.clear(width)
	line := p.line(now, width-1) // the last column would make some terminals wrap
	fmt.Fprint(p.out, line)
	p.drawn, p.occupied = now, utf8.RuneCountInString(line)
}

// line is the bar with its label and figures, or what of them there is room for.
func (p *progress) line(now time.Time, room int) string {
	figures := strings.Join(p.figures(now), "  ")
	text := p.label + "  " + figures
	bar := min(barWidth, room-utf8.RuneCountInString(text)-2)
	switch {
	case p.total > 0 && bar >= minBar:
		full := int(int64(bar) * min(p.n, p.total) / p.total)
		return p.label + "  " + strings.Repeat("█", full) + strings.Repeat("░", bar-full) + "  " + figures
	case utf8.RuneCountInString(text) > room:
		text = figures
	}
	if r := []rune(text); len(r) > room {
		text = string(r[:max(room, 0)])
	}
	return text
}

// clear removes what was drawn. In a window that has become narrower the
// terminal has wrapped it into several rows.
func (p *progress) clear(width int) {
	if p.occupied == 0 {
		return
	}
	if above := (p.occupied - 1) / max(width, 1); above > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA", above)
	}
	fmt.Fprint(p.out, "\r\x1b[J")
	p.occupied = 0
}

// grouped is a number with a comma at every thousand.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func perSecond(rate float64) string {
	if rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64) + "/s"
	}
	return grouped(int64(rate)) + "/s"
}

// span is a duration for people: 45s, 3m20s, 2h05m, 3d4h.
func span(d time.Duration) string {
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
