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

// Begin lets a call in: one request, its tokens as estimated, and one place in
// flight, or none of them and a *Refusal. The ticket must be ended.
func (l *Limiter) Begin(id string, limits Limits, tokens int64, now time.Time) (*Ticket, error) {
	if limits == (Limits{}) {
		return &Ticket{}, nil
	}
	s := l.shard(id)
	t := &Ticket{limiter: l, shard: s, limits: limits, tokens: max(0, tokens)}
	at := l.nanos(now)
	s.mu.Lock()
	e := s.entry(id)
	t.entry = e
	e.used = at
	l.under(e, limits)
	w, ok := l.try(e, t, at)
	if !ok {
		w, ok = l.wait(s, e, t, w, at)
	}
	if ok {
		e.inUse++
		s.mu.Unlock()
		return t, nil
	}
	r := l.refusal(e, t, w, at)
	s.mu.Unlock()
	return nil, r
}

// waits is how long each limit keeps a call waiting.
type waits struct{ requests, tokens, place int64 }

func (w waits) any() bool { return w != waits{} }

// try takes what the call needs if all of it is there, but for the place, which
// is the caller's to take. The shard's lock is held.
func (l *Limiter) try(e *entry, t *Ticket, at int64) (waits, bool) {
	if l.shared() {
		return e.tryShared(t, at)
	}
	return l.tryOwn(e, t, at)
}

// tryOwn is try without the store.
func (l *Limiter) tryOwn(e *entry, t *Ticket, at int64) (waits, bool) {
	limits := l.own(t.limits)
	w := waits{
		requests: e.requests.wait(limits.RequestsPerMinute, 1, at),
		tokens:   e.tokens.wait(limits.TokensPerMinute, t.tokens, at),
	}
	if limits.InFlight > 0 && e.inUse >= limits.InFlight {
		w.place = int64(placeWait)
	}
	if w.any() {
		return w, false
	}
	if limits.RequestsPerMinute > 0 {
		e.requests.charge(limits.RequestsPerMinute, 1, at)
	}
	if limits.TokensPerMinute > 0 {
		e.tokens.charge(limits.TokensPerMinute, t.tokens, at)
	}
	t.mark = e.tokens.mark()
	t.Requests, t.Tokens = e.requests.state(limits.RequestsPerMinute, 0, at), e.tokens.state(limits.TokensPerMinute, 0, at)
	return waits{}, true
}

// adjust charges the bucket as if the call had come with so many tokens. It
// returns what the store must hear, if anything. The shard's lock is held.
func (l *Limiter) adjust(e *entry, t *Ticket, tokens, at int64) *order {
	before := t.tokens
	t.tokens = tokens
	if l.shared() {
		return l.adjustShared(e, t, before, at)
	}
	limit := l.own(t.limits).TokensPerMinute
	if tokens > before {
		e.tokens.charge(limit, tokens-before, at)
	} else {
		e.tokens.giveBack(e.tokens.returnable(span(limit, before)-span(limit, tokens), t.mark, at))
	}
	return nil
}

// refusal names the limit that keeps the call waiting longest.
func (l *Limiter) refusal(e *entry, t *Ticket, w waits, at int64) *Refusal {
	limits := t.limits
	r := &Refusal{Kind: Requests, Limit: limits.RequestsPerMinute}
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
