// Package limits bounds how often and how much a key may call: requests and
// tokens per minute and calls in flight. It takes ids, not principals.
//
// One server counts in memory, exactly. Several share each id's buckets through
// the store: a node leases a small chunk ahead and spends it in memory, so most
// calls do not touch the store, and together they exceed a limit by less than
// 5 %. See share.go.
package limits

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/db"
)

// Limits are what an id may do; 0 is no limit.
type Limits struct {
	RequestsPerMinute int64
	TokensPerMinute   int64
	InFlight          int64
}

// shards is how many locks the ids are spread over. On two busy cores a call
// took 230 ns with them and 350 ns with one lock.
const shards = 64

// Limiter is this node's view of every id's limits.
type Limiter struct {
	now      func() time.Time
	start    time.Time
	seed     maphash.Seed
	shards   [shards]shard
	patience time.Duration // how long a call waits for the store

	store *store       // nil when there is one server
	nodes atomic.Int64 // how many share the store, as far as is known
	away  atomic.Bool  // the store did not answer: this node decides alone
}

type shard struct {
	mu      sync.Mutex
	entries map[string]*entry
}

// entry is an id that was used lately. Its shard's lock guards it.
type entry struct {
	id       string
	requests bucket // the truth on one server, else as the store last said
	tokens   bucket
	inUse    int64 // calls in flight here
	share
}

// New makes a limiter for a node. Several share their limits when the database
// can have several servers. Run keeps it, and ends it.
func New(d *db.DB, node string, now func() time.Time) *Limiter {
	l := alone(now)
	if d.Engine() != "sqlite" {
		l.store = newStore(d, node)
	}
	return l
}

func alone(now func() time.Time) *Limiter {
	l := &Limiter{now: now, start: now(), seed: maphash.MakeSeed(), patience: storePatience}
	for i := range l.shards {
		l.shards[i].entries = map[string]*entry{}
	}
	l.nodes.Store(1)
	return l
}

// nanos is the limiter's clock. Alone it goes by the monotonic one, so that
// setting the time closes no bucket; nodes go by the database's.
func (l *Limiter) nanos(now time.Time) int64 {
	if l.store == nil {
		return int64(now.Sub(l.start))
	}
	return l.store.db.At(now).UnixNano()
}

func (l *Limiter) shard(id string) *shard {
	return &l.shards[maphash.String(l.seed, id)%shards]
}

// entry finds or makes the id's. The lock is held.
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

// BeginAll admits a request under every subject: from each it takes one
// request, the estimated tokens and one slot in flight. If a subject refuses,
// nothing is taken from any, and the error is a *Refusal that names the
// subject. IDs must differ. The ticket must be ended.
//
// Subjects are asked in the given order. Only one shard is locked at a time, so
// callers may use any order.
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
			return nil, r
		}
	}
	for i := range t.holds {
		h := &t.holds[i]
		if r := l.take(h, at); r != nil {
			for j := range t.holds[:i] {
				l.undo(&t.holds[j], at)
			}
			return nil, r
		}
		t.Requests, t.Tokens = t.Requests.tighter(h.requestState), t.Tokens.tighter(h.tokenState)
	}
	return t, nil
}

// knownRefusal returns the longest-lasting refusal that this node can tell
// without taking anything or asking the store, or nil. It keeps a refused
// request cheap: nothing has to be taken from one subject to be returned when
// another refuses.
func (l *Limiter) knownRefusal(holds []hold, at int64) (found *Refusal) {
	for i := range holds {
		h := &holds[i]
		h.shard.mu.Lock()
		if e := h.shard.entries[h.id]; e != nil {
			w := l.waits(e, h, at)
			if w.any() && (!l.shared() || e.known(w, at)) {
				if r := l.refusal(e, h, w, at); found == nil || r.RetryAfter > found.RetryAfter {
					found = r
				}
			}
		}
		h.shard.mu.Unlock()
	}
	return found
}

