package spend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/nodes"
)

// Refusal reports which budget is exhausted.
type Refusal struct {
	Account
	Window   accounts.Window
	Limit    credits.Micro
	Spent    credits.Micro // charged
	Reserved credits.Micro // for requests and jobs in progress
	Needs    credits.Micro // by the request
	Resets   time.Time     // zero for a budget that never starts again
	// Transient means that only reservations block the request, so it may fit
	// when they end. Retrying any other refusal is pointless.
	Transient bool
	// Exhausted means that not even a small request fits, so the budget counts as used up.
	Exhausted bool
}

// smallShare is the part of a budget that a small request needs at most, as a divisor. Requests that need
// more can be refused long before the budget is used up.
const smallShare = 10

func (r *Refusal) Error() string {
	return fmt.Sprintf("the %s has spent %s of %s, and %s are reserved", r.Level, r.Spent, r.Limit, r.Reserved)
}

// Release does nothing. It makes a refusal the hold of a log entry, so that the
// transaction that settles the entry publishes budget.exceeded.
func (r *Refusal) Release() {}

// Left returns the credits that are neither charged nor reserved.
func (r *Refusal) Left() credits.Micro { return r.Limit - r.Spent - r.Reserved }

// For returns the refusal of a request that needs the amount.
func (r *Refusal) For(amount credits.Micro) *Refusal {
	out := *r
	out.Needs = amount
	// Reservations may have ended since the refusal.
	out.Transient = r.Level != Run && r.Limit > 0 && amount <= r.Limit-r.Spent
	out.Exhausted = !out.Transient && amount <= r.Limit/smallShare
	return &out
}

// Transient reports whether err is, or wraps, a refusal caused only by requests
// in progress.
func Transient(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Transient
}

// Reservation is the maximum cost of a request, held against every budget it
// counts toward. It is settled or released once, and stays in the periods in
// which it was created.
type Reservation struct {
	Amount credits.Micro

	cache *LeaseCache
	holds []hold // in order
	once  sync.Once
}

// hold is the part of a reservation under one account.
type hold struct {
	key        accountPeriod
	lease      *lease // nil if the account has no limit, and is charged only
	generation int    // the lease's generation at the time
}

// Reserve holds the amount against every budget, or returns a *Refusal and holds
// nothing.
func (c *LeaseCache) Reserve(ctx context.Context, budgets []Cap, amount credits.Micro, now time.Time) (*Reservation, error) {
	requests := inOrder(budgets, amount, now)
	r := &Reservation{Amount: amount, cache: c, holds: make([]hold, len(requests))}
	for i := range requests {
		r.holds[i].key = requests[i].key
	}
	if c.reserveHeld(requests, r.holds) {
		return r, nil
	}
	c.acquireMissing(ctx, requests)
	for i, request := range requests {
		if request.unlimited {
			continue
		}
		request.arrived = time.Now()
		h, err := c.reserve(ctx, request)
		if err != nil {
			if _, refused := errors.AsType[*Refusal](err); refused {
				c.refusals.WithLabelValues(string(request.key.Level)).Inc()
			}
			r.end(0)
			return nil, err
		}
		r.holds[i] = h
	}
	return r, nil
}

// reserveHeld reserves if this node's leases have enough under every limit, and holds
// nothing otherwise.
func (c *LeaseCache) reserveHeld(requests []reserveRequest, holds []hold) bool {
	if !c.leaseValid() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range requests {
		if r.unlimited {
			continue
		}
		if r.lease = c.leases[r.key]; r.lease != nil {
			h, ok := r.reserveLocal()
			if ok {
				holds[i] = h
			}
			if ok && !c.needsRefill(r.lease) {
				continue
			}
		}
		for j := range holds[:i+1] {
			holds[j].end(r.amount, 0)
			holds[j].lease = nil
		}
		return false
	}
	return true
}

// inOrder returns what to reserve in the periods that contain the time, in the
// order in which it is leased.
func inOrder(budgets []Cap, amount credits.Micro, now time.Time) []reserveRequest {
	list := make([]reserveRequest, len(budgets))
	for i, b := range budgets {
		list[i] = reserveRequest{key: accountPeriod{b.Account, PeriodIn(b.Window, now)}, amount: amount, unlimited: b.Limit == nil}
		if b.Limit != nil {
			list[i].limit = *b.Limit
		}
	}
	slices.SortFunc(list, func(a, b reserveRequest) int { return compare(a.key, b.key) })
	return list
}

// reserveRequest is a reservation in one lease.
type reserveRequest struct {
	key           accountPeriod
	lease         *lease
	limit, amount credits.Micro
	unlimited     bool // without a lease
	arrived       time.Time
}

