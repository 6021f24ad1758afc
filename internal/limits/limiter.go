// Package limits enforces requests per minute, tokens per minute and requests
// in flight for each ID.
//
// A single server counts in memory, exactly. Several nodes share each ID's
// buckets through the database: a node leases a small chunk and spends it in
// memory. Most requests don't touch the database, and all nodes together exceed
// a limit by less than 5%. See share.go.
package limits

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

// Limits are the limits of an ID; 0 means unlimited.
type Limits struct {
	RequestsPerMinute int64
	TokensPerMinute   int64
	InFlight          int64
}

// shards is the number of locks that the IDs are spread over. On two busy cores
// a request took 230 ns with 64 locks and 350 ns with one.
const shards = 64

// Limiter enforces the limits of every ID on this node.
type Limiter struct {
	now          func() time.Time
	start        time.Time
	seed         maphash.Seed
	shards       [shards]shard
	StoreTimeout time.Duration // how long a request waits for the store before this node decides alone

	store     *store       // nil with a single server
	nodes     atomic.Int64 // nodes that share the store, as of the last heartbeat
	storeDown atomic.Bool  // the store timed out or failed: this node decides alone
	refusals  *prometheus.CounterVec
}

type shard struct {
	mu      sync.Mutex
	entries map[string]*entry
}

// entry is a recently used ID, guarded by its shard's lock.
type entry struct {
	id       string
	requests bucket // authoritative on a single server, else the store's last reply
	tokens   bucket
	inUse    int64 // requests in flight on this node
	share
}

// New creates a node's limiter. With PostgreSQL, nodes share their limits. The
// caller must call Run.
func New(d *db.DB, node string, now func() time.Time) *Limiter {
	l := newLocal(now)
	if d.Engine() != "sqlite" {
		l.store = newStore(d, node)
	}
	return l
}

func newLocal(now func() time.Time) *Limiter {
	l := &Limiter{now: now, start: now(), seed: maphash.MakeSeed(), StoreTimeout: storeTimeout, refusals: newRefusals()}
	for i := range l.shards {
		l.shards[i].entries = map[string]*entry{}
	}
	l.nodes.Store(1)
	return l
}

// nanos returns the limiter's time. A single server uses the monotonic clock,
// so that changing the system time blocks no key. Nodes use the database's
// clock.
func (l *Limiter) nanos(now time.Time) int64 {
	if l.store == nil {
		return int64(now.Sub(l.start))
	}
	return l.store.db.At(now).UnixNano()
}

func (l *Limiter) shard(id string) *shard {
	return &l.shards[maphash.String(l.seed, id)%shards]
}

// entry returns the ID's entry, and creates it if needed. The shard must be
// locked.
func (s *shard) entry(id string) *entry {
	e := s.entries[id]
	if e == nil {
		e = &entry{id: id}
		s.entries[id] = e
	}
	return e
}

// Subject is an ID with the limits that a request counts toward.
type Subject struct {
	ID     string
	Limits Limits
}

// Begin is BeginAll for one subject.
func (l *Limiter) Begin(id string, limits Limits, tokens int64, now time.Time) (*Ticket, error) {
	return l.BeginAll([]Subject{{ID: id, Limits: limits}}, tokens, now)
}

// BeginAll admits a request under every subject: it takes one request, the
// estimated tokens and one slot from each. If a subject refuses, it takes
// nothing and returns a *Refusal that names the subject. IDs must differ. The
// caller must end the ticket.
//
// BeginAll asks the subjects in order. It locks one shard at a time, so any
// order is safe.
func (l *Limiter) BeginAll(subjects []Subject, tokens int64, now time.Time) (*Ticket, error) {
	t := &Ticket{limiter: l}
	t.holds = t.inline[:0]
	for _, s := range subjects {
		if s.Limits != (Limits{}) {
			t.holds = append(t.holds, hold{id: s.ID, shard: l.shard(s.ID), limits: s.Limits, tokens: max(0, tokens)})
		}
	}
	at := l.nanos(now)
	if len(t.holds) > 1 {
		if r := l.knownRefusal(t.holds, at); r != nil {
			l.refusals.WithLabelValues(string(r.Kind)).Inc()
			return nil, r
		}
	}
	for i := range t.holds {
		h := &t.holds[i]
		if r := l.take(h, at); r != nil {
			l.refusals.WithLabelValues(string(r.Kind)).Inc()
			for j := range t.holds[:i] {
				l.undo(&t.holds[j], at)
			}
			return nil, r
		}
		t.Requests, t.Tokens = t.Requests.tighter(h.states.Requests), t.Tokens.tighter(h.states.Tokens)
	}
	return t, nil
}

// knownRefusal returns the longest refusal that this node knows without asking
// the store, or nil. It keeps refused requests cheap: nothing has to be taken
// from one subject and returned when another refuses.
func (l *Limiter) knownRefusal(holds []hold, at int64) (found *Refusal) {
	for i := range holds {
		h := &holds[i]
		h.shard.mu.Lock()
		if e := h.shard.entries[h.id]; e != nil {
			w := l.waits(e, h, at)
			if w.any() && (!l.shared() || e.recentlyRefused(w, at)) {
				if r := l.refusal(e, h, w, at); found == nil || r.RetryAfter > found.RetryAfter {
					found = r
				}
			}
		}
		h.shard.mu.Unlock()
	}
	return found
}