// take takes what the request needs from one subject, or nothing and returns
// why.
func (l *Limiter) take(h *hold, at int64) *Refusal {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(h.id)
	h.entry = e
	e.used = at
	l.under(e, h.limits)
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

// undo returns what take took.
func (l *Limiter) undo(h *hold, at int64) {
	h.shard.mu.Lock()
	e := h.entry
	h.ended = true
	e.inUse--
	if h.limits.RequestsPerMinute > 0 {
		l.returnRequest(e, h, at)
	}
	var o *order
	if h.limits.TokensPerMinute > 0 {
		o = l.adjust(e, h, 0, at)
	}
	h.shard.mu.Unlock()
	l.send(h.shard, e, o)
}

// returnRequest returns a request to the bucket, or to what the node has in
// hand. The shard's lock is held.
func (l *Limiter) returnRequest(e *entry, h *hold, at int64) {
	if !l.shared() {
		e.requests.giveBack(e.requests.returnable(span(l.own(h.limits).RequestsPerMinute, 1), h.requestMark, at))
		return
	}
	if e.have.requests < maxChunks*l.chunk(h.limits.RequestsPerMinute) {
		e.have.requests++
	} else {
		e.owed.requests++ // the next order tells the store, or the next sweep
	}
}

// waits is how long each limit keeps a call waiting.
type waits struct{ requests, tokens, place int64 }

func (w waits) any() bool { return w != waits{} }

// waits is how long each limit keeps the request waiting, as far as this node
// knows. The shard's lock is held.
func (l *Limiter) waits(e *entry, h *hold, at int64) waits {
	if l.shared() {
		return e.waitsShared(h, at)
	}
	return l.waitsOwn(e, h, at)
}

func (l *Limiter) waitsOwn(e *entry, h *hold, at int64) waits {
	limits := l.own(h.limits)
	w := waits{
		requests: e.requests.wait(limits.RequestsPerMinute, 1, at),
		tokens:   e.tokens.wait(limits.TokensPerMinute, h.tokens, at),
	}
	if limits.InFlight > 0 && e.inUse >= limits.InFlight {
		w.place = int64(placeWait)
	}
	return w
}

// try takes what the call needs if all of it is there, but for the place, which
// is the caller's to take. The shard's lock is held.
func (l *Limiter) try(e *entry, h *hold, at int64) (waits, bool) {
	if l.shared() {
		return e.tryShared(h, at)
	}
	return l.tryOwn(e, h, at)
}

// tryOwn is try without the store.
func (l *Limiter) tryOwn(e *entry, h *hold, at int64) (waits, bool) {
	if w := l.waitsOwn(e, h, at); w.any() {
		return w, false
	}
	limits := l.own(h.limits)
	if limits.RequestsPerMinute > 0 {
		e.requests.charge(limits.RequestsPerMinute, 1, at)
	}
	if limits.TokensPerMinute > 0 {
		e.tokens.charge(limits.TokensPerMinute, h.tokens, at)
	}
	h.requestMark, h.tokenMark = e.requests.mark(), e.tokens.mark()
	h.requestState, h.tokenState = e.requests.state(limits.RequestsPerMinute, 0, at), e.tokens.state(limits.TokensPerMinute, 0, at)
	return waits{}, true
}

// adjust charges the bucket as if the call had come with so many tokens. It
// returns what the store must hear, if anything. The shard's lock is held.
func (l *Limiter) adjust(e *entry, h *hold, tokens, at int64) *order {
	before := h.tokens
	h.tokens = tokens
	if l.shared() {
		return l.adjustShared(e, h, before, at)
	}
	limit := l.own(h.limits).TokensPerMinute
	if tokens > before {
		e.tokens.charge(limit, tokens-before, at)
	} else {
		e.tokens.giveBack(e.tokens.returnable(span(limit, before)-span(limit, tokens), h.tokenMark, at))
	}
	return nil
}

// refusal names the limit that keeps the call waiting longest.
func (l *Limiter) refusal(e *entry, h *hold, w waits, at int64) *Refusal {
	limits := h.limits
	r := &Refusal{ID: h.id, Kind: Requests, Limit: limits.RequestsPerMinute}
	longest := w.requests
	if w.tokens > longest {
		r.Kind, r.Limit, longest = Tokens, limits.TokensPerMinute, w.tokens
	}
	if w.place > longest {
		r.Kind, r.Limit, longest = InFlight, limits.InFlight, w.place
	}
	r.RetryAfter = time.Duration(longest)
	r.Requests = e.requests.state(limits.RequestsPerMinute, e.have.requests, at)
	r.Tokens = e.tokens.state(limits.TokensPerMinute, e.have.tokens, at)
	return r
}
