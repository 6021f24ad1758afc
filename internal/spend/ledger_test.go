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

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
)

// TestMain has the properties checked for many more sequences than by default,
// and in the long form of the crash tests for ten times as many again.
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

// model is a bank in memory that checks every move: what the ledger in the
// database promises, without the database.
type model struct {
	mu      sync.Mutex
	lines   map[line]balance
	leases  map[string]map[line]credits.Micro // by node
	ledgers map[string]*Ledger                // by node
	evicted map[string]bool
	faulty  func() bool // the answer to a commit is lost
	// concurrently runs between a node's decision and its transaction.
	concurrently func()
}

// modelBank is the bank of one node.
type modelBank struct {
	*model
	node string
}

var errLost = errors.New("the answer was lost")

func (m modelBank) take(_ context.Context, l line, limit, need, want credits.Micro) (credits.Micro, balance, error) {
	m.concurrently()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.evicted[m.node] {
		return 0, balance{}, nodes.ErrEvicted
	}
	left := m.lines[l]
	room := limit - left.Settled - left.Leased
	if room < need || room <= 0 {
		return 0, left, nil
	}
	got := min(max(need, min(want, room/chunkShare)), room)
	m.lines[l] = balance{left.Settled, left.Leased + got}
	m.leases[m.node][l] += got
	if m.faulty() {
		return 0, balance{}, errLost
	}
	return got, left, nil
}

func (m modelBank) keep(_ context.Context, l line, amount credits.Micro) error {
	m.concurrently()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.evicted[m.node] {
		return nodes.ErrEvicted
	}
	if granted := m.leases[m.node][l]; granted > amount {
		left := m.lines[l]
		m.lines[l] = balance{left.Settled, left.Leased - (granted - amount)}
		m.leases[m.node][l] = amount
	}
	if m.faulty() {
		return errLost
	}
	return nil
}

func (m modelBank) recall(ctx context.Context, l line) error {
	for node, g := range m.ledgers {
		if node != m.node {
			_ = g.Recalled(ctx, l.String())
		}
	}
	return nil
}

// settle books a charge as the settlement of a log entry does.
func (m *model) settle(c charge) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range c.lines {
		left := m.lines[l]
		m.lines[l] = balance{left.Settled + c.amount, left.Leased}
	}
	for _, h := range c.leased {
		if granted := m.leases[h.owner][h.line]; granted < c.amount {
			return fmt.Errorf("%s has leased %d of %v, less than the charge of %d", h.owner, granted, h.line, c.amount)
		}
		m.leases[h.owner][h.line] -= c.amount
		left := m.lines[h.line]
		m.lines[h.line] = balance{left.Settled, left.Leased - c.amount}
	}
	return nil
}

// close ends an evicted node's leases, after its open calls were charged.
func (m *model) close(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l, granted := range m.leases[node] {
		left := m.lines[l]
		m.lines[l] = balance{left.Settled, left.Leased - granted}
	}
	delete(m.leases, node)
}

// modelNode is a process, in one of its incarnations.
type modelNode struct {
	id   string
	open []*Reservation // of calls in progress
}

