package gateway

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// meter turns what a call used into the log's figures, and ends its
// reservation by them.
type meter struct {
	record    *audit.Record
	ticket    *limits.Ticket
	hold      *spend.Reservation // nil for a test call
	target    target             // that answered, or was tried last
	choices   int64
	started   time.Time
	firstByte time.Duration
	now       func() time.Time
}

// settle notes what the call used, and returns what it is charged. Test calls
// are free: what they would have cost stands beside the zero.
func (m *meter) settle(u providers.Usage, source string, r *request) (charged credits.Micro) {
	if u.InputTokens == 0 && source != audit.UsageProvider {
		u.InputTokens = r.inputBound / 4 // about four bytes are a token
	}
	cost := m.target.offer.Price.Cost(catalog.Tokens{Input: u.InputTokens, Output: u.OutputTokens, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite})
	var unbilled credits.Micro
	if m.hold != nil {
		charged = min(cost, m.hold.Amount)
		unbilled = cost - charged
	}
	m.ticket.Adjust(u.InputTokens+u.OutputTokens, m.now())
	m.record.Note(func(e *audit.Entry) {
		e.InputTokens, e.OutputTokens = &u.InputTokens, &u.OutputTokens
		if u.CachedInput > 0 {
			e.CachedTokens = &u.CachedInput
		}
		e.UsageSource = source
		e.Upstream = m.now().Sub(m.started)
		e.Credits, e.UnbilledCredits = charged, unbilled
		if m.hold == nil {
			e.SimulatedCredits = cost
		}
	})
	return charged
}

// plain settles an answer in one piece.
func (m *meter) plain(a *providers.Answer, r *request) credits.Micro {
	u := a.Usage
	if u.InputTokens == 0 && u.OutputTokens == 0 && m.hold != nil {
		u.OutputTokens = int64(len(a.Body)+3) / 4
		return m.settle(u, audit.UsageEstimated, r)
	}
	return m.settle(u, audit.UsageProvider, r)
}

// source is how the usage of a stream came to be known. A provider that says
// zero where it has sent something has not counted.
func (m *meter) source(u providers.Usage, r *request, sent providers.Usage) string {
	if u.InputTokens == 0 && (u.OutputTokens == 0 || sent.OutputTokens > 0) && m.hold != nil {
		return audit.UsageEstimated
	}
	return audit.UsageProvider
}

// failed notes a call without an answer. One whose client left has cost its
// input; what was produced of a plain answer is not known.
func (m *meter) failed(err error, r *request) {
	if errors.Is(err, context.Canceled) && m.hold != nil {
		m.settle(providers.Usage{}, audit.UsagePartial, r)
		return
	}
	m.ticket.Adjust(0, m.now())
	m.record.Note(func(e *audit.Entry) { e.Upstream = m.now().Sub(m.started) })
}

// begun notes when the first piece of an answer was there.
func (m *meter) begun() {}

// outputRoom is after how many output tokens a stream has used up what was
// reserved for it; 0 for never.
func (m *meter) outputRoom(r *request) int64 {
	if m.hold == nil || m.target.offer.Price.Output == 0 {
		return 0
	}
	rest := m.hold.Amount - upperBound(m.target, r.inputBound, 0)
	return max(1, int64(min(rest, 1<<40))*1_000_000/int64(m.target.offer.Price.Output))
}
