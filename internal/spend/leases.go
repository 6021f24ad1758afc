package spend

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// leaseSource provides the leases of a cache: the ledger, which all nodes
// share.
type leaseSource interface {
	// acquire leases between need and want credits of the account's remaining
	// budget, or nothing. It returns the balance before that, for the refusal.
	acquire(ctx context.Context, key accountPeriod, o acquireOptions) (got credits.Micro, before balance, err error)
	// acquireAll is acquire for several accounts, in one transaction. They must be
	// in order.
	acquireAll(ctx context.Context, list []acquisition) ([]grant, error)
	// shrinkAll lowers the node's leases to the amounts and releases the rest, in one
	// transaction. It is idempotent.
	shrinkAll(ctx context.Context, list []shrinkage) error
	// reclaim asks all other nodes to release unused credits.
	reclaim(ctx context.Context, key accountPeriod) error
}

type acquireOptions struct{ limit, need, want credits.Micro }

type acquisition struct {
	key accountPeriod
	acquireOptions
}

type grant struct {
	got    credits.Micro
	before balance
}

// shrinkage is what a lease keeps.
type shrinkage struct {
	key  accountPeriod
	keep credits.Micro
}

const (
	// A lease covers chunkCalls requests like the current one, and grows if it doesn't
	// last for chunkFor, but has at most one chunkShare-th of the remaining budget. So
	// chunks shrink toward the end of a budget.
	chunkCalls = 256
	chunkFor   = time.Second
	chunkShare = 8

	// reclaimTimeout is how long a request waits for other nodes to release
	// unused credits before it is refused. reclaimPoll is how often it checks.
	reclaimTimeout = time.Second
	reclaimPoll    = 25 * time.Millisecond

	// When a lease falls below 1/refillAt of a chunk, the next chunk is
	// acquired in the background, so that requests don't wait for it.
	refillAt      = 2
	refillTimeout = 5 * time.Second

	// idleAfter is how long an unused lease is kept. Other nodes that need it ask for it.
	idleAfter = 5 * time.Second
	// userIdleScans is how many times as long the lease of an end user is kept. There may
	// be one per request, and leasing it again costs more than the request itself.
	userIdleScans = 12
	// maxShrinks is how many leases one transaction releases.
	maxShrinks = 100
)

// LeaseCache holds a node's leases and makes reservations from them in memory.
type LeaseCache struct {
	source         leaseSource
	owner          string      // the node's ID
	alone          bool        // no other node can release credits
	leaseValid     func() bool // reports that the node can't have been evicted
	reclaimTimeout time.Duration
	reclaimPoll    time.Duration
	background     func(func())                // runs a refill; nil disables refills
	post           func(context.Context) error // posts the node's charges
	assertAlive    func(*db.Tx) error          // fails once the node is evicted

	mu     sync.Mutex
	leases map[accountPeriod]*lease

	refusals *prometheus.CounterVec
}

// leaseState is the state of a lease in the ledger. See the package comment.
type leaseState uint8

const (
	leaseEmpty     leaseState = iota // the ledger holds nothing
	leaseHeld                        // the ledger holds at least the granted credits
	leaseRefilling                   // held, with the next chunk being acquired
	leaseDropped                     // no longer in the cache
)

type leaseEvent uint8

const (
	acquireBegins leaseEvent = iota // from now on the ledger may hold more
	refillBegins
	refillEnds
	shrunkToZero
	dropFromCache
)

// next is the transition function of leases. Events without a transition leave
// the state unchanged.
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

// lease is this node's share of a budget in a period. The ledger never holds
// less for it, but may hold more if the result of a commit was lost.
type lease struct {
	store  sync.Mutex // held while the ledger changes the lease, so that only one of many concurrent requests acquires
	stored []byte     // its account as the log stores it

	// The cache's lock protects the rest.
	state      leaseState
	granted    credits.Micro
	reserved   credits.Micro
	limit      credits.Micro // the limit that its credits were acquired under, apart from stale ones
	stale      credits.Micro // of granted: acquired before the limit changed, to be released and not spent
	generation int           // increases when the limit changes
	chunk      credits.Micro // the size of the last chunk
	acquired   time.Time     // when that was
	idleScans  int           // scans for idle leases since it was used

	refusal refusalMemo // protected by store
}

// refusalMemo is the last refusal after all other nodes were asked. Requests
// that arrived before it share it.
type refusalMemo struct {
	*Refusal
	at   time.Time
	need credits.Micro
}

