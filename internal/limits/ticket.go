package limits

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Kind is one of the limits.
type Kind string

// The kinds.
const (
	Requests Kind = "requests"
	Tokens   Kind = "tokens"
	InFlight Kind = "in_flight"
)

// placeWait is when to try again for a place in flight: nobody knows when a
// call ends.
const placeWait = time.Second

// State is a limit as its headers show it.
type State struct {
	Limit     int64 // 0 when there is none
	Remaining int64
	Reset     time.Duration // until everything is there again
}

// tighter returns the state with less remaining; a state without a limit never
// is.
func (s State) tighter(other State) State {
	if other.Limit == 0 || s.Limit > 0 && (s.Remaining < other.Remaining || s.Remaining == other.Remaining && s.Reset >= other.Reset) {
		return s
	}
	return other
}

// Ticket is a request that was admitted.
type Ticket struct {
	Requests State // of the subject with the fewest left, at admission
	Tokens   State

	limiter *Limiter
	holds   []hold  // empty when nothing is limited
	inline  [2]hold // saves an allocation for few subjects
}

// hold is what a request has taken from one subject.
type hold struct {
	id     string
	shard  *shard
	entry  *entry
	limits Limits
	tokens int64 // charged

	requestMark, tokenMark   int64 // their marks in the buckets, for returnable
	requestState, tokenState State
	ended                    bool
}

// Adjust corrects the tokens of every subject when their real number is known,
// upward too: then the next requests wait. It may be called again with a better
// number, and not after End.
func (t *Ticket) Adjust(tokens int64, now time.Time) {
	for i := range t.holds {
		h := &t.holds[i]
		if h.limits.TokensPerMinute == 0 {
			continue
		}
		l, at := t.limiter, t.limiter.nanos(now)
		h.shard.mu.Lock()
		var o *order
		if !h.ended {
			o = l.adjust(h.entry, h, max(0, tokens), at)
		}
		h.shard.mu.Unlock()
		l.send(h.shard, h.entry, o)
	}
}

// End frees the request's slots in flight. A second call changes nothing.
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

// Headers tells the caller what is left.
func (t *Ticket) Headers(h http.Header) { rateHeaders(h, t.Requests, t.Tokens) }

// Refusal says which limit is reached, and when to come again. When several
// are, it is the one that takes longest.
type Refusal struct {
	ID         string // of the subject that refused
	Kind       Kind
	Limit      int64
	RetryAfter time.Duration
	Requests   State
	Tokens     State
}

func (r *Refusal) Error() string {
	switch r.Kind {
	case InFlight:
		return fmt.Sprintf("the limit of %d calls in flight is reached", r.Limit)
	default:
		return fmt.Sprintf("the limit of %d %s per minute is reached; the next fits in %s", r.Limit, r.Kind, notation(r.RetryAfter))
	}
}

// Headers tells the caller when to come again.
func (r *Refusal) Headers(h http.Header) {
	rateHeaders(h, r.Requests, r.Tokens)
	h.Set("Retry-After", strconv.FormatInt(int64(max(time.Second, up(r.RetryAfter, time.Second))/time.Second), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(int64(up(r.RetryAfter, time.Millisecond)/time.Millisecond), 10))
}

func rateHeaders(h http.Header, requests, tokens State) {
	if requests.Limit > 0 {
		h.Set("X-Ratelimit-Limit-Requests", strconv.FormatInt(requests.Limit, 10))
		h.Set("X-Ratelimit-Remaining-Requests", strconv.FormatInt(requests.Remaining, 10))
		h.Set("X-Ratelimit-Reset-Requests", notation(requests.Reset))
	}
	if tokens.Limit > 0 {
		h.Set("X-Ratelimit-Limit-Tokens", strconv.FormatInt(tokens.Limit, 10))
		h.Set("X-Ratelimit-Remaining-Tokens", strconv.FormatInt(tokens.Remaining, 10))
		h.Set("X-Ratelimit-Reset-Tokens", notation(tokens.Reset))
	}
}

// notation writes a time as OpenAI's clients read it: 20ms, 1.5s, 6m0s.
func notation(d time.Duration) string { return up(d, time.Millisecond).String() }

// up rounds up, so that whoever waits for that long has waited long enough.
func up(d, unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }
