package spend

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
)

// TestMain checks the properties with many more sequences than rapid's default,
// and ten times as many in the long form of the crash tests.
func TestMain(m *testing.M) {
	checks := "10000"
	if os.Getenv("TURNPIKE_CHAOS") == "full" {
		checks = "100000"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// model is a ledger in memory that checks the guarantees of the real ledger at
// every step.
type model struct {
	mu       sync.Mutex
	balances map[accountPeriod]balance
	leases   map[string]map[accountPeriod]credits.Micro // by node
	caches   map[string]*LeaseCache                     // by node
	journals map[string][]charge                        // by node: not posted yet
	evicted  map[string]bool
	faulty   func() bool // reports whether the result of a commit is lost
	// concurrently runs between a node's decision and its transaction.
	concurrently func()
}

// modelSource provides the leases of one node.
type modelSource struct {
	*model
	node string
}

var errLost = errors.New("the answer was lost")

func (m modelSource) acquire(_ context.Context, key accountPeriod, o acquireOptions) (credits.Micro, balance, error) {
	m.concurrently()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.evicted[m.node] {
		return 0, balance{}, nodes.ErrEvicted
	}
	before := m.balances[key]
	room := o.limit - before.Settled - before.Leased
	if room < o.need || room <= 0 {
		return 0, before, nil
	}
	got := min(max(o.need, min(o.want, room/chunkShare)), room)
	m.balances[key] = balance{before.Settled, before.Leased + got}
	m.leases[m.node][key] += got
	if m.faulty() {
		return 0, balance{}, errLost
	}
	return got, before, nil
}

func (m modelSource) acquireAll(ctx context.Context, list []acquisition) ([]grant, error) {
	out := make([]grant, len(list))
	for i, a := range list {
		var err error
		if out[i].got, out[i].before, err = m.acquire(ctx, a.key, a.acquireOptions); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m modelSource) shrink(_ context.Context, key accountPeriod, amount credits.Micro) error {
	m.concurrently()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.evicted[m.node] {
		return nodes.ErrEvicted
	}
	if granted := m.leases[m.node][key]; granted > amount {
		b := m.balances[key]
		m.balances[key] = balance{b.Settled, b.Leased - (granted - amount)}
		m.leases[m.node][key] = amount
	}
	if m.faulty() {
		return errLost
	}
	return nil
}

func (m modelSource) shrinkAll(ctx context.Context, list []shrinkage) error {
	for _, s := range list {
		if err := m.shrink(ctx, s.key, s.keep); err != nil {
			return err
		}
	}
	return nil
}

func (m modelSource) reclaim(ctx context.Context, key accountPeriod) error {
	for node, c := range m.caches {
		if node != m.node {
			_ = c.ReleaseUnused(ctx, key.String())
		}
	}
	return nil
}

// post posts what a node has charged.
func (m modelSource) post(context.Context) error {
	m.concurrently()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.journals[m.node]
	delete(m.journals, m.node)
	for _, c := range list {
		if err := m.settle(c); err != nil {
			panic(err)
		}
	}
	if m.faulty() {
		return errLost
	}
	return nil
}

// settle posts a charge. The caller holds the lock.
func (m *model) settle(c charge) error {
	for _, h := range c.holds {
		b := m.balances[h.key]
		if b.Settled += c.amount; h.lease != nil && c.owner != "" && h.key.Level != EndUser {
			if granted := m.leases[c.owner][h.key]; granted < c.amount {
				return fmt.Errorf("%s has leased %d of %v, less than the charge of %d", c.owner, granted, h.key, c.amount)
			}
			m.leases[c.owner][h.key] -= c.amount
			b.Leased -= c.amount
		}
		m.balances[h.key] = b
	}
	return nil
}

func keysOf(holds []hold) (keys []accountPeriod) {
	for _, h := range holds {
		keys = append(keys, h.key)
	}
	return keys
}

// closeLeases ends an evicted node's leases, after its open requests were
// charged.
func (m *model) closeLeases(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.journals[node] {
		_ = m.settle(charge{holds: c.holds, amount: c.amount})
	}
	delete(m.journals, node)
	for key, granted := range m.leases[node] {
		b := m.balances[key]
		m.balances[key] = balance{b.Settled, b.Leased - granted}
	}
	delete(m.leases, node)
}

// modelNode is one incarnation of a process.
type modelNode struct {
	id   string
	open []*Reservation // requests in progress
}

// TestNoBudgetIsEverOverspent runs random sequences of requests, crashes, lost
// results, evictions of live nodes, temporary raises and new days, weeks and
// months on three nodes.
func TestNoBudgetIsEverOverspent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
		lose := false
		m := &model{balances: map[accountPeriod]balance{}, leases: map[string]map[accountPeriod]credits.Micro{}, caches: map[string]*LeaseCache{}, evicted: map[string]bool{},
			journals: map[string][]charge{}, faulty: func() bool { return lose }}
		joined := 0
		var refills []func() // pending background refills
		// start gives a process a new ID and no state. Its clock never reports
		// an eviction.
		start := func(c *modelNode) {
			delete(m.caches, c.id)
			joined++
			*c = modelNode{id: fmt.Sprint("node_", joined)}
			g := newLeaseCache(modelSource{m, c.id}, c.id, false, func() bool { return true })
			g.reclaimTimeout, g.reclaimPoll = 0, 0
			g.post = modelSource{m, c.id}.post
			g.background = func(refill func()) {
				if rapid.Bool().Draw(rt, "refill now") {
					refill()
				} else {
					refills = append(refills, refill)
				}
			}
			m.caches[c.id], m.leases[c.id] = g, map[accountPeriod]credits.Micro{}
		}
		nodes := []*modelNode{{}, {}, {}}
		for _, c := range nodes {
			start(c)
		}
		// Every request counts toward the first budgets. The others apply to some
		// requests only.
		budgets := []Cap{{Account: Account{Workspace, "ws"}}, {Account: Account{Project, "ws/p"}}, {Account: Account{Key, "key"}},
			{Account: Account{Key, "parent"}}, {Account: Account{KeyLimit, "key/day"}, Window: accounts.WindowDay},
			{Account: Account{KeyLimit, "key/week"}, Window: accounts.WindowWeek}, {Account: Account{ProjectLimit, "ws/p/lifetime"}, Window: accounts.WindowLifetime},
			{Account: Account{EndUser, "eu"}, Window: accounts.WindowDay}}
		const always = 4
		limits := make([]credits.Micro, len(budgets))
		highest := make([]credits.Micro, len(budgets)) // the highest limit so far
		raised := make([]struct {                      // temporarily
			limit credits.Micro
			until time.Time
		}, len(budgets))
		limitOf := func(i int) credits.Micro {
			if now.Before(raised[i].until) {
				return max(limits[i], raised[i].limit)
			}
			return limits[i]
		}
		set := func(i int) {
			limits[i] = credits.Micro(rapid.Int64Range(0, 300).Draw(rt, "limit"))
			highest[i] = max(highest[i], limits[i])
		}
		for i := range budgets {
			set(i)
		}
		draw := func() (caps []Cap) {
			for i, b := range budgets {
				if i < always || rapid.Bool().Draw(rt, "applies") {
					limit := limitOf(i)
					b.Limit = &limit
					caps = append(caps, b)
				}
			}
			return caps
		}
		spent := map[accountPeriod]credits.Micro{}
		// settle charges a request in the journal of its node, or in the ledger if the
		// node is dead.
		settle := func(c charge, journal string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if journal != "" {
				m.journals[journal] = append(m.journals[journal], c)
			} else if err := m.settle(c); err != nil {
				rt.Fatal(err)
			}
			for _, key := range keysOf(c.holds) {
				spent[key] += c.amount
			}
		}
		// evict evicts a node that is dead or seems dead.
		evict := func(c *modelNode) {
			if m.evicted[c.id] {
				return
			}
			m.evicted[c.id] = true
			for _, r := range c.open {
				settle(charge{holds: r.holds, amount: r.Amount}, "")
			}
			m.closeLeases(c.id)
		}
		// end settles a request at a cost. Its node may learn of the commit
		// later. An evicted node can't settle.
		var heard []func()
		end := func(c *modelNode, cost credits.Micro, later bool) {
			r := c.open[0]
			c.open = c.open[1:]
			if cost = min(cost, r.Amount); cost == 0 || m.evicted[c.id] {
				r.Release()
				return
			}
			settle(r.charge(cost), c.id)
			if later {
				heard = append(heard, func() { r.Settled(cost) })
			} else {
				r.Settled(cost)
			}
		}
		endAny := func(c *modelNode, later bool) {
			if len(c.open) > 0 {
				end(c, credits.Micro(rapid.Int64Range(0, 40).Draw(rt, "cost")), later)
			}
		}
		hear := func() {
			for _, f := range heard {
				f()
			}
			heard = nil
		}
		busy := false // true while nodes wait for the ledger
		// In calm runs no result is lost and no node is evicted, and no request
		// that fits may be refused.
		calm := rapid.Bool().Draw(rt, "calm")
		// inProgress returns what requests in progress have reserved. Those of evicted nodes are charged.
		inProgress := func(key accountPeriod) (total credits.Micro) {
			for _, c := range nodes {
				for _, r := range c.open {
					if !m.evicted[c.id] && slices.Contains(keysOf(r.holds), key) {
						total += r.Amount
					}
				}
			}
			return total
		}
		// roomOf returns the credits that are neither charged nor needed by
		// requests in progress.
		roomOf := func(account Account) credits.Micro {
			i := slices.IndexFunc(budgets, func(b Cap) bool { return b.Account == account })
			key := accountPeriod{account, PeriodIn(budgets[i].Window, now)}
			return limitOf(i) - spent[key] - inProgress(key)
		}
		m.concurrently = func() {
			if busy {
				busy = false
				other := rapid.SampledFrom(nodes).Draw(rt, "other")
				if !calm && rapid.IntRange(0, 4).Draw(rt, "evict") == 0 {
					evict(other)
				}
				endAny(other, rapid.Bool().Draw(rt, "later"))
			}
		}
		// within compares the balances of some accounts, or of all, with limits. The ledger
		// doesn't lower the leases of end users with their charges.
		within := func(limit func(i int) credits.Micro, keys []accountPeriod) {
			for key, b := range m.balances {
				if keys != nil && !slices.Contains(keys, key) {
					continue
				}
				i := slices.IndexFunc(budgets, func(b Cap) bool { return b.Account == key.Account })
				total := b.Settled + b.Leased
				if key.Level == EndUser {
					total = spent[key] + inProgress(key)
				}
				if total > limit(i) {
					rt.Fatalf("%v: %d settled and %d leased of %d", key, b.Settled, b.Leased, limit(i))
				}
			}
		}
		check := func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			within(func(i int) credits.Micro { return highest[i] }, nil)
			later := map[accountPeriod]credits.Micro{}
			for _, list := range m.journals {
				for _, c := range list {
					for _, key := range keysOf(c.holds) {
						later[key] += c.amount
					}
				}
			}
			for key, b := range m.balances {
				if b.Settled+later[key] != spent[key] || b.Leased < later[key] {
					rt.Fatalf("%v: got %d settled, %d to be posted and %d leased, want %d settled", key, b.Settled, later[key], b.Leased, spent[key])
				}
			}
			for id, g := range m.caches {
				for key, le := range g.leases {
					stored := m.leases[id][key]
					if le.granted < le.reserved || !m.evicted[id] && le.granted > stored {
						rt.Fatalf("%s has %d of %v, %d reserved; the ledger says %d", id, le.granted, key, le.reserved, stored)
					}
					if le.state == leaseDropped || le.state == leaseEmpty && !m.evicted[id] && stored > 0 {
						rt.Fatalf("%s has a lease of %v in state %d; the ledger says %d", id, key, le.state, stored)
					}
				}
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			c := rapid.SampledFrom(nodes).Draw(rt, "node")
			g := m.caches[c.id]
			lose = rapid.IntRange(0, 19).Draw(rt, "fault") == 0 && !calm
			busy = rapid.IntRange(0, 3).Draw(rt, "busy") == 0
			quiet := !busy
			step := rapid.IntRange(0, 14).Draw(rt, "step")
			if calm && (step == 8 || step == 9) {
				step = 7
			}
			switch step {
			case 0, 1, 2, 3:
				amount := credits.Micro(rapid.Int64Range(1, 40).Draw(rt, "amount"))
				r, err := g.Reserve(ctx, draw(), amount, now)
				var refusal *Refusal
				switch {
				case err == nil && m.evicted[c.id]:
					r.Release() // the intent can't be written
				case err == nil:
					c.open = append(c.open, r)
					within(limitOf, keysOf(r.holds)) // regardless of the limits at the start
				case errors.As(err, &refusal):
					if room := roomOf(refusal.Account); calm && quiet && amount <= room {
						rt.Fatalf("%d of the %s were refused, and %d are left", amount, refusal.Level, room)
					}
				case errors.Is(err, errLost), m.evicted[c.id] && errors.Is(err, db.ErrUnavailable):
				default:
					rt.Fatal(err)
				}
			case 4, 5, 6:
				endAny(c, false)
			case 7:
				_ = g.ReleaseIdle(ctx)
			case 8: // the process crashes and restarts
				evict(c)
				start(c)
			case 9: // other nodes evict it without its knowledge
				evict(c)
			case 10: // it learns of the eviction
				if m.evicted[c.id] {
					start(c)
				}
			case 11:
				now = now.Add(20 * time.Hour)
			case 12:
				set(rapid.IntRange(0, len(limits)-1).Draw(rt, "account"))
				for _, g := range m.caches {
					g.expireLeases("")
				}
			case 14:
				_ = g.post(ctx)
			case 13: // ends without a signal
				i := rapid.IntRange(0, len(limits)-1).Draw(rt, "account")
				raised[i].limit = limits[i] + credits.Micro(rapid.Int64Range(1, 100).Draw(rt, "raise"))
				raised[i].until = now.Add(30 * time.Hour)
				highest[i] = max(highest[i], raised[i].limit)
				for _, g := range m.caches {
					g.expireLeases("")
				}
			}
			lose, busy = false, false
			for _, refill := range refills {
				refill()
			}
			refills = nil
			hear()
			check()
		}
		// Without requests nothing is reserved.
		for _, c := range nodes {
			for len(c.open) > 0 {
				end(c, 0, false)
			}
			for range userIdleScans + 2 {
				_ = m.caches[c.id].ReleaseIdle(ctx)
			}
			_ = m.caches[c.id].post(ctx)
		}
		check()
		for key, b := range m.balances {
			if b.Leased != 0 {
				rt.Fatalf("%v: %d are still leased", key, b.Leased)
			}
		}
	})
}