// reserve reserves under one limit: from the lease if it has enough, otherwise
// from the ledger and other nodes.
func (c *LeaseCache) reserve(ctx context.Context, r reserveRequest) (hold, error) {
	if !c.leaseValid() {
		return hold{}, nodes.ErrLeaseExpired
	}
	for {
		c.mu.Lock()
		if r.lease = c.leases[r.key]; r.lease == nil {
			r.lease = c.newLease(r)
		}
		h, ok := r.reserveLocal()
		refill := ok && c.needsRefill(r.lease)
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
		r.lease.store.Unlock() // the lease was dropped during the wait
	}
}

// reserveLocal reserves if the lease has enough. Credits acquired under another
// limit don't count: a temporary raise may have ended, and other nodes may have
// spent more than the limit since. The caller holds the cache's lock.
func (r reserveRequest) reserveLocal() (hold, bool) {
	le := r.lease
	if r.limit != le.limit {
		le.limit = r.limit
		le.expire()
	}
	if r.limit <= 0 || le.free() < r.amount {
		return hold{}, false
	}
	le.reserved += r.amount
	le.idleScans = 0
	return hold{r.key, le, le.generation}, true
}

// reserveRemote acquires more for the lease until the request fits or is
// refused. The caller holds the lease's store lock.
func (c *LeaseCache) reserveRemote(ctx context.Context, r reserveRequest) (hold, error) {
	var wait reclaimWait
	for {
		c.mu.Lock()
		h, ok := r.reserveLocal() // an earlier request may have acquired enough
		free, stale := r.lease.free(), r.lease.stale
		c.mu.Unlock()
		if ok {
			return h, nil
		}
		if stale > 0 { // counts against the limit until it is released
			if err := c.shrink(ctx, keyedLease{r.key, r.lease}); err != nil {
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
		refusal := (&Refusal{Account: r.key.Account, Window: r.key.Period.Window(), Limit: r.limit, Spent: before.Settled, Reserved: before.reservedBy(r.limit, free), Resets: r.key.Period.End()}).For(r.amount)
		if err := c.reclaimAndWait(ctx, r, refusal, &wait); err != nil {
			if errors.Is(err, refusal) {
				r.lease.refusal = refusalMemo{refusal, time.Now(), need}
			}
			return hold{}, err
		}
	}
}

// reclaimWait is the progress of a request that waits for unused credits of
// other nodes.
type reclaimWait struct {
	since  time.Time // when other nodes were asked
	shrunk bool
	synced bool
}

// reclaimAndWait asks other nodes once to release unused credits, and waits
// briefly for them and for requests in progress. It returns the refusal if
// waiting is pointless or took too long. The caller holds the lease's store
// lock.
func (c *LeaseCache) reclaimAndWait(ctx context.Context, r reserveRequest, refusal *Refusal, w *reclaimWait) error {
	if !refusal.Transient {
		return refusal
	}
	if !w.shrunk { // what looked reserved may be spent
		w.shrunk = true
		if err := c.post(ctx); err != nil {
			return err
		}
		return c.shrink(ctx, keyedLease{r.key, r.lease})
	}
	c.mu.Lock()
	free, inUse := r.lease.free(), r.lease.reserved > 0
	c.mu.Unlock()
	if c.alone && !inUse || !w.since.IsZero() && time.Since(w.since) > c.reclaimTimeout {
		if w.synced {
			return refusal
		}
		// Requests that ended during a shrink count twice in the ledger until
		// this node reports again how much it keeps.
		w.synced = true
		return c.shrink(ctx, keyedLease{r.key, r.lease})
	}
	if free > 0 && !c.alone {
		// Two nodes that wait for each other must not both keep too little.
		if err := c.shrink(ctx, keyedLease{r.key, r.lease}); err != nil {
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

// end deducts a charge from the reservation and releases the rest in memory.
func (r *Reservation) end(charge credits.Micro) {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	for _, h := range r.holds {
		h.end(r.Amount, charge)
	}
}

// end deducts a charge from the lease, if any, and releases the rest. The caller holds the cache's lock.
func (h hold) end(amount, charge credits.Micro) {
	if h.lease == nil {
		return
	}
	h.lease.reserved -= amount
	h.lease.granted -= charge
	if h.generation != h.lease.generation {
		h.lease.stale += amount - charge
	}
}

// Drop releases the reservation under some of its accounts. They are not charged.
func (r *Reservation) Drop(list []Account) {
	isDropped := func(a Account) bool { return slices.Contains(list, a) }
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	r.holds = slices.DeleteFunc(r.holds, func(h hold) bool {
		if isDropped(h.key.Account) {
			h.end(r.Amount, 0)
		}
		return isDropped(h.key.Account)
	})
}

// Accounts lists the accounts that the request will be charged to, for the log.
func (r *Reservation) Accounts() json.RawMessage { return encodeAccounts(r.holds) }

// Release ends a reservation that costs nothing.
func (r *Reservation) Release() { r.once.Do(func() { r.end(0) }) }

// Settled ends a reservation whose charge the ledger has deducted from the
// lease. Call it after that commit.
func (r *Reservation) Settled(charge credits.Micro) {
	r.once.Do(func() { r.end(min(charge, r.Amount)) })
}