func newLeaseCache(source leaseSource, owner string, alone bool, leaseValid func() bool) *LeaseCache {
	return &LeaseCache{source: source, owner: owner, alone: alone, leaseValid: leaseValid, reclaimTimeout: reclaimTimeout, reclaimPoll: reclaimPoll,
		post: func(context.Context) error { return nil }, leases: map[accountPeriod]*lease{}, refusals: newRefusals()}
}

// PostWith makes the cache post the node's charges before it releases or refuses
// credits.
func (c *LeaseCache) PostWith(s *Settler) *LeaseCache {
	c.post = s.Post
	return c
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

// newLease adds an empty lease to the cache. The caller holds the cache's lock.
func (c *LeaseCache) newLease(r reserveRequest) *lease {
	le := &lease{limit: r.limit, stored: r.key.appendTo(nil)}
	c.leases[r.key] = le
	return le
}

// needsRefill reports whether to acquire the next chunk in the background. The caller
// holds the cache's lock.
func (c *LeaseCache) needsRefill(le *lease) bool {
	return c.background != nil && le.state == leaseHeld && le.free() < le.chunk/refillAt
}

// free returns the credits that can be reserved. The caller holds the cache's
// lock.
func (le *lease) free() credits.Micro { return le.granted - le.reserved - le.stale }

// expire marks all granted credits to be released instead of spent, including
// reserved ones that turn out to be unused. The caller holds the cache's lock.
func (le *lease) expire() {
	le.stale = le.granted - le.reserved
	le.generation++
}

// expireLeases handles a changed limit; an empty name means any. If a limit was
// raised and lowered again, other nodes may have leased credits that this node
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

// acquire leases a chunk for requests like this one, or nothing. The caller
// holds the lease's store lock.
func (c *LeaseCache) acquire(ctx context.Context, r reserveRequest, need credits.Micro) (got credits.Micro, before balance, err error) {
	generation, options := c.beginAcquire(r, need)
	got, before, err = c.source.acquire(ctx, r.key, options)
	if err == nil {
		c.endAcquire(r, generation, got)
	}
	return got, before, err
}

// beginAcquire records that the ledger may hold more from now on. It returns the
// lease's generation, and what to acquire.
func (c *LeaseCache) beginAcquire(r reserveRequest, need credits.Micro) (generation int, o acquireOptions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	le, now, want := r.lease, time.Now(), chunkCalls*r.amount
	if now.Sub(le.acquired) < chunkFor {
		want = max(want, 2*le.chunk)
	}
	le.state, le.acquired = le.state.next(acquireBegins), now
	return le.generation, acquireOptions{limit: r.limit, need: need, want: max(need, min((r.limit-r.amount)/chunkShare, want))}
}

// endAcquire adds a chunk to the lease. It is stale if the limit has changed since
// beginAcquire.
func (c *LeaseCache) endAcquire(r reserveRequest, generation int, got credits.Micro) {
	if got == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	le := r.lease
	le.granted += got
	if le.generation != generation || le.limit != r.limit {
		le.stale += got
	}
	le.chunk = got
}

// acquireMissing acquires all leases of a reservation that this node doesn't hold
// in one transaction, if there are several. If that fails, reserve tries again and
// reports the error.
func (c *LeaseCache) acquireMissing(ctx context.Context, list []reserveRequest) {
	if !c.leaseValid() {
		return
	}
	var missing []reserveRequest
	c.mu.Lock()
	for _, r := range list {
		if r.unlimited {
			continue
		}
		if r.lease = c.leases[r.key]; r.lease == nil {
			r.lease = c.newLease(r)
		}
		if r.lease.state == leaseEmpty && r.lease.limit == r.limit && r.lease.free() <= 0 && r.limit >= r.amount && r.amount > 0 {
			missing = append(missing, r)
		}
	}
	c.mu.Unlock()
	if len(missing) < 2 {
		return
	}
	locked := missing[:0]
	for _, r := range missing {
		if !r.lease.store.TryLock() {
			continue // another request is acquiring it
		}
		defer r.lease.store.Unlock()
		if c.isEmpty(r.lease) {
			locked = append(locked, r)
		}
	}
	if len(locked) == 0 {
		return
	}
	wanted, generations := make([]acquisition, len(locked)), make([]int, len(locked))
	for i, r := range locked {
		wanted[i].key = r.key
		generations[i], wanted[i].acquireOptions = c.beginAcquire(r, r.amount)
	}
	granted, err := c.source.acquireAll(ctx, wanted)
	if err != nil {
		return
	}
	for i, r := range locked {
		c.endAcquire(r, generations[i], granted[i].got)
	}
}

func (c *LeaseCache) isEmpty(le *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.state == leaseEmpty
}

// refill acquires the next chunk before the last one is used up. It doesn't ask
// other nodes. Only requests that need the credits do.
func (c *LeaseCache) refill(r reserveRequest) {
	defer c.record(r.lease, refillEnds)
	if !r.lease.store.TryLock() {
		return // another request is acquiring
	}
	defer r.lease.store.Unlock()
	if !c.leaseValid() || !c.isCached(r.lease) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), refillTimeout)
	defer cancel()
	if r.key.Level == EndUser && c.lower(ctx, keyedLease{r.key, r.lease}) != nil {
		return
	}
	if got, _, err := c.acquire(ctx, r, 1); err != nil || got == 0 {
		// The next requests acquire themselves and report the failure.
		c.mu.Lock()
		r.lease.chunk = 0
		c.mu.Unlock()
	}
}