// TestConcurrentCallsOnTwoNodesSpendExactlyTheBudget runs on a real database,
// while a period of each window ends and the next one begins.
func TestConcurrentCallsOnTwoNodesSpendExactlyTheBudget(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		const budget, calls = 50, 1000
		limit, ample := budget*credits.Credit, 2*calls*credits.Credit
		type node struct {
			*Ledger
			cache *LeaseCache
		}
		nodes := make([]node, 2)
		if address[:8] != "postgres" {
			nodes = nodes[:1] // the embedded database has one server
		}
		for i := range nodes {
			d := dbtest.Open(t, address)
			n := node{Ledger: NewLedger(d)}
			n.cache = n.LeaseCache(join(t, d))
			d.OnSignal(SignalReclaim, func(payload string) {
				go func() { _ = n.cache.ReleaseUnused(context.Background(), payload) }()
			})
			nodes[i] = n
		}
		for _, w := range accounts.Windows {
			now := time.Now()
			times := []time.Time{now}
			if end := PeriodIn(w, now).End(); !end.IsZero() {
				times = []time.Time{end.Add(-time.Microsecond), end}
			}
			account := Account{KeyLimit, string(w)}
			caps := []Cap{{account, w, &limit}}
			for _, other := range accounts.Windows { // budgets with enough left
				caps = append(caps, Cap{Account{KeyLimit, string(w) + "/" + string(other)}, other, &ample})
			}
			served := make([]atomic.Int64, len(times))
			call := func(n node, at int) {
				r, err := retryWhileUnavailable(func() (*Reservation, error) {
					return n.cache.Reserve(context.Background(), caps, credits.Credit, times[at])
				})
				if refusal, refused := errors.AsType[*Refusal](err); refused && refusal.Account == account {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				served[at].Add(1)
				_, err = retryWhileUnavailable(func() (struct{}, error) {
					return struct{}{}, n.db.Write(context.Background(), func(tx *db.Tx) error {
						return n.Settle(context.Background(), tx, []charge{r.charge(credits.Credit)})
					})
				})
				if err != nil {
					t.Error(err)
				}
				r.Settled(credits.Credit)
			}
			var all sync.WaitGroup
			for i := range calls {
				all.Go(func() { call(nodes[i%len(nodes)], i/len(nodes)%len(times)) })
			}
			all.Wait()
			for at := range times {
				// On a busy machine, all of them may be refused before the other node has released its lease.
				for retries := 0; served[at].Load() < budget && retries < calls; retries++ {
					call(nodes[0], at)
				}
				if n := served[at].Load(); n != budget {
					t.Errorf("%d calls were served by a budget for %d in a %s", n, budget, w)
				}
				got, err := ReadBalance(t.Context(), nodes[0].db, account, PeriodIn(w, times[at]))
				if err != nil || got.Spent != limit || got.Reserved != 0 {
					t.Errorf("the ledger has %+v in a %s (%v), want %s spent", got, w, err, limit)
				}
			}
		}
	})
}

