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
	repeatInterval = 10 * time.Second
	maxSeries      = 1000 // further warnings are logged as they come
)

// repeatFilter is a log handler that collapses repeated warnings. While the
// database is down, every background loop would log several per second. The first
// one is logged immediately, then one per repeatInterval with a count, and a last
// line when there are no more. Warnings that differ only in numbers are the same.
type repeatFilter struct {
	slog.Handler
	attrs  string // that this logger adds to every record
	shared *repeatState
}

type repeatState struct {
	mu     sync.Mutex
	series map[string]*repeatSeries
}

// repeatSeries is a warning that was logged recently.
type repeatSeries struct {
	first    time.Time
	last     slog.Record
	held     int // since the last line
	repeated int // before that
}

func newRepeatFilter(to slog.Handler) *repeatFilter {
	return &repeatFilter{Handler: to, shared: &repeatState{series: map[string]*repeatSeries{}}}
}

// Handle logs a record or holds it back.
func (h *repeatFilter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.hold(r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *repeatFilter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeatFilter{h.Handler.WithAttrs(attrs), h.attrs + fmt.Sprint(attrs), h.shared}
}

// WithGroup implements slog.Handler.
func (h *repeatFilter) WithGroup(name string) slog.Handler {
	return &repeatFilter{h.Handler.WithGroup(name), h.attrs + name + ".", h.shared}
}

// hold reports whether the same record was logged recently.
func (h *repeatFilter) hold(r slog.Record) bool {
	var key strings.Builder
	key.WriteString(h.attrs + r.Message)
	request := false
	r.Attrs(func(a slog.Attr) bool {
		request = request || a.Key == "request_id"
		if !isNumber(a) {
			fmt.Fprintf(&key, " %s=%s", a.Key, a.Value)
		}
		return true
	})
	if request { // not from a loop
		return false
	}
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	s := h.shared.series[key.String()]
	if s != nil {
		s.held++
		s.last = r.Clone()
		return true
	}
	if len(h.shared.series) < maxSeries {
		s = &repeatSeries{first: r.Time}
		h.shared.series[key.String()] = s
		time.AfterFunc(repeatInterval, func() { h.flush(key.String(), s) })
	}
	return false
}

func isNumber(a slog.Attr) bool {
	switch a.Value.Kind() {
	case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration, slog.KindTime:
		return true
	}
	return false
}

// flush logs what was held back, or that the series has ended.
func (h *repeatFilter) flush(key string, s *repeatSeries) {
	h.shared.mu.Lock()
	now, r := time.Now(), s.last
	if s.held > 0 {
		r.Time = now
		r.AddAttrs(slog.Int("repeated", s.held))
		s.repeated += s.held
		s.held = 0
		time.AfterFunc(repeatInterval, func() { h.flush(key, s) })
	} else {
		delete(h.shared.series, key)
		r = slog.NewRecord(now, slog.LevelInfo, fmt.Sprintf("not repeated for %s: %s", repeatInterval, s.last.Message), 0)
		s.last.Attrs(func(a slog.Attr) bool {
			if !isNumber(a) {
				r.AddAttrs(a)
			}
			return true
		})
		r.AddAttrs(slog.String("began", now.Sub(s.first).Round(time.Second).String()+" ago"), slog.Int("repeated", s.repeated))
	}
	once := s.repeated == 0
	h.shared.mu.Unlock()
	if !once && h.Enabled(context.Background(), r.Level) {
		_ = h.Handler.Handle(context.Background(), r) // slog ignores this error, too
	}
}
