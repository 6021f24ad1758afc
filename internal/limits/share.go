package limits

import (
	"time"
)

// How nodes share a limit. The bucket of an id is a row of the store. A node
// that needs units takes some more than it needs out of it, and spends them in
// memory; places in flight are taken in the same way and kept. What is taken
// counts as used, so that at any time all nodes together can be ahead of the
// bucket by what they have in hand, and behind by what others have:
//
//	chunk  = limit / 64 / nodes, what is taken beyond the need
//	inHand ≤ 2 × chunk on each node, so ≤ limit / 32 = 3.1 % on all
//
// Limits below 64 × nodes have no chunks: every call asks, and nothing is in
// hand. A node alone at full speed asks 64 times a minute; one that is refused
// asks ten times a second at most, and gets what has come together meanwhile.
const (
	chunksPerLimit = 64
	maxChunks      = 2

	// askPause is how long an answer that was no is not doubted.
	askPause = int64(100 * time.Millisecond)

	// storePatience is how long a call waits for the store: a lease takes about a
	// millisecond. After that the node decides alone.
	storePatience = 250 * time.Millisecond
)

// amounts is a number of each.
type amounts struct{ requests, tokens, places int64 }

func (a amounts) plus(b amounts) amounts {
	return amounts{a.requests + b.requests, a.tokens + b.tokens, a.places + b.places}
}

func (a amounts) minus(b amounts) amounts {
	return amounts{a.requests - b.requests, a.tokens - b.tokens, a.places - b.places}
}

// share is what a node has of an id's limits.
type share struct {
	limits  Limits  // as calls last had them, of each kind
	have    amounts // leased: units that are not spent, places whether in use or not
	room    int64   // places that nobody had, as the store last said
	owed    amounts // requests and tokens for the store: more than is kept in hand, or a debt of tokens
	waiting amounts // needed by calls that wait for the order
	order   *order  // on its way; one at a time, so that answers come in order
	refused int64   // when the store last said no
	used    int64   // when a call last came
	unsure  bool    // the store may think that it has other places
}

// order is what a node has to tell the store about an id, and its answer.
type order struct {
	id     string
	at     int64
	limits Limits
	back   amounts // requests and tokens given back, or a debt of tokens
	places int64   // held
	moved  bool    // they are fewer than the store knows, or may be
	need   amounts // all of it or nothing; nothing when the node only tells
	want   amounts // not less than what is needed

	granted  amounts
	refused  bool
	room     int64 // only when places are needed
	requests bucket
	tokens   bucket
	done     chan struct{}
}

// under notes the limits of a call. One that has none of a kind, as a run's step
// has none of requests, says nothing about those of the others. What is in hand
// of a higher limit can be more than a lower one allows, and is let go.
func (l *Limiter) under(e *entry, limits Limits) {
	note := func(last, have *int64, limit int64) {
		if limit == 0 {
			return
		}
		if limit < *last {
			*have = min(*have, l.chunk(limit))
		}
		*last = limit
	}
	note(&e.limits.RequestsPerMinute, &e.have.requests, limits.RequestsPerMinute)
	note(&e.limits.TokensPerMinute, &e.have.tokens, limits.TokensPerMinute)
	if limits.InFlight > 0 {
		e.limits.InFlight = limits.InFlight
	}
}

// shared reports whether the store decides.
func (l *Limiter) shared() bool { return l.store != nil && !l.away.Load() }

// own is what this node may let through by itself: everything on one server,
// and when the store is away a part for each of those that were there.
func (l *Limiter) own(limits Limits) Limits {
	if l.store == nil {
		return limits
	}
	n := l.nodes.Load()
	part := func(limit int64) int64 { return max(min(limit, 1), limit/n) }
	return Limits{part(limits.RequestsPerMinute), part(limits.TokensPerMinute), part(limits.InFlight)}
}

func (l *Limiter) chunk(limit int64) int64 { return limit / chunksPerLimit / l.nodes.Load() }

// needs is what a call takes.
func (h *hold) needs() amounts {
	n := amounts{}
	if h.limits.RequestsPerMinute > 0 {
		n.requests = 1
	}
	if h.limits.TokensPerMinute > 0 {
		n.tokens = h.tokens
	}
	if h.limits.InFlight > 0 {
		n.places = 1
	}
	return n
}

// lacks is what the node must lease before the call can be let in.
func (e *entry) lacks(h *hold) amounts {
	n := h.needs()
	n.requests = max(0, n.requests-e.have.requests)
	n.tokens = max(0, n.tokens-e.have.tokens)
	n.places *= max(0, e.inUse+1-e.have.places)
	return n
}

// waitsShared is how long to wait by what the store last said. If the node
// lacks something and no limit has to be waited for, the store must be asked.
func (e *entry) waitsShared(h *hold, at int64) (w waits) {
	lacks := e.lacks(h)
	if lacks == (amounts{}) {
		return waits{}
	}
	w = waits{
		requests: e.requests.wait(h.limits.RequestsPerMinute, lacks.requests, at),
		tokens:   e.tokens.wait(h.limits.TokensPerMinute, lacks.tokens, at),
	}
	if lacks.places > e.room {
		w.place = int64(placeWait)
	}
	return w
}

