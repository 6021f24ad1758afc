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

// bank is where a ledger gets its leases: the store, shared with other nodes.
type bank interface {
	// take leases at least need and at most want of what the line has left
	// under the limit, or nothing. It returns what was spent and leased by
	// everybody before, for the refusal.
	take(ctx context.Context, l line, limit, need, want credits.Micro) (got credits.Micro, left balance, err error)
	// keep lowers the node's lease of the line to the amount; the rest is
	// everybody's again. A second time changes nothing.
	keep(ctx context.Context, l line, amount credits.Micro) error
	// recall asks every other node to give back what it does not use of the line.
	recall(ctx context.Context, l line) error
}

// balance is a line of the books.
type balance struct {
	Settled credits.Micro // charged
	Leased  credits.Micro // handed out to nodes and neither charged nor given back
}

// asideOf is what is set aside, without what is free to whoever asks. Leases
// from before a limit was lowered are on their way back: beyond the limit only
// charges count.
func (b balance) asideOf(limit, free credits.Micro) credits.Micro {
	return max(0, min(b.Leased-free, limit-b.Settled))
}

const (
	// chunkCalls is for how many calls like this one a lease is taken at once,
	// and chunkShare of what is left it is at most: chunks shrink near the end.
	chunkCalls = 64
	chunkShare = 8

	// recallPatience is how long a refusal waits for other nodes to give back
	// what they do not use, recallPoll how often it looks.
	recallPatience = time.Second
	recallPoll     = 25 * time.Millisecond

	// refillAt is at which part of a chunk the next one is taken, so that calls
	// do not wait for it, and refillPatience how long that may take.
	refillAt       = 2
	refillPatience = 5 * time.Second

	// idleAfter is how long a lease may lie about unused.
	idleAfter = 5 * time.Second
)

// Ledger is this node's share of the budgets.
type Ledger struct {
	bank     bank
	owner    string      // the node's ID, in whose name leases are taken
	alone    bool        // no other node can have anything to give back
	sure     func() bool // nobody else can have closed our leases
	patience time.Duration
	poll     time.Duration
	aside    func(func()) // runs what nobody waits for; nil for not at all

	assertAlive func(context.Context, *db.Tx) error // fails once the node is evicted

	mu     sync.Mutex
	leases map[line]*lease
}

// lease is what this node has of a line. The store may think that it has more,
// when the answer to a commit was lost, and never that it has less.
type lease struct {
	mu       sync.Mutex // held while the store changes it, so that a crowd takes once
	granted  credits.Micro
	reserved credits.Micro
	limit    credits.Micro // the highest that it was taken under
	stale    credits.Micro // of granted: from before the limit changed, to be given back and not spent
	changes  int           // how often that was
	chunk    credits.Micro // that was taken last
	filling  bool          // the next one is on its way
	used     bool          // since the last look for idle ones
	unsure   bool          // the store may think that it is more

	refused *Refusal      // the last time that there was no room, after everybody was asked
	asked   time.Time     // when that was
	wanted  credits.Micro // and for how much
}

func newLedger(b bank, owner string, alone bool, sure func() bool) *Ledger {
	return &Ledger{bank: b, owner: owner, alone: alone, sure: sure, patience: recallPatience, poll: recallPoll, leases: map[line]*lease{}}
}

// Refusal says which cap has no room.
type Refusal struct {
	Account
	Limit    credits.Micro
	Spent    credits.Micro // charged
	Reserved credits.Micro // set aside, for calls and jobs under way
	Resets   time.Time
	// Passing: only what is set aside is in the way, and there may be room when
	// those calls end. Of all others a second try changes nothing.
	Passing bool
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("the %s has spent %s of %s, and %s are set aside", r.Level, r.Spent, r.Limit, r.Reserved)
}

// Left is what neither was charged nor is set aside.
func (r *Refusal) Left() credits.Micro { return r.Limit - r.Spent - r.Reserved }

// Of is the refusal for a call that needs the amount.
func (r *Refusal) Of(amount credits.Micro) *Refusal {
	out := *r
	// What was set aside may have ended since it was looked at.
	out.Passing = r.Level != Run && r.Limit > 0 && amount <= r.Limit-r.Spent
	return &out
}

// Passing reports whether err is, or wraps, a refusal that calls under way are
// the only reason of. Whoever can wait may try again when some have ended.
func Passing(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Passing
}

// Reservation is an upper bound that was set aside under every cap. It is
// settled or released once; the month it was made in stays its month.
type Reservation struct {
	Amount credits.Micro

	ledger *Ledger
	lines  []line // every account that is charged, whether it has a limit or not
	holds  []hold
	once   sync.Once
}

// hold is what a reservation has of one line.
type hold struct {
	line    line
	lease   *lease
	changes int // the lease's when it was made
}

