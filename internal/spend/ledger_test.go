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

// model is a bank in memory that checks every move: what the books of the
// store promise, without the store.
type model struct {
	mu      sync.Mutex
	lines   map[line]balance
	leases  map[string]map[line]credits.Micro // by owner
	ledgers map[string]*Ledger                // by node
	faulty  func() bool                       // the answer to a commit is lost
	// meanwhile is what happens between a node's wish and its transaction.
	meanwhile func()
}

type teller struct {
	*model
	node string
}

var errLost = errors.New("the answer was lost")

func (m teller) take(_ context.Context, owner string, l line, limit, need, want credits.Micro) (credits.Micro, balance, error) {
	m.meanwhile()
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.lines[l]
	room := limit - left.Settled - left.Leased
	if room < need || room <= 0 {
		return 0, left, nil
	}
	got := min(max(need, min(want, room/chunkShare)), room)
	m.lines[l] = balance{left.Settled, left.Leased + got}
	if m.leases[owner] == nil {
		m.leases[owner] = map[line]credits.Micro{}
	}
	m.leases[owner][l] += got
	if m.faulty() {
		return 0, balance{}, errLost
	}
	return got, left, nil
}

func (m teller) keep(_ context.Context, owner string, l line, amount credits.Micro) error {
	m.meanwhile()
	m.mu.Lock()
	defer m.mu.Unlock()
	if granted := m.leases[owner][l]; granted > amount {
		left := m.lines[l]
		m.lines[l] = balance{left.Settled, left.Leased - (granted - amount)}
		m.leases[owner][l] = amount
	}
	if m.faulty() {
		return errLost
	}
	return nil
}

func (m teller) recall(ctx context.Context, l line) error {
	for node, g := range m.ledgers {
		if node != m.node {
			_ = g.Recalled(ctx, l.String())
		}
	}
	return nil
}

// settle books a charge as Books.Settle does.
func (m *model) settle(c charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range c.lines {
		left := m.lines[l]
		m.lines[l] = balance{left.Settled + c.amount, left.Leased}
	}
	for _, h := range c.leased {
		if granted, there := m.leases[h.owner][h.line]; there {
			m.leases[h.owner][h.line] = granted - c.amount
			left := m.lines[h.line]
			m.lines[h.line] = balance{left.Settled, left.Leased - c.amount}
		}
	}
}

// bury ends an owner's leases; what it had open was charged before.
func (m *model) bury(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l, granted := range m.leases[owner] {
		left := m.lines[l]
		m.lines[l] = balance{left.Settled, left.Leased - granted}
	}
	delete(m.leases, owner)
}

// caller is a node of the model, with its calls under way.
type caller struct {
	name   string
	life   int
	buried bool // and does not know it yet
	open   []*Reservation
	// charged are calls under way that others have charged as reserved.
	charged []*Reservation
}