// retryWhileUnavailable repeats what a busy database had no connection for.
func retryWhileUnavailable[T any](do func() (T, error)) (out T, err error) {
	for {
		if out, err = do(); !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrInDoubt) {
			return out, err
		}
	}
}

// TestUnusedLeasesOfOtherNodesAreReclaimed checks that this happens before a
// request is refused.
func TestUnusedLeasesOfOtherNodesAreReclaimed(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	limit := 64 * credits.Credit
	budgets := []Cap{{Account: Account{Workspace, "ws"}, Limit: &limit}}
	caches := make([]*LeaseCache, 2)
	for n := range caches {
		d := dbtest.Open(t, address)
		c := NewLedger(d).LeaseCache(join(t, d))
		c.reclaimTimeout = time.Hour // the request waits as long as necessary
		d.OnSignal(SignalReclaim, func(name string) { go func() { _ = c.ReleaseUnused(context.Background(), name) }() })
		caches[n] = c
	}
	// The first node has leased more than it uses.
	if _, err := caches[0].Reserve(t.Context(), budgets, credits.Credit, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := caches[1].Reserve(t.Context(), budgets, limit-credits.Credit, time.Now()); err != nil {
		t.Fatalf("got %v with one credit in use, want a reservation of the rest", err)
	}
}

// TestNodesThatWaitForEachOtherServeOneCall covers two nodes that together hold
// what one of them needs. They must not both keep too little.
func TestNodesThatWaitForEachOtherServeOneCall(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	limit := 10 * credits.Credit
	budgets := []Cap{{Account: Account{Workspace, "ws"}, Limit: &limit}}
	ctx, cancel := context.WithCancel(t.Context())
	var ready, all sync.WaitGroup
	ready.Add(2)
	results := make(chan error, 2)
	for range 2 {
		d := dbtest.Open(t, address)
		c := NewLedger(d).LeaseCache(join(t, d))
		c.reclaimTimeout = time.Hour
		d.OnSignal(SignalReclaim, func(name string) { go func() { _ = c.ReleaseUnused(context.Background(), name) }() })
		all.Go(func() {
			_, err := c.Reserve(ctx, budgets, credits.Credit, time.Now())
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			ready.Wait()
			_, err = c.Reserve(ctx, budgets, 8*credits.Credit, time.Now())
			results <- err
		})
	}
	if err := <-results; err != nil {
		t.Errorf("got %v for the first, want a reservation", err)
	}
	cancel() // the other request waits and doesn't fit
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v for the second, want it to wait", err)
	}
	all.Wait()
}

