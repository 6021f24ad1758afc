package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// repeatEvery is how often the same complaint is logged while it goes on.
	repeatEvery = 10 * time.Second
	// maxTroubles bounds what is remembered; what is beyond is logged as it comes.
	maxTroubles = 1000
)

// repeats is a log handler that holds back what a loop complains of again and
// again, as every loop does many times a second while the database is away. The
// first complaint is logged at once, and so is one with another error. From then
// on there is a line every repeatEvery that says how often it came, and one when
// it comes no more.
type repeats struct {
	slog.Handler
	with string // that this logger adds to every line
	mem  *troubles
}

func newRepeats(to slog.Handler) *repeats {
	return &repeats{Handler: to, mem: &troubles{all: map[string]*trouble{}}}
}

// troubles are those that go on, by who has them: a complaint's text and all
// that it says beside the error and numbers.
type troubles struct {
	mu  sync.Mutex
	all map[string]*trouble
}

type trouble struct {
	first  slog.Record
	came   bool               // since the last look
	times  int                // altogether
	errors map[string]*repeat // by their text
}

// repeat is an error that was logged, and what came of it since.
type repeat struct {
	held int
	last slog.Record
}

// Handle logs a line, or holds it back.
func (h *repeats) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.holds(r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs and WithGroup are for loggers that add something to every line.
func (h *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeats{h.Handler.WithAttrs(attrs), h.with + fmt.Sprint(attrs), h.mem}
}

// WithGroup is described at WithAttrs.
func (h *repeats) WithGroup(name string) slog.Handler {
	return &repeats{h.Handler.WithGroup(name), h.with + name + ".", h.mem}
}

// holds reports whether the line was logged a moment ago.
func (h *repeats) holds(r slog.Record) bool {
	who, what, single := told(r)
	if single {
		return false
	}
	who = h.with + who
	h.mem.mu.Lock()
	defer h.mem.mu.Unlock()
	t := h.mem.all[who]
	if t == nil {
		if len(h.mem.all) >= maxTroubles {
			return false
		}
		t = &trouble{first: r.Clone(), errors: map[string]*repeat{}}
		h.mem.all[who] = t
		time.AfterFunc(repeatEvery, func() { h.look(who, t) })
	}
	t.came = true
	t.times++
	again := t.errors[what]
	if again == nil {
		t.errors[what] = &repeat{}
		return false
	}
	again.held++
	again.last = r.Clone()
	return true
}

// end is the last line about a trouble.
func (t *trouble) end(now time.Time) slog.Record {
	r := slog.NewRecord(now, slog.LevelInfo, fmt.Sprintf("not again for %s: %s", repeatEvery, t.first.Message), 0)
	t.first.Attrs(func(a slog.Attr) bool {
		if tells(a) && a.Key != "error" {
			r.AddAttrs(a)
		}
		return true
	})
	r.AddAttrs(slog.String("began", now.Sub(t.first.Time).Round(time.Second).String()+" ago"), slog.Int("repeated", t.times-1))
	return r
}

// tells reports whether a part of a line tells complaints apart: numbers differ
// from one to the next.
func tells(a slog.Attr) bool {
	switch a.Value.Kind() {
	case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration, slog.KindTime:
		return false
	}
	return true
}

// told splits a line into who complains and of which error. What a single
// request came to is no complaint of a loop.
func told(r slog.Record) (who, what string, single bool) {
	var text strings.Builder
	text.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "request_id":
			single = true
		case a.Key == "error":
			what = a.Value.String()
		case tells(a):
			fmt.Fprintf(&text, " %s=%s", a.Key, a.Value)
		}
		return true
	})
	return text.String(), what, single
}

// look logs what was held back since the last time, or that there is nothing more.
func (h *repeats) look(who string, t *trouble) {
	h.mem.mu.Lock()
	now := time.Now()
	var lines []slog.Record
	if t.came {
		t.came = false
		for what, again := range t.errors {
			if again.held == 0 {
				delete(t.errors, what)
				continue
			}
			again.last.Time = now
			again.last.AddAttrs(slog.Int("repeated", again.held))
			lines = append(lines, again.last)
			*again = repeat{}
		}
		time.AfterFunc(repeatEvery, func() { h.look(who, t) })
	} else {
		delete(h.mem.all, who)
		if t.times > 1 {
			lines = append(lines, t.end(now))
		}
	}
	h.mem.mu.Unlock()
	for _, line := range lines {
		if h.Enabled(context.Background(), line.Level) {
			_ = h.Handler.Handle(context.Background(), line) // as slog itself does
		}
	}
}
