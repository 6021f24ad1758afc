package api

import (
	"errors"
	"net/http"
	"time"

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

// limit counts the request toward the limits of its key, the key's ancestors
// and the workspace. A scoped token's requests count toward its key's.
func (c *Call) limit(kind requestKind) error {
	p, rates := c.Principal, c.s.Rates
	subject := func(id string, perMinute int64) limits.Subject {
		return limits.Subject{ID: id + "/" + string(kind), Limits: limits.Limits{RequestsPerMinute: perMinute}}
	}
	subjects := make([]limits.Subject, 0, 2+len(p.Ancestors))
	subjects = append(subjects, subject(p.KeyID, rates.ofKey(p.Environment, kind, p.RateLimit)),
		subject(p.WorkspaceID+"/"+string(p.Environment), rates.ofWorkspace(kind)))
	for _, a := range p.Ancestors {
		subjects = append(subjects, subject(a.KeyID, rates.ofKey(p.Environment, kind, a.RateLimit)))
	}
	ticket, err := c.s.Limiter.BeginAll(subjects, 0, c.s.Now())
	var refusal *limits.Refusal
	if errors.As(err, &refusal) {
		if kind != modelRequest { // whose headers are the gateway's
			refusal.Headers(c.w.Header())
		}
		whose := "A key that created this key"
		switch refusal.ID {
		case subjects[0].ID:
			whose = "This key"
		case subjects[1].ID:
			whose = "This workspace"
		}
		return rateFault(refusal, kind, whose)
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

// ofKey returns the limit of a key whose own rate limit may be set.
func (r Rates) ofKey(env accounts.Environment, kind requestKind, own *int64) int64 {
	switch kind {
	case readRequest, forbiddenRequest:
		return r.Key.Reads
	case writeRequest:
		return r.Key.Writes
	}
	limit := r.LiveModelRequests
	if env == accounts.Test {
		limit = r.TestModelRequests
	}
	if own != nil {
		limit = *own
	}
	if limit > 0 {
		limit = max(overflowFactor*limit, r.Key.Writes)
	}
	return limit
}

func (r Rates) ofWorkspace(kind requestKind) int64 {
	switch kind {
	case readRequest, forbiddenRequest:
		return r.Workspace.Reads
	case writeRequest:
		return r.Workspace.Writes
	}
	return r.WorkspaceModelRequests
}

func rateFault(r *limits.Refusal, kind requestKind, whose string) error {
	f := fault.New(fault.RateLimitExceeded, "%s has reached its limit of %d %s requests per minute. Retry in %s.",
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