// TestLeaseTransitionsMatchTheDiagram checks every transition against the diagram in the package
// comment.
func TestLeaseTransitionsMatchTheDiagram(t *testing.T) {
	t.Parallel()
	want := map[leaseState]map[leaseEvent]leaseState{
		leaseEmpty:     {acquireBegins: leaseHeld, dropFromCache: leaseDropped},
		leaseHeld:      {refillBegins: leaseRefilling, shrunkToZero: leaseEmpty},
		leaseRefilling: {refillEnds: leaseHeld, shrunkToZero: leaseEmpty},
		leaseDropped:   {},
	}
	for s := leaseEmpty; s <= leaseDropped; s++ {
		for e := acquireBegins; e <= dropFromCache; e++ {
			next, changes := want[s][e]
			if !changes {
				next = s
			}
			if got := s.next(e); got != next {
				t.Errorf("state %d, event %d: got %d, want %d", s, e, got, next)
			}
		}
	}
}

// TestNextChunkIsAcquiredBeforeItIsNeeded checks that no request waits for the
// ledger once there is a lease, as long as credits are left.
func TestNextChunkIsAcquiredBeforeItIsNeeded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ledger := NewLedger(d)
		g := ledger.LeaseCache(join(t, d))
		refills := 0
		g.background = func(f func()) { refills++; f() }
		limit, now := 1000*credits.Credit, time.Now()
		caps := []Cap{{Account: Account{Key, "key_1"}, Limit: &limit}}
		for n := range 1000 {
			before := refills
			if _, err := g.Reserve(t.Context(), caps, credits.Credit, now); err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			g.mu.Lock()
			le := g.leases[accountPeriod{caps[0].Account, PeriodOf(now)}]
			free := le.granted - le.reserved
			g.mu.Unlock()
			b, err := ReadBalance(t.Context(), d, caps[0].Account, PeriodOf(now))
			if err != nil {
				t.Fatal(err)
			}
			if b.Reserved > limit {
				t.Fatalf("call %d: %s are leased of %s", n, b.Reserved, limit)
			}
			// The last chunks hold one request each.
			if free == 0 && b.Reserved < limit-16*credits.Credit && refills == before {
				t.Errorf("call %d has used up the lease, and the next would wait", n)
			}
		}
		if refills < 10 {
			t.Errorf("%d chunks were taken ahead", refills)
		}
		var refusal *Refusal
		if _, err := g.Reserve(t.Context(), caps, credits.Credit, now); !errors.As(err, &refusal) {
			t.Errorf("one too many: %v", err)
		}
	})
}