// TestNoCapIsEverOverspent runs random sequences of calls, crashes, lost answers,
// evictions of live nodes and new months on three nodes.
func TestNoCapIsEverOverspent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
		lose := false
		m := &model{lines: map[line]balance{}, leases: map[string]map[line]credits.Micro{}, ledgers: map[string]*Ledger{}, evicted: map[string]bool{},
			faulty: func() bool { return lose }}
		joined := 0
		// start gives a process a new ID and no state. Its clock never tells that it
		// was evicted.
		start := func(c *modelNode) {
			delete(m.ledgers, c.id)
			joined++
			*c = modelNode{id: fmt.Sprint("node_", joined)}
			g := newLedger(modelBank{m, c.id}, c.id, false, func() bool { return true })
			g.patience, g.poll = 0, 0
			m.ledgers[c.id], m.leases[c.id] = g, map[line]credits.Micro{}
		}
		nodes := []*modelNode{{}, {}, {}}
		for _, c := range nodes {
			start(c)
		}
		accounts := []Account{{Workspace, "ws"}, {Project, "ws/p"}, {Key, "key"}, {Key, "parent"}, {Key, "grandparent"}}
		limits := make([]credits.Micro, len(accounts))
		highest := make([]credits.Micro, len(accounts)) // that there ever was
		caps := make([]Cap, len(accounts))
		set := func(i int) {
			limits[i] = credits.Micro(rapid.Int64Range(0, 300).Draw(rt, "limit"))
			highest[i] = max(highest[i], limits[i])
		}
		for i, a := range accounts {
			set(i)
			caps[i] = Cap{Account: a, Limit: &limits[i]}
		}
		spent := map[Period]credits.Micro{}
		settle := func(c charge) {
			if err := m.settle(c); err != nil {
				rt.Fatal(err)
			}
			spent[c.lines[0].Period] += c.amount
		}
		// evict is what others do with a node that is dead, or seems so.
		evict := func(c *modelNode) {
			if m.evicted[c.id] {
				return
			}
			m.evicted[c.id] = true
			for _, r := range c.open {
				settle(charge{lines: r.lines, amount: r.Amount})
			}
			m.close(c.id)
		}
		// end is the end of a call: it costs so much. Its node may hear later
		// that the store has booked it. An evicted node can't settle.
		var heard []func()
		end := func(c *modelNode, cost credits.Micro, later bool) {
			r := c.open[0]
			c.open = c.open[1:]
			if cost = min(cost, r.Amount); cost == 0 || m.evicted[c.id] {
				r.Release()
				return
			}
			settle(r.charge(cost))
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
		busy := false // something happens while nodes ask the store
		// In calm weather no answer is lost and no node given up, and nobody may
		// be refused who has room.
		calm := rapid.Bool().Draw(rt, "calm")
		// roomOf is what is neither charged nor needed by calls under way.
		roomOf := func(account Account) credits.Micro {
			i := slices.Index(accounts, account)
			room := limits[i] - spent[PeriodOf(now)]
			for _, c := range nodes {
				for _, r := range c.open {
					if r.lines[0].Period == PeriodOf(now) {
						room -= r.Amount
					}
				}
			}
			return room
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
		// within holds the lines of a month, or of all, against limits.
		within := func(limits []credits.Micro, p Period) {
			for l, b := range m.lines {
				for i, a := range accounts {
					if a == l.Account && (p == "" || p == l.Period) && b.Settled+b.Leased > limits[i] {
						rt.Fatalf("%v: %d settled and %d leased of %d", l, b.Settled, b.Leased, limits[i])
					}
				}
			}
		}
		check := func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			within(highest, "")
			for l, b := range m.lines {
				if b.Settled != spent[l.Period] || b.Leased < 0 {
					rt.Fatalf("%v: the books say %d settled and %d leased, %d were charged", l, b.Settled, b.Leased, spent[l.Period])
				}
			}
			for id, g := range m.ledgers {
				for l, le := range g.leases {
					if stored := m.leases[id][l]; le.granted < le.reserved || !m.evicted[id] && le.granted > stored {
						rt.Fatalf("%s has %d of %v, %d reserved; the ledger says %d", id, le.granted, l, le.reserved, stored)
					}
				}
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			c := rapid.SampledFrom(nodes).Draw(rt, "node")
			g := m.ledgers[c.id]
			lose = rapid.IntRange(0, 19).Draw(rt, "fault") == 0 && !calm
			busy = rapid.IntRange(0, 3).Draw(rt, "busy") == 0
			quiet := !busy
			step := rapid.IntRange(0, 12).Draw(rt, "step")
			if calm && (step == 8 || step == 9) {
				step = 7
			}
			switch step {
			case 0, 1, 2, 3:
				amount := credits.Micro(rapid.Int64Range(1, 40).Draw(rt, "amount"))
				r, err := g.Reserve(ctx, caps, amount, now)
				var refusal *Refusal
				switch {
				case err == nil && m.evicted[c.id]:
					r.Release() // the intent can't be written
				case err == nil:
					c.open = append(c.open, r)
					within(limits, r.lines[0].Period) // whatever was begun under others
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
				_ = g.GiveBackIdle(ctx)
			case 8: // it dies, and another is started
				evict(c)
				start(c)
			case 9: // others evict it, and it doesn't know yet
				evict(c)
			case 10: // it notices
				if m.evicted[c.id] {
					start(c)
				}
			case 11:
				now = now.Add(20 * time.Hour)
			case 12:
				set(rapid.IntRange(0, len(limits)-1).Draw(rt, "account"))
				for _, g := range m.ledgers {
					g.changed("")
				}
			}
			lose, busy = false, false
			hear()
			check()
		}
		// At rest nothing is set aside.
		for _, c := range nodes {
			for len(c.open) > 0 {
				end(c, 0, false)
			}
			for range 3 {
				_ = m.ledgers[c.id].GiveBackIdle(ctx)
			}
		}
		check()
		for l, b := range m.lines {
			if b.Leased != 0 {
				rt.Fatalf("%v: %d are still set aside", l, b.Leased)
			}
		}
	})
}

