package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/providers"
)

// health is how a model at a provider has been doing, as this node sees it.
type health struct {
	listed bool // somebody has listed the model, so that its name is no caller's invention

	cool atomic.Int64 // until when others are tried first, in nanoseconds
	pace atomic.Int64 // nanoseconds to the first byte; 0 before the first answer

	mu       sync.Mutex
	failures int       // in a row
	failedAt time.Time // the last of them
}

// rank is 1 while others are to be tried first.
func (h *health) rank(now time.Time) int {
	if cool := h.cool.Load(); cool != 0 && now.UnixNano() < cool {
		return 1
	}
	return 0
}

const (
	// unknownPace is what a model of which nothing was learned is taken for:
	// it is tried when those that are known are slower.
	unknownPace = 500 * time.Millisecond
	// noPace is that of a model which refused the call that would have told.
	noPace = time.Hour
)

// expected is the time to the first byte, learned from calls.
func (h *health) expected() time.Duration {
	if pace := h.pace.Load(); pace != 0 {
		return time.Duration(pace)
	}
	return unknownPace
}

// begun notes the first byte of an answer: a fifth of the new time counts.
func (h *health) begun(first time.Duration) {
	first = max(first, 1)
	before := time.Duration(h.pace.Load())
	if before != 0 && before != noPace {
		first = before + (first-before)/5
	}
	h.pace.Store(int64(first)) // of two at once one is lost, which does not matter
}

// worked notes an answer that came to its end. A call that began before the
// last failure says nothing of how things are since.
func (h *health) worked(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !began.Before(h.failedAt) {
		h.failures = 0
		h.cool.Store(0)
	}
}

// refused notes a call that the model does not take. It is no failure, but one
// that was only tried to learn of it is not to be tried again for that.
func (h *health) refused() { h.pace.CompareAndSwap(0, int64(noPace)) }

// failed notes a failure. A provider that says when to come back is believed,
// one that does not know our key or the model needs the operator, and others
// may fail a few times.
func (h *health) failed(f *providers.Failure, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures++
	h.failedAt = now
	wait := coolDowns[min(h.failures, len(coolDowns)-1)]
	switch f.Kind {
	case providers.KindAuth, providers.KindNoModel:
		wait = coolDowns[len(coolDowns)-1]
	case providers.KindRateLimited, providers.KindOverloaded:
		wait = max(wait, f.RetryAfter, coolDowns[2])
	}
	h.cool.Store(max(h.cool.Load(), now.Add(min(wait, maxCoolDown)).UnixNano()))
}

// coolDowns is how long a target that failed so often in a row comes last.
var coolDowns = []time.Duration{0, 0, 5 * time.Second, 15 * time.Second, time.Minute}

const maxCoolDown = 10 * time.Minute

// spot is a model at a provider.
type spot struct{ provider, model string }

// healths are those of all models. The ones that providers list are made once;
// where a provider takes any name, callers make up the others, so that they are
// bounded and cannot push the listed ones out.
type healths struct {
	listed map[spot]*health

	mu     sync.Mutex
	others map[spot]*health
}

const maxOthers = 10_000

func (s *healths) of(at spot, now func() time.Time) *health {
	if h := s.listed[at]; h != nil {
		return h
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.others[at]
	if h == nil {
		if len(s.others) >= maxOthers {
			s.makeRoom(now())
		}
		h = &health{}
		s.others[at] = h
	}
	return h
}

// makeRoom forgets those that are not failing, or all if all are.
func (s *healths) makeRoom(now time.Time) {
	for at, h := range s.others {
		if h.rank(now) == 0 {
			delete(s.others, at)
		}
	}
	if len(s.others) >= maxOthers {
		clear(s.others)
	}
}
