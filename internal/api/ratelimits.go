package api

import (
	"errors"
	"net/http"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
)

// Rates are the rate limits of requests under /v1, per minute; 0 is no limit.
type Rates struct {
	Key       RequestRates
	Workspace RequestRates // of all its keys, in each environment
	// LiveModelRequests and TestModelRequests are the gateway's limits of keys
	// without one of their own.
	LiveModelRequests, TestModelRequests int64
	WorkspaceModelRequests               int64
}

// RequestRates are limits per kind of request.
type RequestRates struct{ Reads, Writes int64 }

// requestKind is what a request counts as.
type requestKind string

const (
	readRequest  requestKind = "read"
	writeRequest requestKind = "write"
	// modelRequest calls a model, or creates a job or a run that does. The gateway
	// limits them per key; see overflowFactor.
	modelRequest requestKind = "model"
	// forbiddenRequest is one that the key's own rules refuse: sent by someone who
	// has the key and isn't where it may be used. It must not use up the limits of
	// those who are.
	forbiddenRequest requestKind = "forbidden"
)

// overflowFactor is how many times its limit of model requests a key may send,
// and at least as many as writes, before Turnpike refuses them unread. The
// gateway counts a request only after its body was read and found valid, so
// without this bound invalid ones would be unlimited.
const overflowFactor = 2

// kindOf tells how a request counts.
func (s *Server) kindOf(r *http.Request) requestKind {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return readRequest
	case http.MethodPost:
		if _, pattern := s.v1.Handler(r); s.modelPatterns[pattern] {
			return modelRequest
		}
	}
	return writeRequest
}

// limit counts the request toward the limits of its key and its workspace. A
// scoped token's requests count toward its key's.
func (c *Call) limit(kind requestKind) error {
	p, rates := c.Principal, c.s.Rates
	key, workspace := rates.of(p, kind)
	subjects := [2]limits.Subject{
		{ID: p.KeyID + "/" + string(kind), Limits: limits.Limits{RequestsPerMinute: key}},
		{ID: p.WorkspaceID + "/" + string(p.Environment) + "/" + string(kind), Limits: limits.Limits{RequestsPerMinute: workspace}},
	}
	ticket, err := c.s.Limiter.BeginAll(subjects[:], 0, c.s.Now())
	var refusal *limits.Refusal
	if errors.As(err, &refusal) {
		if kind != modelRequest { // whose headers are the gateway's
			refusal.Headers(c.w.Header())
		}
		return rateFault(refusal, kind, refusal.ID == subjects[0].ID)
	}
	if err != nil {
		return err
	}
	ticket.End()
	if kind != modelRequest {
		ticket.Headers(c.w.Header())
	}
	return nil
}

// of returns the limits of a principal's key and of its workspace.
func (r Rates) of(p *access.Principal, kind requestKind) (key, workspace int64) {
	switch kind {
	case readRequest, forbiddenRequest:
		return r.Key.Reads, r.Workspace.Reads
	case writeRequest:
		return r.Key.Writes, r.Workspace.Writes
	}
	key = r.LiveModelRequests
	if p.Environment == accounts.Test {
		key = r.TestModelRequests
	}
	if p.RateLimit != nil {
		key = *p.RateLimit
	}
	if key > 0 {
		key = max(overflowFactor*key, r.Key.Writes)
	}
	return key, r.WorkspaceModelRequests
}

func rateFault(r *limits.Refusal, kind requestKind, ofKey bool) error {
	whose := "workspace"
	if ofKey {
		whose = "key"
	}
	f := fault.New(fault.RateLimitExceeded, "This %s has reached its limit of %d %s requests per minute. Retry in %s.",
		whose, r.Limit, kind, (r.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond))
	f.RetryAfter = r.RetryAfter
	return f.Because(r)
}

// throttled drops the log entry of a request over a rate limit, if the key has
// had enough of them in this minute: a flood must not fill the log. The
// limiter refuses before anything is written.
func (c *Call) throttled(err error) {
	var refusal *limits.Refusal
	if c.record != nil && errors.As(err, &refusal) && !c.s.Throttled.Add(c.entry()) {
		c.record = nil
	}
}
