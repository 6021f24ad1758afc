package spend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

// leaseSource is where a cache gets its leases: the ledger, shared with other
// nodes.
type leaseSource interface {
	// acquire leases at least need and at most want of what the account has left
	// under the limit, or nothing. It returns the balance before, for the refusal.
	acquire(ctx context.Context, key accountMonth, o acquireOptions) (got credits.Micro, before balance, err error)
	// shrink lowers the node's lease to the amount and releases the rest. It is
	// idempotent.
	shrink(ctx context.Context, key accountMonth, amount credits.Micro) error
	// reclaim asks all other nodes to release what they don't use.
	reclaim(ctx context.Context, key accountMonth) error
}

type acquireOptions struct{ limit, need, want credits.Micro }

const (
	// chunkCalls is for how many calls like the current one a lease is acquired,
	// and chunkShare which part of what is left it is at most: chunks shrink
	// toward the end of a budget.
	chunkCalls = 64
	chunkShare = 8

	// reclaimTimeout is how long a call waits for other nodes to release what they
	// don't use before it is refused, and reclaimPoll how often it checks.
	reclaimTimeout = time.Second
	reclaimPoll    = 25 * time.Millisecond

	// refillAt is the part of a chunk at which the next one is acquired in the
	// background, so that calls don't wait for it.
	refillAt      = 2
	refillTimeout = 5 * time.Second

	// idleAfter is how long a lease is kept unused.
	idleAfter = 5 * time.Second
)

// LeaseCache holds a node's leases and makes reservations from them in memory.
type LeaseCache struct {
	source         leaseSource
	owner          string      // the node's ID
	alone          bool        // no other node can release anything
	leaseValid     func() bool // the node can't have been evicted
	reclaimTimeout time.Duration
	reclaimPoll    time.Duration
	background     func(func())                        // runs a refill; nil for no refills
	assertAlive    func(context.Context, *db.Tx) error // fails once the node is evicted

	mu     sync.Mutex
	leases map[accountMonth]*lease
}

// leaseState says what the ledger may hold for a lease. See the package comment.
type leaseState uint8

const (
	leaseEmpty     leaseState = iota // the ledger holds nothing
	leaseHeld                        // the ledger holds at least what is granted
	leaseRefilling                   // held, with the next chunk being acquired
	leaseDropped                     // no longer in the cache
)

type leaseEvent uint8

const (
	acquireBegins leaseEvent = iota // from here on the ledger may hold more
	refillBegins
	refillEnds
	shrunkToZero
	dropFromCache
)

// next is the transition function of leases. Events that change nothing in a
// state leave it as it is.
func (s leaseState) next(e leaseEvent) leaseState {
	switch {
	case s == leaseDropped:
		return leaseDropped
	case s == leaseEmpty && e == acquireBegins:
		return leaseHeld
	case s == leaseHeld && e == refillBegins:
		return leaseRefilling
	case s == leaseRefilling && e == refillEnds:
		return leaseHeld
	case e == shrunkToZero:
		return leaseEmpty
	case s == leaseEmpty && e == dropFromCache:
		return leaseDropped
	}
	return s
}

// lease is this node's part of a budget in a month. The ledger may hold more for
// it, if the answer to a commit was lost, and never less.
type lease struct {
	store sync.Mutex // held while the ledger changes it, so that one of many concurrent calls acquires

	// The cache's lock protects the rest.
	state      leaseState
	granted    credits.Micro
	reserved   credits.Micro
	limit      credits.Micro // the highest it was acquired under
	stale      credits.Micro // of granted: from before the limit changed, to be released and not spent
	generation int           // of the limit
	chunk      credits.Micro // acquired last
	used       bool          // since the last search for idle leases

	refusal refusalMemo // protected by store
}

// refusalMemo is the last refusal after all other nodes were asked. Calls that
// arrived before it share it.
type refusalMemo struct {
	*Refusal
	at   time.Time
	need credits.Micro
}

func newLeaseCache(source leaseSource, owner string, alone bool, leaseValid func() bool) *LeaseCache {
	return &LeaseCache{source: source, owner: owner, alone: alone, leaseValid: leaseValid, reclaimTimeout: reclaimTimeout, reclaimPoll: reclaimPoll,
		leases: map[accountMonth]*lease{}}
}

