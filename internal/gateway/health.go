package gateway

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// health is how reliable and fast a model at a provider was recently, as this node saw it.
type health struct {
	listed bool // the catalog or the operator lists the model

	coolsUntil atomic.Int64 // other targets come first until then, in Unix nanoseconds
	latency    atomic.Int64 // average nanoseconds to the first byte; 0 before the first response

	responses atomic.Uint32                // how many there were
	recent    [keptLatencies]atomic.Uint32 // microseconds to the first byte of the last of them, as a ring

	mu       sync.Mutex
	failures int               // in a row
	since    time.Time         // the first of them
	failedAt time.Time         // the last of them
	failure  providers.Failure // the last one, without its cause
}

// keptLatencies is how many responses of a model the statistics of its provider include.
const keptLatencies = 64

func (h *health) rank(now time.Time) int {
	if until := h.coolsUntil.Load(); until != 0 && now.UnixNano() < until {
		return 1
	}
	return 0
}

const (
	// assumedLatency is the latency of a model before its first call, so that it is tried when
	// the known ones are slower.
	assumedLatency = 500 * time.Millisecond
	// latencyUnknown marks a model that rejected its first call, so that it is not tried again
	// just to measure it.
	latencyUnknown = time.Hour
)

func (h *health) expectedLatency() time.Duration {
	if latency := h.latency.Load(); latency != 0 {
		return time.Duration(latency)
	}
	return assumedLatency
}

// recordFirstByte updates the average latency with a weight of one fifth.
func (h *health) recordFirstByte(took time.Duration) {
	took = max(took, 1)
	measured := took
	before := time.Duration(h.latency.Load())
	if before != 0 && before != latencyUnknown {
		took = before + (took-before)/5
	}
	h.latency.Store(int64(took))                                                                               // a lost concurrent update doesn't matter
	h.recent[(h.responses.Add(1)-1)%keptLatencies].Store(uint32(min(measured.Microseconds(), math.MaxUint32))) //nolint:gosec // within its range
}

// recordSuccess ends the cooldown, unless the target failed after the call had started.
func (h *health) recordSuccess(started time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !started.Before(h.failedAt) {
		h.failures = 0
		h.coolsUntil.Store(0)
	}
}

// recordRejection notes that the model rejected a request, which is not a failure.
func (h *health) recordRejection() { h.latency.CompareAndSwap(0, int64(latencyUnknown)) }

// recordFailure starts a cooldown after several failures in a row. A Retry-After is followed,
// and an unknown key or model cools down for longest, because an operator has to fix it.
func (h *health) recordFailure(f *providers.Failure, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == 0 {
		h.since = now
	}
	h.failures++
	h.failedAt = now
	h.failure = providers.Failure{Kind: f.Kind, Status: f.Status}
	wait := cooldowns[min(h.failures, len(cooldowns)-1)]
	switch f.Kind {
	case providers.KindAuth, providers.KindNoModel:
		wait = cooldowns[len(cooldowns)-1]
	case providers.KindRateLimited, providers.KindOverloaded:
		wait = max(wait, f.RetryAfter, cooldowns[2])
	}
	h.coolsUntil.Store(max(h.coolsUntil.Load(), now.Add(min(wait, maxCooldown)).UnixNano()))
}

var cooldowns = []time.Duration{0, 0, 5 * time.Second, 15 * time.Second, time.Minute}

const maxCooldown = 10 * time.Minute

// FailingModel is a model at a provider that failed several times in a row, or that the router
// avoids, as this node saw it.
type FailingModel struct {
	Provider string
	Model    string
	Failures int
	Since    time.Time // of the first failure
}

// failingAfter is how many failures in a row make a model failing.
const failingAfter = 3

