package api

import (
	"errors"
	"net/http"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
)

// Rates are the rate limits of requests under /v1, per minute; 0 means no limit.
type Rates struct {
	Key       RequestRates
	Workspace RequestRates // of all its keys, in each environment
	// LiveModelRequests and TestModelRequests are the gateway's default limits for
	// keys.
	LiveModelRequests, TestModelRequests int64
	WorkspaceModelRequests               int64
}

// RequestRates are limits per kind of request.
type RequestRates struct{ Reads, Writes int64 }

type requestKind string

const (
	readRequest  requestKind = "read"
	writeRequest requestKind = "write"
	// modelRequest calls a model, or creates a job or a run that does. The gateway
	// limits them per key; see overflowFactor.
	modelRequest requestKind = "model"
	// forbiddenRequest is rejected by the key's own rules, for example by its
	// addresses. It must not use up the limits of permitted requests.
	forbiddenRequest requestKind = "forbidden"
)

// overflowFactor times its limit of model requests, and at least its limit of
// writes, is how many a key may send before Turnpike rejects them unread. The
// gateway counts only requests with valid bodies, so without this limit invalid
// ones would be unlimited.
const overflowFactor = 2

// kindOf returns how requests other than model requests count.
func kindOf(method string) requestKind {
	if method == http.MethodGet || method == http.MethodHead {
		return readRequest
	}
	return writeRequest
}

// limit counts the request toward the limits of its key, the key's ancestors
// and the workspace. A scoped token's requests count toward its key's.
func (c *Call) limit(kind requestKind) error {
	p, rates := c.Principal, c.Rates
	subject := func(id string, perMinute int64) limits.Subject {
		return limits.Subject{ID: id + "/" + string(kind), Limits: limits.Limits{RequestsPerMinute: perMinute}}
	}
	subjects := make([]limits.Subject, 0, 2+len(p.Ancestors))
	subjects = append(subjects, subject(p.KeyID, rates.ofKey(p.Environment, kind, p.RateLimit)),
		subject(p.Tenant.Path(), rates.ofWorkspace(kind)))
	for _, a := range p.Ancestors {
		subjects = append(subjects, subject(a.KeyID, rates.ofKey(p.Environment, kind, a.RateLimit)))
	}
	ticket, err := c.s.Limiter.BeginAll(subjects, 0, c.s.Now())
	if refusal, ok := errors.AsType[*limits.Refusal](err); ok {
		if kind != modelRequest { // the gateway sets their headers
			refusal.Headers(c.W.Header())
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
		ticket.Headers(c.W.Header())
	}
	return nil
}

// ofKey returns the limit of a key. own is its rate limit, if it has one.
func (r Rates) ofKey(env accounts.Environment, kind requestKind, own *int64) int64 {
	if kind != modelRequest {
		return r.Key.of(kind)
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
	if kind == modelRequest {
		return r.WorkspaceModelRequests
	}
	return r.Workspace.of(kind)
}

func (r RequestRates) of(kind requestKind) int64 {
	if kind == writeRequest {
		return r.Writes
	}
	return r.Reads
}

func rateFault(r *limits.Refusal, kind requestKind, whose string) error {
	f := fault.New(fault.RateLimitExceeded, "%s has reached its limit of %d %s requests per minute. Retry in %s.",
		whose, r.Limit, kind, (r.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond))
	f.RetryAfter = r.RetryAfter
	return f.Because(r)
}

// dropThrottled drops the log entry of a request over a rate limit if the key has
// enough of them in this minute, so that a flood doesn't fill the log. Nothing is
// written before the limiter rejects a request.
func (c *Call) dropThrottled(err error) {
	refused := limits.Refused(err)
	if refused {
		c.content = nil // a flood must not fill the content log either
	}
	if c.record != nil && refused && !c.s.Throttled.Add(c.entry()) {
		c.record = nil
	}
}