// Refusal names the budget that has no room.
type Refusal struct {
	Account
	Limit    credits.Micro
	Spent    credits.Micro // charged
	Reserved credits.Micro // for calls and jobs in progress
	Resets   time.Time
	// Transient: only reservations are in the way, so there may be room when those
	// calls end. Retrying any other refusal is pointless.
	Transient bool
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("the %s has spent %s of %s, and %s are reserved", r.Level, r.Spent, r.Limit, r.Reserved)
}

// Left is what is neither charged nor reserved.
func (r *Refusal) Left() credits.Micro { return r.Limit - r.Spent - r.Reserved }

// For returns the refusal of a call that needs the amount.
func (r *Refusal) For(amount credits.Micro) *Refusal {
	out := *r
	// Reservations may have ended since.
	out.Transient = r.Level != Run && r.Limit > 0 && amount <= r.Limit-r.Spent
	return &out
}

// Transient reports whether err is, or wraps, a refusal only because of calls in
// progress.
func Transient(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Transient
}

// Reservation is the maximum cost of a request, held against every budget it
// counts toward. It is settled or released once, and stays in the month in which
// it was made.
type Reservation struct {
	Amount credits.Micro

	cache *LeaseCache
	keys  []accountMonth // every account that is charged, whether it has a limit or not
	holds []hold
	once  sync.Once
}

// hold is the part of a reservation in one lease.
type hold struct {
	key        accountMonth
	lease      *lease
	generation int // of the lease's limit
}

// Reserve holds the amount against every budget, or returns a *Refusal and holds
// nothing.
func (c *LeaseCache) Reserve(ctx context.Context, budgets []Cap, amount credits.Micro, now time.Time) (*Reservation, error) {
	r := &Reservation{Amount: amount, cache: c}
	period := PeriodOf(now)
	ordered := slices.SortedFunc(slices.Values(budgets), func(a, b Cap) int {
		return compare(accountMonth{a.Account, period}, accountMonth{b.Account, period})
	})
	for _, b := range ordered {
		key := accountMonth{b.Account, period}
		r.keys = append(r.keys, key)
		if b.Limit == nil {
			continue
		}
		h, err := c.reserve(ctx, reserveRequest{key: key, limit: *b.Limit, amount: amount, arrived: time.Now()})
		if err != nil {
			r.end(0)
			return nil, err
		}
		r.holds = append(r.holds, h)
	}
	return r, nil
}

// reserveRequest is a reservation in one lease.
type reserveRequest struct {
	key           accountMonth
	lease         *lease
	limit, amount credits.Micro
	arrived       time.Time
}

// reserve reserves under one limit: from the lease if it has room, otherwise
// from what the ledger and other nodes have.
func (c *LeaseCache) reserve(ctx context.Context, r reserveRequest) (hold, error) {
	if !c.leaseValid() {
		return hold{}, nodes.ErrLeaseExpired
	}
	for {
		c.mu.Lock()
		if r.lease = c.leases[r.key]; r.lease == nil {
			r.lease = &lease{}
			c.leases[r.key] = r.lease
		}
		h, ok := r.reserveLocal()
		refill := ok && c.background != nil && r.lease.state == leaseHeld && r.lease.free() < r.lease.chunk/refillAt
		if refill {
			r.lease.state = r.lease.state.next(refillBegins)
		}
		c.mu.Unlock()
		if refill {
			c.background(func() { c.refill(r) })
		}
		if ok {
			return h, nil
		}
		r.lease.store.Lock()
		if c.isCached(r.lease) {
			h, err := c.reserveRemote(ctx, r)
			r.lease.store.Unlock()
			return h, err
		}
		r.lease.store.Unlock() // it was dropped while we waited
	}
}

func (c *LeaseCache) isCached(le *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.state != leaseDropped
}

// record passes an event to the lease.
func (c *LeaseCache) record(le *lease, e leaseEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	le.state = le.state.next(e)
}

// free is what can be reserved. The cache's lock is held.
func (le *lease) free() credits.Micro { return le.granted - le.reserved - le.stale }

// reserveLocal reserves if the lease has room. What was acquired under a higher
// limit is none. The cache's lock is held.
func (r reserveRequest) reserveLocal() (hold, bool) {
	le := r.lease
	if r.limit < le.limit {
		le.limit = r.limit
		le.expire()
	}
	if r.limit <= 0 || le.free() < r.amount {
		return hold{}, false
	}
	le.reserved += r.amount
	le.used = true
	return hold{r.key, le, le.generation}, true
}