// take takes what the request needs from one subject, or takes nothing and
// returns the refusal.
func (l *Limiter) take(h *hold, at int64) *Refusal {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(h.id)
	h.entry = e
	e.used = at
	l.noteLimits(e, h.limits)
	w, ok := l.try(e, h, at)
	if !ok {
		w, ok = l.wait(s, e, h, w, at)
	}
	if !ok {
		return l.refusal(e, h, w, at)
	}
	e.inUse++
	return nil
}

func (l *Limiter) undo(h *hold, at int64) {
	h.shard.mu.Lock()
	e := h.entry
	h.ended = true
	e.inUse--
	if h.limits.RequestsPerMinute > 0 {
		l.returnRequest(e, h, at)
	}
	var o *leaseRequest
	if h.limits.TokensPerMinute > 0 {
		o = l.adjust(e, h, 0, at)
	}
	h.shard.mu.Unlock()
	l.send(h.shard, e, o)
}

// returnRequest returns a request to the bucket, or to the node's leased units.
// The shard must be locked.
func (l *Limiter) returnRequest(e *entry, h *hold, at int64) {
	if !l.shared() {
		e.requests.refund(e.requests.refundable(span(l.localLimits(h.limits).RequestsPerMinute, 1), h.requestMark, at))
		return
	}
	if e.leased.requests < maxChunks*l.chunk(h.limits.RequestsPerMinute) {
		e.leased.requests++
	} else {
		e.owed.requests++ // the next lease request or sweep reports it
	}
}

// waits is how long each limit delays a request, in nanoseconds.
type waits struct{ requests, tokens, slot int64 }

func (w waits) any() bool { return w != waits{} }

// waits returns how long each limit delays the request, as far as this node
// knows. The shard must be locked.
func (l *Limiter) waits(e *entry, h *hold, at int64) waits {
	if l.shared() {
		return e.waitsShared(h, at)
	}
	return l.waitsLocal(e, h, at)
}

func (l *Limiter) waitsLocal(e *entry, h *hold, at int64) waits {
	limits := l.localLimits(h.limits)
	w := waits{
		requests: e.requests.wait(limits.RequestsPerMinute, 1, at),
		tokens:   e.tokens.wait(limits.TokensPerMinute, h.tokens, at),
	}
	if limits.InFlight > 0 && e.inUse >= limits.InFlight {
		w.slot = int64(slotRetry)
	}
	return w
}

// try takes the units that the request needs, if all are available. The caller
// takes the slot. The shard must be locked.
func (l *Limiter) try(e *entry, h *hold, at int64) (waits, bool) {
	if l.shared() {
		return e.tryShared(h, at)
	}
	return l.tryLocal(e, h, at)
}

// tryLocal is try without the store.
func (l *Limiter) tryLocal(e *entry, h *hold, at int64) (waits, bool) {
	if w := l.waitsLocal(e, h, at); w.any() {
		return w, false
	}
	limits := l.localLimits(h.limits)
	if limits.RequestsPerMinute > 0 {
		e.requests.charge(limits.RequestsPerMinute, 1, at)
	}
	if limits.TokensPerMinute > 0 {
		e.tokens.charge(limits.TokensPerMinute, h.tokens, at)
	}
	h.requestMark, h.tokenMark = e.requests.mark(), e.tokens.mark()
	h.states = e.states(limits, amounts{}, at)
	return waits{}, true
}

// adjust changes the charge of a request to the given number of tokens. It
// returns a lease request to send, or nil. The shard must be locked.
func (l *Limiter) adjust(e *entry, h *hold, tokens, at int64) *leaseRequest {
	before := h.tokens
	h.tokens = tokens
	if l.shared() {
		return l.adjustShared(e, h, before, at)
	}
	limit := l.localLimits(h.limits).TokensPerMinute
	if tokens > before {
		e.tokens.charge(limit, tokens-before, at)
	} else {
		e.tokens.refund(e.tokens.refundable(span(limit, before)-span(limit, tokens), h.tokenMark, at))
	}
	return nil
}

// refusal returns a refusal by the limit with the longest wait.
func (l *Limiter) refusal(e *entry, h *hold, w waits, at int64) *Refusal {
	limits := h.limits
	r := &Refusal{ID: h.id, Kind: Requests, Limit: limits.RequestsPerMinute}
	longest := w.requests
	if w.tokens > longest {
		r.Kind, r.Limit, longest = Tokens, limits.TokensPerMinute, w.tokens
	}
	if w.slot > longest {
		r.Kind, r.Limit, longest = InFlight, limits.InFlight, w.slot
	}
	r.RetryAfter = time.Duration(longest)
	r.States = e.states(limits, e.leased, at)
	return r
}

// states returns the states for the headers. The leased units count as remaining.
func (e *entry) states(limits Limits, leased amounts, at int64) States {
	return States{e.requests.state(limits.RequestsPerMinute, leased.requests, at), e.tokens.state(limits.TokensPerMinute, leased.tokens, at)}
}