// hookedSource runs a function before each shrink.
type hookedSource struct {
	leaseSource
	before func()
}

func (s hookedSource) shrinkAll(ctx context.Context, list []shrinkage) error {
	s.before()
	return s.leaseSource.shrinkAll(ctx, list)
}

// TestChargeDuringAShrinkLeavesNothingReserved covers a request that ends after
// its node decided how much to keep and before the ledger changed.
func TestChargeDuringAShrinkLeavesNothingReserved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for name, knows := range map[string]bool{"the node knows": true, "the node learns of it afterwards": false} {
			t.Run(name, func(t *testing.T) {
				ledger := NewLedger(d)
				g := ledger.LeaseCache(join(t, d))
				limit, now := 1000*credits.Credit, time.Now()
				account := Account{Key, name}
				caps := []Cap{{Account: account, Limit: &limit}}
				r, err := g.Reserve(t.Context(), caps, 10*credits.Credit, now)
				if err != nil {
					t.Fatal(err)
				}
				g.source = hookedSource{g.source, func() {
					if r == nil {
						return
					}
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						return ledger.Settle(t.Context(), tx, []charge{r.charge(r.Amount)})
					})
					if err != nil {
						t.Error(err)
					}
					if knows {
						r.Settled(r.Amount)
						r = nil
					}
				}}
				if err := g.ReleaseUnused(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				if !knows {
					done := r
					r = nil
					done.Settled(done.Amount)
				}
				// The next request can reserve everything that is left.
				next, err := g.Reserve(t.Context(), caps, 990*credits.Credit, now)
				if err != nil {
					t.Fatal(err)
				}
				next.Release()
				if err := g.ReleaseUnused(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				if b, err := ReadBalance(t.Context(), d, account, PeriodOf(now)); err != nil || b.Spent != 10*credits.Credit || b.Reserved != 0 {
					t.Errorf("got %+v (%v), want 10 spent and nothing reserved", b, err)
				}
			})
		}
	})
}