// TestACrowdOnTwoNodesSpendsExactlyTheBudget, on the store itself.
func TestACrowdOnTwoNodesSpendsExactlyTheBudget(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		const budget, calls = 50, 1000
		limit := budget * credits.Credit
		caps := []Cap{{Account{Workspace, "ws"}, &limit}}
		var served atomic.Int64
		var all sync.WaitGroup
		now := time.Now()
		nodes := 2
		if address[:8] != "postgres" {
			nodes = 1 // the embedded database has one server
		}
		for range nodes {
			d := dbtest.Open(t, address)
			b := NewBooks(d)
			g := b.Ledger(join(t, d))
			d.OnSignal(SignalRecall, func(payload string) { go func() { _ = g.Recalled(context.Background(), payload) }() })
			for range calls / nodes {
				all.Go(func() {
					r, err := g.Reserve(context.Background(), caps, credits.Credit, now)
					var refusal *Refusal
					if errors.As(err, &refusal) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					served.Add(1)
					err = d.Write(context.Background(), func(tx *db.Tx) error {
						return b.Settle(context.Background(), tx, []charge{r.charge(credits.Credit)})
					})
					if err != nil {
						t.Error(err)
					}
					r.Settled(credits.Credit)
				})
			}
		}
		all.Wait()
		if n := served.Load(); n != budget {
			t.Errorf("%d calls were served by a budget for %d", n, budget)
		}
		got, err := Read(t.Context(), dbtest.Open(t, address), Account{Workspace, "ws"}, PeriodOf(now))
		if err != nil || got.Spent != limit || got.Reserved != 0 {
			t.Errorf("the books say %+v (%v)", got, err)
		}
	})
}

// TestWhatOthersDoNotUseIsCalledBack before anybody is refused.
func TestWhatOthersDoNotUseIsCalledBack(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	limit := 64 * credits.Credit
	caps := []Cap{{Account{Workspace, "ws"}, &limit}}
	ledgers := make([]*Ledger, 2)
	for n := range ledgers {
		d := dbtest.Open(t, address)
		g := NewBooks(d).Ledger(join(t, d))
		g.patience = 10 * time.Second // on a busy machine
		d.OnSignal(SignalRecall, func(payload string) {
			// It takes a while, and whoever asked waits for it.
			time.AfterFunc(200*time.Millisecond, func() { _ = g.Recalled(context.Background(), payload) })
		})
		ledgers[n] = g
	}
	// The first has leased more than it uses.
	small, err := ledgers[0].Reserve(t.Context(), caps, credits.Credit, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledgers[1].Reserve(t.Context(), caps, limit-credits.Credit, time.Now()); err != nil {
		t.Fatalf("refused, where only %v were in use: %v", small.Amount, err)
	}
}

// TestTwoNodesThatWaitForEachOther have together what one of them needs: it is
// served, and they do not both keep too little.
func TestTwoNodesThatWaitForEachOther(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	limit := 10 * credits.Credit
	caps := []Cap{{Account{Workspace, "ws"}, &limit}}
	var served atomic.Int64
	var ready, all sync.WaitGroup
	ready.Add(2)
	for range 2 {
		d := dbtest.Open(t, address)
		g := NewBooks(d).Ledger(join(t, d))
		g.patience = 3 * time.Second
		d.OnSignal(SignalRecall, func(payload string) { go func() { _ = g.Recalled(context.Background(), payload) }() })
		all.Go(func() {
			_, err := g.Reserve(t.Context(), caps, credits.Credit, time.Now())
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			ready.Wait()
			_, err = g.Reserve(t.Context(), caps, 8*credits.Credit, time.Now())
			var refusal *Refusal
			switch {
			case err == nil:
				served.Add(1)
			case !errors.As(err, &refusal):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := served.Load(); n != 1 {
		t.Errorf("%d were served, where there was room for one", n)
	}
}