// ReleaseIdle releases leases that were not used since the last scan, or for longer
// if they are an end user's, and expired credits.
func (c *LeaseCache) ReleaseIdle(ctx context.Context) error {
	return c.release(ctx, func(key accountPeriod, le *lease) bool {
		le.idleScans++
		return le.idleScans > 1 && key.Level != EndUser || le.idleScans > userIdleScans || le.stale > 0
	})
}

// ReleaseUnused releases the unreserved credits of the named account in its
// period. An empty name means all.
func (c *LeaseCache) ReleaseUnused(ctx context.Context, name string) error {
	return c.release(ctx, func(key accountPeriod, _ *lease) bool { return key.String() == name || name == "" })
}

func (c *LeaseCache) release(ctx context.Context, which func(accountPeriod, *lease) bool) error {
	c.mu.Lock()
	var keys []accountPeriod
	for key, le := range c.leases {
		if which(key, le) {
			keys = append(keys, key)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(keys, compare)
	var failed error
	for some := range slices.Chunk(keys, maxShrinks) {
		failed = errors.Join(failed, c.shrinkOrDrop(ctx, some))
	}
	return failed
}

// keyedLease is a lease in the cache.
type keyedLease struct {
	key accountPeriod
	*lease
}

// shrinkOrDrop shrinks leases to their reserved credits, and drops empty ones.
func (c *LeaseCache) shrinkOrDrop(ctx context.Context, keys []accountPeriod) error {
	var list []keyedLease
	for _, key := range keys {
		c.mu.Lock()
		le := c.leases[key]
		c.mu.Unlock()
		if le == nil || !le.store.TryLock() {
			continue // a request that acquires more is using it
		}
		defer le.store.Unlock()
		list = append(list, keyedLease{key, le})
	}
	if err := c.shrink(ctx, list...); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, le := range list {
		if le.granted == 0 && le.reserved == 0 {
			if le.state = le.state.next(dropFromCache); le.state == leaseDropped && c.leases[le.key] == le.lease {
				delete(c.leases, le.key)
			}
		}
	}
	return nil
}

// shrink releases the unreserved credits. The caller holds the leases' store
// locks.
func (c *LeaseCache) shrink(ctx context.Context, list ...keyedLease) error {
	c.mu.Lock()
	for _, le := range list {
		le.granted, le.stale = le.reserved, 0 // first in memory: credits must not be spent while they are released
	}
	c.mu.Unlock()
	return c.lower(ctx, list...)
}

// lower releases what the ledger holds for leases beyond their credits. The caller
// holds their store locks. Requests that end meanwhile leave the ledger with more than
// the lease needs. So the two are certain to agree only at zero.
func (c *LeaseCache) lower(ctx context.Context, list ...keyedLease) error {
	var released []shrinkage
	var emptied []*lease
	c.mu.Lock()
	for _, le := range list {
		if le.state == leaseEmpty && le.granted == 0 {
			continue
		}
		released = append(released, shrinkage{le.key, le.granted})
		if le.granted == 0 {
			emptied = append(emptied, le.lease)
		}
	}
	c.mu.Unlock()
	if len(released) == 0 {
		return nil
	}
	// The ledger's leases still contain charges that are not posted.
	if err := c.post(ctx); err != nil {
		return err
	}
	if err := c.source.shrinkAll(ctx, released); err != nil {
		return err
	}
	for _, le := range emptied {
		c.record(le, shrunkToZero)
	}
	return nil
}

// Run releases credits that are idle or that other nodes ask for, until ctx
// ends.
func (c *LeaseCache) Run(ctx context.Context, d *db.DB) {
	requests := make(chan string, 64)
	d.OnSignal(SignalReclaim, func(name string) {
		select {
		case requests <- name:
		default: // the idle scan releases it
		}
	})
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	for {
		var err error
		select {
		case name := <-requests:
			if err = c.post(ctx); err == nil { // a budget may be new, without a lease
				err = c.ReleaseUnused(ctx, name)
			}
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