// TestLimitLoweredAgainAfterARaiseHolds covers a node that has leased a whole
// limit. The limit is raised, another node leases the rest, and the limit is
// lowered again. The first node must not spend its unused credits then, though
// it leased them under the current limit.
func TestLimitLoweredAgainAfterARaiseHolds(t *testing.T) {
	t.Parallel()
	account := Account{Key, "key_1"}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ledger := NewLedger(d)
		one, other := ledger.LeaseCache(join(t, d)), ledger.LeaseCache(join(t, d))
		one.reclaimTimeout = 0
		now := time.Now()
		reserve := func(g *LeaseCache, limit credits.Micro) (*Reservation, error) {
			return g.Reserve(t.Context(), []Cap{{Account: account, Limit: &limit}}, credits.Credit, now)
		}
		first, err := reserve(one, credits.Credit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reserve(other, 2*credits.Credit); err != nil {
			t.Fatal(err)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error { ReclaimLeases(tx, account, PeriodOf(now)); return nil })
		if err != nil {
			t.Fatal(err)
		}
		first.Release()
		var refusal *Refusal
		if _, err := reserve(one, credits.Credit); !errors.As(err, &refusal) {
			t.Errorf("got %v for a call beyond the limit, want a refusal", err)
		}
	})
}

// changingSource changes the limit during the first acquire.
type changingSource struct {
	leaseSource
	cache    *LeaseCache
	acquires int
}