// Failing returns the failing models, by provider and name.
func (g *Gateway) Failing() []FailingModel {
	now := g.Now()
	var out []FailingModel
	g.current.Load().health.each(func(key modelKey, h *health) {
		if h.rank(now) > 0 || h.failures >= failingAfter && now.Sub(h.failedAt) < maxCooldown {
			out = append(out, FailingModel{key.provider, key.model, h.failures, h.since})
		}
	})
	slices.SortFunc(out, func(a, b FailingModel) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Model, b.Model))
	})
	return out
}

// ProviderStats is how a provider's models responded recently, as this node saw it. Latencies are the time to the
// first byte of the last responses of each model.
type ProviderStats struct {
	Responses int
	P50, P95  time.Duration
	LastError *ProviderError // nil if there was none since the node started
}

// ProviderError is a failure of a provider. It has none of the provider's words, which may quote a customer's
// request or an API key.
type ProviderError struct {
	At      time.Time
	Model   string // empty for a name that a client may have invented
	Status  int    // of the response, or 0
	Message string
}

// ProviderStats returns the statistics of each provider that was called.
func (g *Gateway) ProviderStats() map[string]ProviderStats {
	out := map[string]ProviderStats{}
	took := map[string][]uint32{}
	g.current.Load().health.each(func(key modelKey, h *health) {
		for i := range min(h.responses.Load(), keptLatencies) {
			took[key.provider] = append(took[key.provider], h.recent[i].Load())
		}
		if s := out[key.provider]; !h.failedAt.IsZero() && (s.LastError == nil || h.failedAt.After(s.LastError.At)) {
			s.LastError = &ProviderError{At: h.failedAt, Status: h.failure.Status, Message: describeFailure(&h.failure)}
			if h.listed {
				s.LastError.Model = key.model
			}
			out[key.provider] = s
		}
	})
	for name, list := range took {
		slices.Sort(list)
		at := func(percent int) time.Duration {
			return time.Duration(list[(len(list)-1)*percent/100]) * time.Microsecond
		}
		s := out[name]
		s.Responses, s.P50, s.P95 = len(list), at(50), at(95)
		out[name] = s
	}
	return out
}

// describeFailure returns the message that clients get for a failure.
func describeFailure(f *providers.Failure) string {
	said, _ := fault.As(upstreamFault(f)) // of a Failure it always is
	return said.Message
}

type modelKey struct{ provider, model string }

// healthTable holds the health of all models. Listed models are created once. Clients can
// invent the names of others where a provider accepts any, so those are limited in number and
// never evict listed ones.
type healthTable struct {
	listed map[modelKey]*health

	mu       sync.Mutex
	unlisted map[modelKey]*health
}

const maxUnlisted = 10_000

func (t *healthTable) get(key modelKey, now func() time.Time) *health {
	if h := t.listed[key]; h != nil {
		return h
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.unlisted[key]
	if h == nil {
		if len(t.unlisted) >= maxUnlisted {
			t.evict(now())
		}
		h = &health{}
		t.unlisted[key] = h
	}
	return h
}

// each calls fn for every model, with its lock held.
func (t *healthTable) each(fn func(modelKey, *health)) {
	all := func(list map[modelKey]*health) {
		for key, h := range list {
			h.mu.Lock()
			fn(key, h)
			h.mu.Unlock()
		}
	}
	all(t.listed)
	t.mu.Lock()
	defer t.mu.Unlock()
	all(t.unlisted)
}

// keep takes over the health of models of these providers.
func (t *healthTable) keep(before *healthTable, providers []string) {
	for key, h := range before.listed {
		if t.listed[key] != nil && slices.Contains(providers, key.provider) {
			t.listed[key] = h
		}
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	for key, h := range before.unlisted {
		if t.listed[key] == nil && slices.Contains(providers, key.provider) {
			t.unlisted[key] = h
		}
	}
}

// evict drops the unlisted models that are not cooling down, or all if all are.
func (t *healthTable) evict(now time.Time) {
	for key, h := range t.unlisted {
		if h.rank(now) == 0 {
			delete(t.unlisted, key)
		}
	}
	if len(t.unlisted) >= maxUnlisted {
		clear(t.unlisted)
	}
}