// tryShared is try out of what the node has.
func (e *entry) tryShared(h *hold, at int64) (waits, bool) {
	if e.lacks(h) != (amounts{}) {
		return e.waitsShared(h, at), false
	}
	n := h.needs()
	e.have.requests -= n.requests
	e.have.tokens -= n.tokens
	h.requestMark, h.tokenMark = e.requests.mark(), e.tokens.mark()
	h.requestState = e.requests.state(h.limits.RequestsPerMinute, e.have.requests, at)
	h.tokenState = e.tokens.state(h.limits.TokensPerMinute, e.have.tokens, at)
	return waits{}, true
}

// known reports whether the store said no a moment ago, perhaps to somebody who
// came a little later.
func (e *entry) known(w waits, at int64) bool {
	since := at - e.refused
	return w.any() && since > -askPause && since < askPause
}

// wait asks the store until the call is let in or the store says no. A crowd
// waits for one order, and the next takes enough for all that wait then. The
// shard's lock is held, and let go of meanwhile.
func (l *Limiter) wait(s *shard, e *entry, h *hold, w waits, at int64) (waits, bool) {
	if !l.shared() || e.known(w, at) {
		return w, false
	}
	timeout := time.NewTimer(l.patience)
	defer timeout.Stop()
	needs := h.needs()
	for {
		o, mine := e.order, e.order == nil
		if mine {
			o = l.ask(e, h, at)
		}
		e.waiting = e.waiting.plus(needs)
		s.mu.Unlock()
		if mine {
			l.send(s, e, o)
		}
		late := false
		select {
		case <-o.done:
		case <-timeout.C:
			late = true
		}
		s.mu.Lock()
		e.waiting = e.waiting.minus(needs)
		if late {
			l.away.Store(true)
			return l.tryOwn(e, h, at)
		}
		w, ok := l.try(e, h, at)
		if ok || !l.shared() || e.known(w, at) {
			return w, ok
		}
	}
}

// ask makes an order for what the call lacks, with a chunk and what others wait for.
func (l *Limiter) ask(e *entry, h *hold, at int64) *order {
	o := l.tell(e, at)
	o.limits = h.limits // others may have come with other ones since it began
	o.need = e.lacks(h)
	if o.need.requests > 0 {
		o.want.requests = o.need.requests + e.waiting.requests + l.chunk(h.limits.RequestsPerMinute)
	}
	if o.need.tokens > 0 {
		o.want.tokens = o.need.tokens + e.waiting.tokens + l.chunk(h.limits.TokensPerMinute)
	}
	if o.need.places > 0 {
		o.want.places = o.need.places + e.waiting.places + l.chunk(h.limits.InFlight)
	}
	return o
}

// tell makes an order that says what the node has.
func (l *Limiter) tell(e *entry, at int64) *order {
	o := &order{id: e.id, at: at, limits: e.limits, back: e.owed, places: e.have.places, moved: e.unsure, done: make(chan struct{})}
	e.owed = amounts{}
	e.order = o
	return o
}

// send hands an order to the store. The shard's lock must not be held.
func (l *Limiter) send(s *shard, e *entry, o *order) {
	if o == nil {
		return
	}
	p := l.store.orders.Add(o)
	p.Then(func() { l.answered(s, e, o, !p.Failed()) })
}

// answered takes the store's answer in, also when nobody waits for it any more.
func (l *Limiter) answered(s *shard, e *entry, o *order, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(o.done)
	e.order = nil
	e.unsure = !ok
	l.away.Store(!ok)
	if !ok {
		return // what it was about is lost: units that nobody uses
	}
	e.requests, e.tokens = o.requests, o.tokens
	e.have = e.have.plus(o.granted)
	if o.need.places > 0 {
		e.room = o.room
	}
	if o.refused {
		e.refused = o.at
	}
}

// adjustShared settles with what the node has in hand, and lets the store know
// when that is too much or not enough.
func (l *Limiter) adjustShared(e *entry, h *hold, before, at int64) *order {
	limit := h.limits.TokensPerMinute
	more := h.tokens - before
	if more < 0 {
		more = -min(-more, units(limit, e.tokens.returnable(longest, h.tokenMark, at)))
	}
	e.have.tokens -= more
	chunk := l.chunk(limit)
	switch {
	case e.have.tokens > maxChunks*chunk:
		e.owed.tokens += e.have.tokens - chunk
		e.have.tokens = chunk
	case e.have.tokens < 0:
		e.owed.tokens += e.have.tokens
		e.have.tokens = 0
	}
	if e.owed.tokens == 0 || e.order != nil {
		return nil
	}
	return l.tell(e, at)
}