func (s *changingSource) acquire(ctx context.Context, key accountPeriod, o acquireOptions) (credits.Micro, balance, error) {
	got, before, err := s.leaseSource.acquire(ctx, key, o)
	if s.acquires++; s.acquires == 1 {
		s.cache.expireLeases("")
	}
	return got, before, err
}

func TestLeaseAcquiredDuringALimitChangeIsAcquiredAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := NewLedger(d).LeaseCache(join(t, d))
		s := &changingSource{leaseSource: c.source, cache: c}
		c.source, c.background = s, nil
		limit := 10 * credits.Credit
		if _, err := c.Reserve(t.Context(), []Cap{{Account: Account{Key, "key_1"}, Limit: &limit}}, credits.Credit, time.Now()); err != nil || s.acquires != 2 {
			t.Errorf("got %d acquires (%v), want 2", s.acquires, err)
		}
	})
}

// TestRefillUnderAnEndedRaiseIsNotSpent covers a refill that starts after the raise of its
// request has ended. Its credits were never part of the lower limit.
func TestRefillUnderAnEndedRaiseIsNotSpent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := NewLedger(d).LeaseCache(join(t, d))
		c.reclaimTimeout = 0
		var refill func()
		c.background = func(f func()) { refill = f }
		now := time.Now()
		reserve := func(limit credits.Micro) error {
			_, err := c.Reserve(t.Context(), []Cap{{Account: Account{Key, "key_1"}, Limit: &limit}}, credits.Credit, now)
			return err
		}
		for refill == nil {
			if err := reserve(64 * credits.Credit); err != nil {
				t.Fatal(err)
			}
		}
		var refusal *Refusal
		if err := reserve(credits.Credit); !errors.As(err, &refusal) {
			t.Fatalf("got %v under the lower limit, want a refusal", err)
		}
		refill()
		if b, err := ReadBalance(t.Context(), d, Account{Key, "key_1"}, PeriodOf(now)); err != nil || b.Reserved <= credits.Credit {
			t.Fatalf("got %v leased (%v), want more than the lower limit", b.Reserved, err)
		}
		if err := reserve(credits.Credit); !errors.As(err, &refusal) {
			t.Errorf("got %v after a refill under the raised limit, want a refusal", err)
		}
	})
}

