package limits

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Kind names a limit.
type Kind string

// Kinds of limits.
const (
	Requests Kind = "requests"
	Tokens   Kind = "tokens"
	InFlight Kind = "in_flight"
)

// slotRetry is the Retry-After for a slot, because no one knows when a request
// ends.
const slotRetry = time.Second

// State is a limit as the headers report it.
type State struct {
	Limit     int64 // 0 means unlimited
	Remaining int64
	Reset     time.Duration // until the limit is fully available
}

// tighter returns the state with less remaining. An unlimited state is never
// tighter.
func (s State) tighter(other State) State {
	if other.Limit == 0 || s.Limit > 0 && (s.Remaining < other.Remaining || s.Remaining == other.Remaining && s.Reset >= other.Reset) {
		return s
	}
	return other
}

// States are the states of both rate limits.
type States struct{ Requests, Tokens State }

// Headers sets the rate limit headers.
func (s States) Headers(h http.Header) {
	s.Requests.headers(h, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests")
	s.Tokens.headers(h, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens")
}

func (s State) headers(h http.Header, limit, remaining, reset string) {
	if s.Limit > 0 {
		h.Set(limit, strconv.FormatInt(s.Limit, 10))
		h.Set(remaining, strconv.FormatInt(s.Remaining, 10))
		h.Set(reset, formatDuration(s.Reset))
	}
}

// Ticket is an admitted request.
type Ticket struct {
	States // of the subject with the fewest left, at admission

	limiter *Limiter
	holds   []hold  // empty if nothing is limited
	inline  [2]hold // saves an allocation for up to two subjects
}

// hold is what a request took from one subject.
type hold struct {
	id     string
	shard  *shard
	entry  *entry
	limits Limits
	tokens int64 // charged

	requestMark, tokenMark int64 // positions in the buckets, for refundable
	states                 States
	ended                  bool
}

// Adjust corrects the token count of every subject, up or down. It may be
// called repeatedly, but not after End.
func (t *Ticket) Adjust(tokens int64, now time.Time) {
	for i := range t.holds {
		h := &t.holds[i]
		if h.limits.TokensPerMinute == 0 {
			continue
		}
		l, at := t.limiter, t.limiter.nanos(now)
		h.shard.mu.Lock()
		var o *leaseRequest
		if !h.ended {
			o = l.adjust(h.entry, h, max(0, tokens), at)
		}
		h.shard.mu.Unlock()
		l.send(h.shard, h.entry, o)
	}
}

// Includes reports whether the request counts toward a subject.
func (t *Ticket) Includes(id string) bool {
	return slices.ContainsFunc(t.holds, func(h hold) bool { return h.id == id })
}

// Extend counts an admitted request toward further subjects. If one refuses, it returns a *Refusal and changes
// nothing.
func (t *Ticket) Extend(subjects []Subject, tokens int64, now time.Time) error {
	more, err := t.limiter.BeginAll(subjects, tokens, now)
	if err == nil {
		t.holds = append(t.holds, more.holds...)
	}
	return err
}

// End frees the request's slots. Repeated calls do nothing.
func (t *Ticket) End() {
	for i := range t.holds {
		h := &t.holds[i]
		h.shard.mu.Lock()
		if !h.ended {
			h.ended = true
			h.entry.inUse--
		}
		h.shard.mu.Unlock()
	}
}

// Refusal is the error of a request over a limit. If several limits are
// reached, it names the one with the longest wait.
type Refusal struct {
	ID         string // of the subject that refused
	Kind       Kind
	Limit      int64
	RetryAfter time.Duration
	States
}

// Refused reports whether err is, or wraps, a refusal. Other rate limits are the provider's.
func Refused(err error) bool {
	_, refused := errors.AsType[*Refusal](err)
	return refused
}

func (r *Refusal) Error() string {
	if r.Kind == InFlight {
		return fmt.Sprintf("the limit of %d calls in flight is reached", r.Limit)
	}
	return fmt.Sprintf("the limit of %d %s per minute is reached; the next fits in %s", r.Limit, r.Kind, formatDuration(r.RetryAfter))
}

// Headers sets the rate limit headers and Retry-After.
func (r *Refusal) Headers(h http.Header) {
	r.States.Headers(h)
	h.Set("Retry-After", strconv.FormatInt(int64(max(time.Second, roundUp(r.RetryAfter, time.Second))/time.Second), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(int64(roundUp(r.RetryAfter, time.Millisecond)/time.Millisecond), 10))
}

// formatDuration formats a duration as OpenAI's clients expect it: 20ms, 1.5s,
// 6m0s.
func formatDuration(d time.Duration) string { return roundUp(d, time.Millisecond).String() }

// roundUp rounds up, so that a client that waits this long has waited long
// enough.
func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }
