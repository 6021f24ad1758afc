package limits

import (
	"time"
)

// How nodes share a limit: the bucket of an ID is a row in the store. A node
// leases more units than it needs and spends them in memory. It leases slots in
// the same way and keeps them. Leased units count as used, so the nodes can
// deviate from the bucket by at most the units they hold:
//
//	chunk  = limit / 64 / nodes, leased beyond the need
//	leased ≤ 2 × chunk on each node, so ≤ limit / 32 = 3.1% on all
//
// Limits below 64 × nodes have no chunks: every request asks the store. A
// single node at full speed asks 64 times a minute. A refused one asks at most
// ten times a second.
const (
	chunksPerLimit = 64
	maxChunks      = 2

	// refusalTTL is how long a refusal by the store stays valid.
	refusalTTL = int64(100 * time.Millisecond)

	// storeTimeout is how long a request waits for the store, where a lease takes
	// about a millisecond. After that the node decides alone.
	storeTimeout = 250 * time.Millisecond
)

type amounts struct{ requests, tokens, slots int64 }

func (a amounts) plus(b amounts) amounts {
	return amounts{a.requests + b.requests, a.tokens + b.tokens, a.slots + b.slots}
}

func (a amounts) minus(b amounts) amounts {
	return amounts{a.requests - b.requests, a.tokens - b.tokens, a.slots - b.slots}
}

// share is a node's share of an ID's limits.
type share struct {
	limits       Limits        // the last nonzero limit of each kind
	leased       amounts       // unspent units, and slots in use or not
	freeSlots    int64         // slots that no node held, by the store's last reply
	owed         amounts       // units to return to the store; negative is a token debt
	waiting      amounts       // needs of the requests that wait for the pending lease
	pending      *leaseRequest // at most one, so that replies arrive in order
	refused      int64         // when the store last refused
	used         int64         // when a request last arrived
	slotsUnknown bool          // the store may have recorded another number of slots
}

// leaseRequest reports a node's state of an ID to the store, asks for units,
// and holds the reply.
type leaseRequest struct {
	id           string
	at           int64
	limits       Limits
	back         amounts // units returned; negative is a token debt
	heldSlots    int64   // slots the node holds
	slotsReduced bool    // heldSlots is, or may be, lower than the store recorded
	need         amounts // granted as a whole or not at all; zero for a report
	want         amounts // at least need

	granted   amounts
	refused   bool
	freeSlots int64 // set only if slots are needed
	requests  bucket
	tokens    bucket
	done      chan struct{}
}

// noteLimits records the limits of a request. A zero limit changes nothing,
// since steps of a run have no request limit. If a limit drops, the node
// discards leased units beyond a chunk of the new limit.
func (l *Limiter) noteLimits(e *entry, limits Limits) {
	note := func(last, leased *int64, limit int64) {
		if limit == 0 {
			return
		}
		if limit < *last {
			*leased = min(*leased, l.chunk(limit))
		}
		*last = limit
	}
	note(&e.limits.RequestsPerMinute, &e.leased.requests, limits.RequestsPerMinute)
	note(&e.limits.TokensPerMinute, &e.leased.tokens, limits.TokensPerMinute)
	if limits.InFlight > 0 {
		e.limits.InFlight = limits.InFlight
	}
}

// shared reports whether the store decides.
func (l *Limiter) shared() bool { return l.store != nil && !l.storeDown.Load() }

// localLimits returns what this node may admit alone: everything on a single
// server, or an equal part per node if the store is down.
func (l *Limiter) localLimits(limits Limits) Limits {
	if l.store == nil {
		return limits
	}
	n := l.nodes.Load()
	part := func(limit int64) int64 { return max(min(limit, 1), limit/n) }
	return Limits{part(limits.RequestsPerMinute), part(limits.TokensPerMinute), part(limits.InFlight)}
}

func (l *Limiter) chunk(limit int64) int64 { return limit / chunksPerLimit / l.nodes.Load() }

func (h *hold) needs() amounts {
	n := amounts{}
	if h.limits.RequestsPerMinute > 0 {
		n.requests = 1
	}
	if h.limits.TokensPerMinute > 0 {
		n.tokens = h.tokens
	}
	if h.limits.InFlight > 0 {
		n.slots = 1
	}
	return n
}

// lacks returns what the node must lease before it can admit the request.
func (e *entry) lacks(h *hold) amounts {
	n := h.needs()
	n.requests = max(0, n.requests-e.leased.requests)
	n.tokens = max(0, n.tokens-e.leased.tokens)
	n.slots *= max(0, e.inUse+1-e.leased.slots)
	return n
}

