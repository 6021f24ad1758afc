package gateway

import (
	"sync"
	"time"

	"turnpike/internal/providers"
)

// health is how a model at a provider has been doing, as this node sees it.
type health struct {
	mu       sync.Mutex
	failures int       // in a row
	cool     time.Time // until when others are tried first
	first    time.Duration
}

// rank is 1 while others are to be tried first.
func (h *health) rank(now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.cool) {
		return 1
	}
	return 0
}

// pace is the time to the first byte, learned from calls; 0 before the first.
func (h *health) pace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.first
}

// worked notes an answer: a fifth of the new time counts.
func (h *health) worked(first time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.cool = 0, time.Time{}
	if h.first == 0 {
		h.first = first
		return
	}
	h.first += (first - h.first) / 5
}

// failed notes a failure. A provider that says when to come back is believed,
// one that does not know our key or the model needs the operator, and others
// may fail a few times.
func (h *health) failed(f *providers.Failure, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures++
	wait := coolDowns[min(h.failures, len(coolDowns)-1)]
	switch f.Kind {
	case providers.KindAuth, providers.KindNoModel:
		wait = coolDowns[len(coolDowns)-1]
	case providers.KindRateLimited, providers.KindOverloaded:
		wait = max(wait, f.RetryAfter, coolDowns[2])
	}
	if until := now.Add(min(wait, maxCoolDown)); until.After(h.cool) {
		h.cool = until
	}
}

const maxCoolDown = 10 * time.Minute