// expire marks all that is granted to be released instead of spent, also what is
// reserved now and not needed in the end. The cache's lock is held.
func (le *lease) expire() {
	le.stale = le.granted - le.reserved
	le.generation++
}

// expireLeases handles a changed limit; an empty name means any. Under a limit
// that was raised and lowered again, other nodes may have leased what this one
// counts on.
func (c *LeaseCache) expireLeases(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, le := range c.leases {
		if key.String() == name || name == "" {
			le.expire()
		}
	}
}

// reserveRemote acquires more for the lease until the request fits or is refused.
// The lease's store lock is held.
func (c *LeaseCache) reserveRemote(ctx context.Context, r reserveRequest) (hold, error) {
	var wait reclaimWait
	for {
		c.mu.Lock()
		h, ok := r.reserveLocal() // a call before this one may have acquired enough
		free, stale := r.lease.free(), r.lease.stale
		c.mu.Unlock()
		if ok {
			return h, nil
		}
		if stale > 0 { // counts against the limit until it is released
			if err := c.shrink(ctx, r.key, r.lease); err != nil {
				return hold{}, err
			}
			continue
		}
		need := r.amount - free
		if m := r.lease.refusal; m.Refusal != nil && m.at.After(r.arrived) && need >= m.need && m.Limit == r.limit {
			return hold{}, m.For(r.amount)
		}
		got, before, err := c.acquire(ctx, r, need)
		if err != nil {
			return hold{}, err
		}
		if got > 0 {
			continue
		}
		refusal := (&Refusal{Account: r.key.Account, Limit: r.limit, Spent: before.Settled, Reserved: before.reservedBy(r.limit, free), Resets: r.key.Period.End()}).For(r.amount)
		if err := c.reclaimAndWait(ctx, r, refusal, &wait); err != nil {
			if errors.Is(err, refusal) {
				r.lease.refusal = refusalMemo{refusal, time.Now(), need}
			}
			return hold{}, err
		}
	}
}

// reclaimWait is how far a call is with waiting for what others don't use.
type reclaimWait struct {
	since  time.Time // when other nodes were asked
	synced bool
}

// reclaimAndWait asks other nodes once to release what they don't use, and waits
// a moment for that and for calls in progress. It returns the refusal when
// waiting is pointless or has taken too long. The lease's store lock is held.
func (c *LeaseCache) reclaimAndWait(ctx context.Context, r reserveRequest, refusal *Refusal, w *reclaimWait) error {
	if !refusal.Transient {
		return refusal
	}
	c.mu.Lock()
	free, inUse := r.lease.free(), r.lease.reserved > 0
	c.mu.Unlock()
	if c.alone && !inUse || !w.since.IsZero() && time.Since(w.since) > c.reclaimTimeout {
		if w.synced {
			return refusal
		}
		// Calls that ended during a shrink count twice in the ledger until it
		// hears again how much this node keeps.
		w.synced = true
		return c.shrink(ctx, r.key, r.lease)
	}
	if free > 0 && !c.alone {
		// Two nodes that wait for each other must not both keep too little.
		if err := c.shrink(ctx, r.key, r.lease); err != nil {
			return err
		}
	}
	if w.since.IsZero() {
		w.since = time.Now()
		if err := c.source.reclaim(ctx, r.key); err != nil {
			return err
		}
	}
	select {
	case <-time.After(c.reclaimPoll):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acquire leases a chunk for calls like the request's, or nothing. The lease's
// store lock is held.
func (c *LeaseCache) acquire(ctx context.Context, r reserveRequest, need credits.Micro) (got credits.Micro, before balance, err error) {
	le := r.lease
	c.mu.Lock()
	le.state = le.state.next(acquireBegins)
	generation := le.generation
	c.mu.Unlock()
	want := max(need, min((r.limit-r.amount)/chunkShare, chunkCalls*r.amount))
	got, before, err = c.source.acquire(ctx, r.key, acquireOptions{limit: r.limit, need: need, want: want})
	if err == nil && got > 0 {
		c.mu.Lock()
		le.granted += got
		if le.generation != generation {
			le.stale += got
		}
		le.limit = max(le.limit, r.limit)
		le.chunk = got
		c.mu.Unlock()
	}
	return got, before, err
}

// refill acquires the next chunk before the last one is used up. It asks no other
// node for it: calls that need it do.
func (c *LeaseCache) refill(r reserveRequest) {
	defer c.record(r.lease, refillEnds)
	if !r.lease.store.TryLock() {
		return // another call is acquiring
	}
	defer r.lease.store.Unlock()
	if !c.leaseValid() || !c.isCached(r.lease) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), refillTimeout)
	defer cancel()
	if got, _, err := c.acquire(ctx, r, 1); err != nil || got == 0 {
		// The next calls try themselves and report why they can't.
		c.mu.Lock()
		r.lease.chunk = 0
		c.mu.Unlock()
	}
}

