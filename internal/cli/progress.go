package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// lineInterval is the time between lines where there is no terminal.
const lineInterval = 5 * time.Second

// progress shows how much of an operation is done: on a terminal a bar that
// disappears at the end, elsewhere a line every few seconds.
type progress struct {
	out   io.Writer
	label string
	total int64                    // 0 if unknown
	bar   *progressbar.ProgressBar // nil where there is no terminal

	lastLine time.Time
}

func newProgress(out io.Writer, label string, total int64) *progress {
	p := &progress{out: out, label: label, total: total, lastLine: time.Now()}
	if isTerminal(out) && os.Getenv("TERM") != "dumb" {
		limit := total
		if total == 0 {
			limit = -1 // a spinner; without an interval it needs no goroutine
		}
		p.bar = progressbar.NewOptions64(limit, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(label),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(24), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionUseANSICodes(true), progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionShowTotalBytes(total > 0))
	}
	return p
}

// Set updates how much is done.
func (p *progress) Set(n int64) {
	if p.bar != nil {
		_ = p.bar.Set64(n) // fails if an estimated total was too low
		return
	}
	if time.Since(p.lastLine) < lineInterval {
		return
	}
	p.lastLine = time.Now()
	text := grouped(n)
	if p.total > 0 {
		text += fmt.Sprintf("/%s (%d%%)", grouped(p.total), 100*min(n, p.total)/p.total)
	}
	fmt.Fprintf(p.out, "%s: %s\n", p.label, text)
}

// Done removes the bar. It may be called twice.
func (p *progress) Done() {
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}