// TestNoCapIsEverOverspent tries random sequences of calls, crashes, lost
// answers, burials of the living and new months on three nodes.
func TestNoCapIsEverOverspent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
		lose := false
		m := &model{lines: map[line]balance{}, leases: map[string]map[line]credits.Micro{}, ledgers: map[string]*Ledger{},
			faulty: func() bool { return lose }}
		join := func(c *caller) {
			g := newLedger(teller{m, c.name}, Owner(c.name, c.life), false, func() bool { return !c.buried })
			g.patience, g.poll = 0, 0
			m.ledgers[c.name] = g
		}
		nodes := []*caller{{name: "a"}, {name: "b"}, {name: "c"}}
		for _, c := range nodes {
			join(c)
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
			m.settle(c)
			spent[c.lines[0].Period] += c.amount
		}
		// recover is what others do with a node that is dead, or seems so.
		recover := func(c *caller) {
			for _, r := range c.open {
				settle(charge{lines: r.lines, amount: r.Amount})
			}
			for life := range c.life + 1 {
				m.bury(Owner(c.name, life))
			}
		}
		// end is the end of a call: it costs so much. Its node may hear later
		// that the store has booked it.
		var heard []func()
		end := func(c *caller, cost credits.Micro, later bool) {
			if n := len(c.charged); n > 0 { // a correction
				r := c.charged[0]
				c.charged = c.charged[1:]
				cost = min(cost, r.Amount)
				settle(charge{lines: r.lines, amount: cost - r.Amount})
				r.Settled(r.Amount)
				return
			}
			r := c.open[0]
			c.open = c.open[1:]
			if cost = min(cost, r.Amount); cost == 0 {
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
		endAny := func(c *caller, later bool) {
			if len(c.open)+len(c.charged) > 0 {
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
		m.meanwhile = func() {
			if busy {
				busy = false
				endAny(rapid.SampledFrom(nodes).Draw(rt, "other"), rapid.Bool().Draw(rt, "later"))
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
			for _, c := range nodes {
				for l, le := range m.ledgers[c.name].leases {
					if le.granted < le.reserved || !c.buried && le.granted > m.leases[le.owner][l] {
						rt.Fatalf("%s has %d of %v, %d reserved; the books say %d", le.owner, le.granted, l, le.reserved, m.leases[le.owner][l])
					}
				}
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			c := rapid.SampledFrom(nodes).Draw(rt, "node")
			g := m.ledgers[c.name]
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
				case err == nil:
					c.open = append(c.open, r)
					within(limits, r.lines[0].Period) // whatever was begun under others
				case errors.As(err, &refusal):
					if room := roomOf(refusal.Account); calm && quiet && amount <= room {
						rt.Fatalf("%d of the %s were refused, and %d are left", amount, refusal.Level, room)
					}
				case errors.Is(err, errLost), c.buried && errors.Is(err, db.ErrUnavailable):
				default:
					rt.Fatal(err)
				}
			case 4, 5, 6:
				endAny(c, false)
			case 7:
				_ = g.GiveBackIdle(ctx)
			case 8: // it dies, and another is started
				recover(c)
				*c = caller{name: c.name, life: c.life + 1}
				join(c)
			case 9: // others declare it dead, and it lives
				recover(c)
				c.charged, c.open, c.buried = append(c.charged, c.open...), nil, true
			case 10: // it notices
				if c.buried {
					c.buried = false
					c.life++
					g.Renounce(Owner(c.name, c.life))
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
			for len(c.open)+len(c.charged) > 0 {
				end(c, 0, false)
			}
			for range 3 {
				_ = m.ledgers[c.name].GiveBackIdle(ctx)
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

// TestRenouncedReservationsLeaveNewLeasesAlone, on the store itself.
func TestRenouncedReservationsLeaveNewLeasesAlone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		limit := 100 * credits.Credit
		account := Account{Workspace, "ws"}
		caps := []Cap{{account, &limit}}
		books, now := NewBooks(d), time.Now()
		g := books.Ledger("node_1", func() bool { return true })
		reserve := func() *Reservation {
			t.Helper()
			r, err := g.Reserve(t.Context(), caps, credits.Credit, now)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		settle := func(c charge) {
			t.Helper()
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return books.Settle(t.Context(), tx, []charge{c}) }); err != nil {
				t.Fatal(err)
			}
		}
		stored := func() (b Balance, lease int64) {
			t.Helper()
			b, err := Read(t.Context(), d, account, PeriodOf(now))
			if err != nil {
				t.Fatal(err)
			}
			err = d.QueryRow(t.Context(), "SELECT CAST(coalesce(sum(granted), 0) AS BIGINT) FROM spend_leases").Scan(&lease)
			if err != nil {
				t.Fatal(err)
			}
			return b, lease
		}
		// Declared dead: it is charged as reserved, and the lease is closed.
		old := reserve()
		settle(charge{lines: old.lines, amount: old.Amount})
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return Close(t.Context(), tx, "node_1") }); err != nil {
			t.Fatal(err)
		}
		g.Renounce(Owner("node_1", 1))
		present := reserve()
		before, lease := stored()
		if before.Spent != credits.Credit || before.Reserved != credits.Micro(lease) || lease == 0 {
			t.Fatalf("the books say %+v, with leases of %d", before, lease)
		}
		// The old one ends, at half of it.
		settle(charge{lines: old.lines, amount: -credits.Credit / 2})
		old.Settled(old.Amount)
		if after, still := stored(); after.Spent != credits.Credit/2 || after.Reserved != before.Reserved || still != lease {
			t.Errorf("the books say %+v, with leases of %d, of %+v, %d", after, still, before, lease)
		}
		// One of which nobody knew has no lease to come out of either.
		settle(charge{lines: old.lines, amount: credits.Credit / 4, leased: []leased{{old.lines[0], "node_1"}}})
		if after, still := stored(); after.Reserved != before.Reserved || still != lease {
			t.Errorf("the books say %+v, with leases of %d, of %+v, %d", after, still, before, lease)
		}
		settle(present.charge(credits.Credit))
		present.Settled(credits.Credit)
		if err := g.Recalled(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if after, still := stored(); after.Spent != 7*credits.Credit/4 || after.Reserved != 0 || still != 0 {
			t.Errorf("at rest the books say %+v, with leases of %d", after, still)
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
		for n := range nodes {
			d := dbtest.Open(t, address)
			b := NewBooks(d)
			g := b.Ledger(fmt.Sprintf("node_%d", n), func() bool { return true })
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
		g := NewBooks(d).Ledger(fmt.Sprintf("node_%d", n), func() bool { return true })
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
	for n := range 2 {
		d := dbtest.Open(t, address)
		g := NewBooks(d).Ledger(fmt.Sprintf("node_%d", n), func() bool { return true })
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