// end takes a charge out of what a reservation held, and releases the rest in
// memory.
func (r *Reservation) end(charge credits.Micro) {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	for _, h := range r.holds {
		h.lease.reserved -= r.Amount
		h.lease.granted -= charge
		if h.generation != h.lease.generation {
			h.lease.stale += r.Amount - charge
		}
	}
}

// Accounts lists the accounts that the request will be charged to, for the log.
func (r *Reservation) Accounts() json.RawMessage { return encodeAccounts(r.keys) }

// Release ends a reservation that costs nothing.
func (r *Reservation) Release() { r.once.Do(func() { r.end(0) }) }

// Settled ends a reservation whose charge the ledger has taken out of the lease.
// It must be called after that commit.
func (r *Reservation) Settled(charge credits.Micro) {
	r.once.Do(func() { r.end(min(charge, r.Amount)) })
}

// ReleaseIdle releases what was not used since the last time, and what expired.
func (c *LeaseCache) ReleaseIdle(ctx context.Context) error {
	return c.release(ctx, func(_ accountMonth, le *lease) bool {
		used := le.used
		le.used = false
		return !used || le.stale > 0
	})
}

// ReleaseUnused releases what is not reserved of the named account in its month;
// an empty name means all.
func (c *LeaseCache) ReleaseUnused(ctx context.Context, name string) error {
	return c.release(ctx, func(key accountMonth, _ *lease) bool { return key.String() == name || name == "" })
}

func (c *LeaseCache) release(ctx context.Context, which func(accountMonth, *lease) bool) error {
	c.mu.Lock()
	var keys []accountMonth
	for key, le := range c.leases {
		if which(key, le) {
			keys = append(keys, key)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(keys, compare)
	var failed error
	for _, key := range keys {
		failed = errors.Join(failed, c.shrinkOrDrop(ctx, key))
	}
	return failed
}

// shrinkOrDrop shrinks a lease to what is reserved of it, and drops an empty one.
func (c *LeaseCache) shrinkOrDrop(ctx context.Context, key accountMonth) error {
	c.mu.Lock()
	le := c.leases[key]
	c.mu.Unlock()
	if le == nil || !le.store.TryLock() {
		return nil // a call that acquires more is using it
	}
	defer le.store.Unlock()
	if err := c.shrink(ctx, key, le); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if le.granted == 0 && le.reserved == 0 {
		if le.state = le.state.next(dropFromCache); le.state == leaseDropped && c.leases[key] == le {
			delete(c.leases, key)
		}
	}
	return nil
}

// shrink releases what is not reserved. The lease's store lock is held. Calls that
// end meanwhile leave the ledger with more than the lease needs, so the two agree
// for certain only at zero.
func (c *LeaseCache) shrink(ctx context.Context, key accountMonth, le *lease) error {
	c.mu.Lock()
	le.granted, le.stale = le.reserved, 0 // here first: it must not be spent while it is released
	keep := le.granted
	empty := le.state == leaseEmpty
	c.mu.Unlock()
	if empty && keep == 0 {
		return nil
	}
	if err := c.source.shrink(ctx, key, keep); err != nil {
		return err
	}
	if keep == 0 {
		c.record(le, shrunkToZero)
	}
	return nil
}

// Run releases what this node doesn't use, and what other nodes ask for, until
// ctx ends.
func (c *LeaseCache) Run(ctx context.Context, d *db.DB) {
	requests := make(chan string, 64)
	d.OnSignal(SignalReclaim, func(name string) {
		select {
		case requests <- name:
		default: // it is released when it is idle
		}
	})
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	for {
		var err error
		select {
		case name := <-requests:
			err = c.ReleaseUnused(ctx, name)
		case <-tick.C:
			err = c.ReleaseIdle(ctx)
		case <-ctx.Done():
			return
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("failed to release credit leases; retrying", "retry_in", idleAfter, "error", err)
		}
	}
}