// Reserve holds the amount under every cap, or under none and returns a
// *Refusal.
func (g *Ledger) Reserve(ctx context.Context, caps []Cap, amount credits.Micro, now time.Time) (*Reservation, error) {
	r := &Reservation{Amount: amount, ledger: g}
	period := PeriodOf(now)
	ordered := slices.SortedFunc(slices.Values(caps), func(a, b Cap) int { return compare(line{a.Account, period}, line{b.Account, period}) })
	for _, c := range ordered {
		l := line{c.Account, period}
		r.lines = append(r.lines, l)
		if c.Limit == nil {
			continue
		}
		h, err := g.hold(ctx, l, *c.Limit, amount)
		if err != nil {
			r.end(0)
			return nil, err
		}
		r.holds = append(r.holds, h)
	}
	return r, nil
}

// hold reserves under one cap.
func (g *Ledger) hold(ctx context.Context, l line, limit, amount credits.Micro) (hold, error) {
	if !g.sure() {
		return hold{}, nodes.ErrLeaseExpired
	}
	came := time.Now()
	for {
		g.mu.Lock()
		le := g.leases[l]
		if le == nil {
			le = &lease{}
			g.leases[l] = le
		}
		if le.fits(limit, amount) {
			h := hold{l, le, le.changes}
			low := g.aside != nil && !le.filling && le.free() < le.chunk/refillAt
			le.filling = le.filling || low
			g.mu.Unlock()
			if low {
				g.aside(func() { g.refill(l, le, limit, amount) })
			}
			return h, nil
		}
		g.mu.Unlock()
		le.mu.Lock()
		if g.current(l, le) {
			h, err := g.holdMore(ctx, l, le, limit, amount, came)
			le.mu.Unlock()
			return h, err
		}
		le.mu.Unlock() // it was given back while we waited for it
	}
}

func (g *Ledger) current(l line, le *lease) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leases[l] == le
}

// free is what may be reserved. The ledger's lock is held.
func (le *lease) free() credits.Micro { return le.granted - le.reserved - le.stale }

// fits reserves if the lease has room; what was taken under a higher limit is
// none. The ledger's lock is held.
func (le *lease) fits(limit, amount credits.Micro) bool {
	if limit < le.limit {
		le.limit = limit
		le.expire()
	}
	if limit <= 0 || le.free() < amount {
		return false
	}
	le.reserved += amount
	le.used = true
	return true
}

// expire has all that is granted given back instead of spent, also what is
// reserved now and not needed in the end. The ledger's lock is held.
func (le *lease) expire() {
	le.stale = le.granted - le.reserved
	le.changes++
}

// changed is for a limit that was set anew; no name means any. Under one that
// was raised and is lowered again others may have taken what this node counts on.
func (g *Ledger) changed(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l, le := range g.leases {
		if l.String() == name || name == "" {
			le.expire()
		}
	}
}

// holdMore takes a chunk from the bank first. When there is nothing left, what
// other nodes have and do not use is called back, and what calls under way do
// not need is waited for, before anybody is refused.
// Whoever came while that was done shares the outcome: a crowd does not wait
// one by one. The lease's lock is held.
func (g *Ledger) holdMore(ctx context.Context, l line, le *lease, limit, amount credits.Micro, came time.Time) (hold, error) {
	var recalled time.Time
	swept := false
	for {
		g.mu.Lock()
		if le.fits(limit, amount) { // somebody before us in line took enough
			h := hold{l, le, le.changes}
			g.mu.Unlock()
			return h, nil
		}
		free, stale := le.free(), le.stale
		need := amount - free
		le.unsure = true
		g.mu.Unlock()
		if stale > 0 { // which we would be refused for
			if err := g.lower(ctx, l, le); err != nil {
				return hold{}, err
			}
			continue
		}
		if le.refused != nil && le.asked.After(came) && need >= le.wanted && le.refused.Limit == limit {
			return hold{}, le.refused.Of(amount)
		}
		got, left, err := g.take(ctx, l, le, limit, need, amount)
		if err != nil {
			return hold{}, err
		}
		if got > 0 {
			continue
		}
		refusal := (&Refusal{Account: l.Account, Limit: limit, Spent: left.Settled, Reserved: left.asideOf(limit, free), Resets: l.Period.Ends()}).Of(amount)
		spent := !refusal.Passing
		last := spent || g.alone && !g.inUse(le) || !recalled.IsZero() && time.Since(recalled) > g.patience
		if last && !spent && !swept {
			// What calls have cost that ended while some was given back is in
			// the books twice, until the store hears again what we keep.
			swept = true
			if err := g.lower(ctx, l, le); err != nil {
				return hold{}, err
			}
			continue
		}
		if last {
			le.refused, le.asked, le.wanted = refusal, time.Now(), need
			return hold{}, refusal
		}
		if free > 0 && !g.alone {
			// Two nodes that wait for each other must not both keep too little.
			if err := g.lower(ctx, l, le); err != nil {
				return hold{}, err
			}
		}
		if recalled.IsZero() {
			recalled = time.Now()
			if err := g.bank.recall(ctx, l); err != nil {
				return hold{}, err
			}
		}
		select {
		case <-time.After(g.poll):
		case <-ctx.Done():
			return hold{}, ctx.Err()
		}
	}
}

