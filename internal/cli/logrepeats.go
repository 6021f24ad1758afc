package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	repeatInterval = 10 * time.Second
	maxWarnings    = 1000 // that are remembered
)

// repeatFilter is a log handler that collapses repeated warnings. While the
// database is down, every background loop would log several per second. The first
// one is logged immediately, then one per repeatInterval with a count. Warnings
// that differ only in numbers are the same. So are warnings with the same message
// about the unavailable database, and requests that fail because of it.
type repeatFilter struct {
	slog.Handler
	attrs  string // that this logger adds to every record
	shared *repeatState
}

type repeatState struct {
	mu       sync.Mutex
	warnings map[string]*warning
}

// warning is a warning that was logged before.
type warning struct {
	logged time.Time
	held   int // since then
}

func newRepeatFilter(to slog.Handler) *repeatFilter {
	return &repeatFilter{Handler: to, shared: &repeatState{warnings: map[string]*warning{}}}
}

// Handle logs a record or holds it back.
func (h *repeatFilter) Handle(ctx context.Context, r slog.Record) error {
	if key := h.key(r); key != "" {
		held, due := h.shared.count(key, r.Time)
		if !due {
			return nil
		}
		if held > 0 {
			r.AddAttrs(slog.Int("repeated", held))
		}
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

// key returns the same string for warnings that are the same, and "" for records
// that are never held back: a warning about a request isn't from a loop.
func (h *repeatFilter) key(r slog.Record) string {
	if r.Level < slog.LevelWarn {
		return ""
	}
	var key strings.Builder
	key.WriteString(h.attrs + r.Message)
	request, outage := false, false
	r.Attrs(func(a slog.Attr) bool {
		request = request || a.Key == "request_id"
		err, _ := a.Value.Any().(error)
		outage = outage || errors.Is(err, db.ErrUnavailable) || a.Key == "code" && a.Value.String() == string(fault.StorageUnavailable)
		switch a.Value.Kind() {
		case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration, slog.KindTime:
		default:
			fmt.Fprintf(&key, " %s=%s", a.Key, a.Value)
		}
		return true
	})
	switch {
	case outage:
		return h.attrs + r.Message
	case request:
		return ""
	}
	return key.String()
}

// count reports whether a warning is due, and how many were held back before it.
func (s *repeatState) count(key string, now time.Time) (held int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.warnings[key]
	if w != nil && now.Sub(w.logged) < repeatInterval {
		w.held++
		return 0, false
	}
	if w != nil {
		held = w.held
	} else if len(s.warnings) >= maxWarnings {
		clear(s.warnings)
	}
	s.warnings[key] = &warning{logged: now}
	return held, true
}
