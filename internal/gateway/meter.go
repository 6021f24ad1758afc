package gateway

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// meter turns what a call used into the log's figures, and ends its
// reservation by them.
type meter struct {
	record   *audit.Record
	ticket   *limits.Ticket
	inFlight *atomic.Int64      // one less when it ends
	later    func(func())       // nil for at once
	hold     *spend.Reservation // nil for a test call
	target   target             // that answered, or was tried last
	output   int64              // tokens of one choice that it was told
	asked    bool               // it has the call, and did not say that it failed
	settled  bool               // what the call used is noted
	started  time.Time
	began    time.Time // at the target
	now      func() time.Time

	seen    Observation
	observe func(Observation) // nil for nobody
}

// settle notes what the call used, and returns what it is charged. It may be
// called again with better figures. Test calls are free: what they would have
// cost stands beside the zero.
func (m *meter) settle(u providers.Usage, source string, r *request) (charged credits.Micro) {
	m.settled = true
	u = sane(u)
	if source != audit.UsageProvider {
		u = r.completed(u)
	}
	cost := m.target.offer.Cost(unitsOf(u))
	var unbilled credits.Micro
	if m.hold != nil {
		charged = min(cost, m.hold.Amount)
		unbilled = cost - charged
	}
	m.seen.Input, m.seen.Output, m.seen.Credits = u.InputTokens, u.OutputTokens, charged
	now := m.now()
	// No nonsense of a provider's closes the key.
	m.ticket.Adjust(min(u.InputTokens+u.OutputTokens, r.inputBound+r.choices*m.output), now)
	m.record.Note(func(e *audit.Entry) {
		e.InputTokens, e.OutputTokens, e.CachedTokens = &u.InputTokens, &u.OutputTokens, nil
		if u.CachedInput > 0 {
			e.CachedTokens = &u.CachedInput
		}
		e.UsageSource = source
		e.Upstream = now.Sub(m.started)
		e.Credits, e.UnbilledCredits = charged, unbilled
		if m.hold == nil {
			e.SimulatedCredits = cost
		}
	})
	return charged
}

// sane keeps nonsense out of the log and its sums.
func sane(u providers.Usage) providers.Usage {
	const most = 1 << 40
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CachedInput, &u.CacheWrite} {
		*n = min(max(0, *n), most)
	}
	return u
}

// usualPicture is the tokens of a picture whose provider does not count them:
// what a common one of a megapixel has.
const usualPicture = 1_290

// withPictures estimates the tokens of pictures that are sold by them, if the
// provider has not counted.
func (t target) withPictures(u providers.Usage) providers.Usage {
	if u.Images > 0 && u.OutputTokens <= 0 && t.offer.Price.PerImage == 0 {
		u.OutputTokens, u.Estimated = u.Images*usualPicture, true
	}
	return u
}

// plain settles an answer in one piece.
func (m *meter) plain(a *providers.Answer, r *request) credits.Micro {
	m.target.health.worked(m.began)
	u, source := m.target.withPictures(a.Usage), audit.UsageProvider
	if r.choices > 0 && u.OutputTokens <= 0 {
		if u.OutputTokens = saidIn(a.Body); u.OutputTokens > 0 { // else there is none: a refusal, say
			source = audit.UsageEstimated
		}
	}
	if u.InputTokens <= 0 || u.Estimated { // no call has none
		source = audit.UsageEstimated
	}
	return m.settle(u, source, r)
}

// counted settles a stream by the provider's own count. One that says zero
// where it has sent something has not counted.
func (m *meter) counted(u, sent providers.Usage, r *request) credits.Micro {
	source := audit.UsageProvider
	if u.OutputTokens <= 0 && sent.OutputTokens > 0 {
		u.OutputTokens, source = sent.OutputTokens, audit.UsageEstimated
	}
	if u.InputTokens <= 0 || u.Estimated {
		source = audit.UsageEstimated
	}
	return m.settle(u, source, r)
}

// failed notes a call without an answer. One whose client left while a provider
// had it has cost its input; what was produced of a plain answer is not known.
func (m *meter) failed(err error, r *request) {
	m.broke(err)
	if m.asked && m.hold != nil && errors.Is(err, context.Canceled) {
		m.settle(providers.Usage{}, audit.UsagePartial, r)
		return
	}
	m.record.Note(func(e *audit.Entry) { e.Upstream = m.now().Sub(m.started) })
}

// end frees the call's place, and gives back the tokens of one that used none.
// Whoever watches the server is told later, so that no caller waits for it.
func (m *meter) end() {
	if !m.settled {
		m.ticket.Adjust(0, m.now())
	}
	m.ticket.End()
	m.seen.Duration = m.now().Sub(m.started)
	if m.later != nil {
		m.later(m.tell)
		return
	}
	m.tell()
}

func (m *meter) tell() {
	defer m.inFlight.Add(-1)
	if m.observe == nil {
		return
	}
	m.seen.Provider, m.seen.Model = m.target.provider.Name(), m.target.offer.ID
	m.seen.Known = m.target.offer.Kind != "" || m.target.health.listed
	m.seen.Started = m.started
	m.observe(m.seen)
}

// broke notes why a call failed, for whoever watches the server.
func (m *meter) broke(err error) {
	m.seen.Failure = "client_left"
	if f, ok := fault.As(err); ok {
		m.seen.Failure = string(f.Code)
	}
}

// unlogged notes a call that was not made, because it could not be recorded.
func (m *meter) unlogged() { m.seen.Failure = string(fault.StorageUnavailable) }

// failedAt notes a provider that failed after it had begun its answer.
func (m *meter) failedAt(f *providers.Failure) {
	now := m.now()
	m.target.health.failed(f, now)
	m.seen.Attempts = append(m.seen.Attempts, Attempt{m.target.provider.Name(), m.target.offer.ID, string(f.Kind), f.Status, now.Sub(m.began).Milliseconds()})
}

// outputRoom is after how many output tokens a stream is over because it has
// used up what was reserved for it; 0 for never. That is twice what the
// provider was told: it keeps to its limit by its own count, and ours may be an
// estimate that must not cut an answer short which is within it. So only one
// that does not keep to it is cut.
func (m *meter) outputRoom(r *request) int64 {
	if m.hold == nil || m.target.offer.Price.Output == 0 {
		return 0
	}
	rest := max(0, m.hold.Amount-upperBound(m.target, r.inputBound, 0))
	return 2 * max(1, int64(min(rest, 1<<40))*1_000_000/int64(m.target.offer.Price.Output))
}