// take leases a chunk for calls of the amount, or nothing. The lease's lock is
// held.
func (g *Ledger) take(ctx context.Context, l line, le *lease, limit, need, amount credits.Micro) (got credits.Micro, left balance, err error) {
	g.mu.Lock()
	changes := le.changes
	g.mu.Unlock()
	got, left, err = g.bank.take(ctx, l, limit, need, max(need, min((limit-amount)/chunkShare, chunkCalls*amount)))
	if err == nil && got > 0 {
		g.mu.Lock()
		le.granted += got
		if le.changes != changes {
			le.stale += got
		}
		le.limit = max(le.limit, limit)
		le.chunk = got
		g.mu.Unlock()
	}
	return got, left, err
}

// refill takes the next chunk before the last one is used up. When there is
// none left nobody is asked for it: that is for calls that need it.
func (g *Ledger) refill(l line, le *lease, limit, amount credits.Micro) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		le.filling = false
	}()
	if !le.mu.TryLock() {
		return // somebody does already
	}
	defer le.mu.Unlock()
	if !g.sure() || !g.current(l, le) {
		return
	}
	g.mu.Lock()
	le.unsure = true
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), refillPatience)
	defer cancel()
	got, _, err := g.take(ctx, l, le, limit, 1, amount)
	if err != nil || got == 0 {
		// The calls to come ask for themselves, and say why they cannot be.
		g.mu.Lock()
		le.chunk = 0
		g.mu.Unlock()
	}
}

// inUse reports whether calls of ours are under way, which may cost less than
// was set aside for them.
func (g *Ledger) inUse(le *lease) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return le.reserved > 0
}

// end takes a charge out of what a reservation held, and gives the rest back,
// in memory.
func (r *Reservation) end(charge credits.Micro) {
	g := r.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range r.holds {
		h.lease.reserved -= r.Amount
		h.lease.granted -= charge
		if h.changes != h.lease.changes {
			h.lease.stale += r.Amount - charge
		}
	}
}

// Accounts is every account that the request will be charged to, for the log.
func (r *Reservation) Accounts() json.RawMessage { return encodeLines(r.lines) }

// Release ends a reservation that costs nothing.
func (r *Reservation) Release() { r.once.Do(func() { r.end(0) }) }

// Settled ends a reservation whose charge the store has booked, out of the
// lease: see postings. It must be called after that commit.
func (r *Reservation) Settled(charge credits.Micro) {
	r.once.Do(func() { r.end(min(charge, r.Amount)) })
}

// GiveBackIdle returns what was not used since the last time. With what other
// nodes asked for back it does not wait for that.
func (g *Ledger) GiveBackIdle(ctx context.Context) error {
	return g.giveBack(ctx, func(_ line, le *lease) bool {
		used := le.used
		le.used = false
		return !used || le.stale > 0
	})
}

// Recalled returns what is not in use of the account's lines.
func (g *Ledger) Recalled(ctx context.Context, name string) error {
	return g.giveBack(ctx, func(l line, _ *lease) bool { return l.String() == name || name == "" })
}

func (g *Ledger) giveBack(ctx context.Context, which func(line, *lease) bool) error {
	g.mu.Lock()
	var list []line
	for l, le := range g.leases {
		if which(l, le) && (le.unsure || le.granted > le.reserved || le.granted == 0) {
			list = append(list, l)
		}
	}
	g.mu.Unlock()
	slices.SortFunc(list, compare)
	var failed error
	for _, l := range list {
		failed = errors.Join(failed, g.shrink(ctx, l))
	}
	return failed
}

// shrink lowers a lease to what is reserved of it.
func (g *Ledger) shrink(ctx context.Context, l line) error {
	g.mu.Lock()
	le := g.leases[l]
	g.mu.Unlock()
	if le == nil || !le.mu.TryLock() {
		return nil // whoever takes more for it is not idle
	}
	defer le.mu.Unlock()
	if err := g.lower(ctx, l, le); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if le.granted == 0 && le.reserved == 0 && !le.unsure && g.leases[l] == le {
		delete(g.leases, l)
	}
	return nil
}

// lower gives back what is not reserved. The lease's lock is held. Calls that
// end meanwhile have less of the lease than the store is told to keep, so that
// only without any the two agree for sure.
func (g *Ledger) lower(ctx context.Context, l line, le *lease) error {
	g.mu.Lock()
	le.granted, le.stale = le.reserved, 0 // first here: it must not be spent while it is on its way back
	keep := le.granted
	le.unsure = true
	g.mu.Unlock()
	if err := g.bank.keep(ctx, l, keep); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	le.unsure = keep > 0
	return nil
}

// Run gives back what this node does not use, and what others ask for, until
// ctx ends.
func (g *Ledger) Run(ctx context.Context, d *db.DB) {
	recalls := make(chan string, 64)
	d.OnSignal(SignalRecall, func(payload string) {
		select {
		case recalls <- payload:
		default: // what was not heard is given back when it is idle
		}
	})
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	for {
		var err error
		select {
		case name := <-recalls:
			err = g.Recalled(ctx, name)
		case <-tick.C:
			err = g.GiveBackIdle(ctx)
		case <-ctx.Done():
			return
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("could not give credits back; it is tried again", "error", err)
		}
	}
}