// waitsShared returns the waits by the store's last reply. If the node lacks
// something and every wait is zero, the store must decide.
func (e *entry) waitsShared(h *hold, at int64) (w waits) {
	lacks := e.lacks(h)
	if lacks == (amounts{}) {
		return waits{}
	}
	w = waits{
		requests: e.requests.wait(h.limits.RequestsPerMinute, lacks.requests, at),
		tokens:   e.tokens.wait(h.limits.TokensPerMinute, lacks.tokens, at),
	}
	if lacks.slots > e.freeSlots {
		w.slot = int64(slotRetry)
	}
	return w
}

// tryShared is try with the node's leased units.
func (e *entry) tryShared(h *hold, at int64) (waits, bool) {
	if e.lacks(h) != (amounts{}) {
		return e.waitsShared(h, at), false
	}
	n := h.needs()
	e.leased.requests -= n.requests
	e.leased.tokens -= n.tokens
	h.requestMark, h.tokenMark = e.requests.mark(), e.tokens.mark()
	h.states = e.states(h.limits, e.leased, at)
	return waits{}, true
}

// recentlyRefused reports whether the store refused within refusalTTL, before
// or after at: requests can arrive out of order.
func (e *entry) recentlyRefused(w waits, at int64) bool {
	since := at - e.refused
	return w.any() && since > -refusalTTL && since < refusalTTL
}

// wait asks the store until it grants or refuses the request. Concurrent
// requests wait for one lease, and the next lease covers all that still wait.
// The shard must be locked; wait unlocks it meanwhile.
func (l *Limiter) wait(s *shard, e *entry, h *hold, w waits, at int64) (waits, bool) {
	if !l.shared() || e.recentlyRefused(w, at) {
		return w, false
	}
	timeout := time.NewTimer(l.StoreTimeout)
	defer timeout.Stop()
	needs := h.needs()
	for {
		o, mine := e.pending, e.pending == nil
		if mine {
			o = l.newLease(e, h, at)
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
			l.storeDown.Store(true)
			return l.tryLocal(e, h, at)
		}
		w, ok := l.try(e, h, at)
		if ok || !l.shared() || e.recentlyRefused(w, at) {
			return w, ok
		}
	}
}

// newLease creates a lease request for what the request lacks, a chunk, and the
// needs of waiting requests.
func (l *Limiter) newLease(e *entry, h *hold, at int64) *leaseRequest {
	o := l.newReport(e, at)
	o.limits = h.limits // e.limits may be those of a later request
	o.need = e.lacks(h)
	if o.need.requests > 0 {
		o.want.requests = o.need.requests + e.waiting.requests + l.chunk(h.limits.RequestsPerMinute)
	}
	if o.need.tokens > 0 {
		o.want.tokens = o.need.tokens + e.waiting.tokens + l.chunk(h.limits.TokensPerMinute)
	}
	if o.need.slots > 0 {
		o.want.slots = o.need.slots + e.waiting.slots + l.chunk(h.limits.InFlight)
	}
	return o
}

// newReport creates a lease request that only reports the node's state.
func (l *Limiter) newReport(e *entry, at int64) *leaseRequest {
	o := &leaseRequest{id: e.id, at: at, limits: e.limits, back: e.owed, heldSlots: e.leased.slots, slotsReduced: e.slotsUnknown, done: make(chan struct{})}
	e.owed = amounts{}
	e.pending = o
	return o
}

// send sends a lease request to the store. The shard must not be locked.
func (l *Limiter) send(s *shard, e *entry, o *leaseRequest) {
	if o == nil {
		return
	}
	p := l.store.leases.Add(o)
	p.Then(func() { l.applyReply(s, e, o, !p.Failed()) })
}

// applyReply records the store's reply, even if no request waits for it.
func (l *Limiter) applyReply(s *shard, e *entry, o *leaseRequest, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(o.done)
	e.pending = nil
	e.slotsUnknown = !ok
	l.storeDown.Store(!ok)
	if !ok {
		return // the reported units are lost: no one uses them
	}
	e.requests, e.tokens = o.requests, o.tokens
	e.leased = e.leased.plus(o.granted)
	if o.need.slots > 0 {
		e.freeSlots = o.freeSlots
	}
	if o.refused {
		e.refused = o.at
	}
}

// adjustShared charges the leased units, and reports to the store if they are
// too many or too few.
func (l *Limiter) adjustShared(e *entry, h *hold, before, at int64) *leaseRequest {
	limit := h.limits.TokensPerMinute
	more := h.tokens - before
	if more < 0 {
		more = -min(-more, units(limit, e.tokens.refundable(maxCharge, h.tokenMark, at)))
	}
	e.leased.tokens -= more
	chunk := l.chunk(limit)
	switch {
	case e.leased.tokens > maxChunks*chunk:
		e.owed.tokens += e.leased.tokens - chunk
		e.leased.tokens = chunk
	case e.leased.tokens < 0:
		e.owed.tokens += e.leased.tokens
		e.leased.tokens = 0
	}
	if e.owed.tokens == 0 || e.pending != nil {
		return nil
	}
	return l.newReport(e, at)
}