// TestReservedNeverExceedsTheRemainingBudget covers leases under a higher
// limit, which are being released, and free credits, which don't block
// requests.
func TestReservedNeverExceedsTheRemainingBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		b                 balance
		limit, free, want credits.Micro
	}{
		{balance{Settled: 3, Leased: 4}, 10, 1, 3},
		{balance{Settled: 3, Leased: 40}, 10, 0, 7},
		{balance{Settled: 30, Leased: 4}, 10, 0, 0},
		{balance{Settled: 3, Leased: 4}, 10, 5, 0},
	} {
		if got := tt.b.reservedBy(tt.limit, tt.free); got != tt.want {
			t.Errorf("%+v under %d, of which %d are free: %d are reserved", tt.b, tt.limit, tt.free, got)
		}
	}
}

// TestTransferLocksBalancesInLedgerOrder covers a reservation in another order.
// It would hold the workspace's balance while it waits for the key's.
func TestTransferLocksBalancesInLedgerOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			return // the embedded database has one writer
		}
		o := newFixture(t, d, 100*credits.Credit)
		key, period := Account{Key, "key_1"}, PeriodOf(o.now)
		r, err := o.cache.Reserve(t.Context(), []Cap{{Account: o.account(), Limit: o.workspace.MonthlyCredits}, {Account: key, Limit: o.workspace.MonthlyCredits}}, credits.Credit, o.now)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		var busy error
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := lockBalance(t.Context(), tx, accountPeriod{key, period}); err != nil {
				return err
			}
			go func() {
				ended <- d.Write(t.Context(), func(tx *db.Tx) error {
					r.TransferToJob(tx, "job_1")
					return nil
				})
			}()
			dbtest.AwaitBlocked(t, d, tx)
			var settled int64
			busy = d.Write(t.Context(), func(tx *db.Tx) error {
				return tx.QueryRow(t.Context(), "SELECT settled FROM spend WHERE level = $1 AND account_id = $2 AND period = $3 FOR UPDATE NOWAIT",
					string(Workspace), o.workspace.ID, string(period)).Scan(&settled)
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || busy != nil {
			t.Errorf("it holds the workspace's line meanwhile: %v (%v)", busy, err)
		}
		r.Transferred(nil)
		o.even()
	})
}

// TestTransferFailsIfTheLeaseIsTooSmall covers a lease that was partly released
// to others.
func TestTransferFailsIfTheLeaseIsTooSmall(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		r := o.reserve(10 * credits.Credit)
		o.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE spend_leases SET granted = $1", int64(3*credits.Credit))
			return err
		})
		err := d.Write(t.Context(), func(tx *db.Tx) error { r.TransferToJob(tx, "job_1"); return nil })
		r.Transferred(err)
		if n, sum := o.leases(); err == nil || n != 0 {
			t.Errorf("%s were handed over: %v", sum, err)
		}
	})
}

// TestTokensOfACommitSaturate covers any number of settled requests.
func TestTokensOfACommitSaturate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		list := make([]audit.Settlement, 3)
		for i := range list {
			e, tokens := o.entry(nil, 1), int64(1)<<62
			e.InputTokens, e.OutputTokens = &tokens, &tokens
			list[i].Entry = e
		}
		o.settleEntries(list...)
		if u := o.used("live"); u.Requests != 3 || u.InputTokens != int64(credits.Max) || u.OutputTokens != int64(credits.Max) || u.Credits != 3 {
			t.Errorf("usage is %+v", u)
		}
	})
}
