package spend

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
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
	limits  map[line]credits.Micro
	lines   map[line]balance
	leases  map[string]map[line]credits.Micro
	ledgers map[string]*Ledger
	faulty  func() bool // the answer to a commit is lost
}

type teller struct {
	*model
	node string
}

var errLost = errors.New("the answer was lost")

func (m teller) take(_ context.Context, _ string, l line, limit, need, want credits.Micro) (credits.Micro, balance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
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

func (m teller) keep(_ context.Context, _ string, l line, amount credits.Micro) error {
	m.mu.Lock()
	defer m.mu.Unlock()
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

func (m teller) recall(ctx context.Context, l line) error {
	for node, g := range m.ledgers {
		if node != m.node {
			_ = g.Recalled(ctx, l.String())
		}
	}
	return nil
}

// settle books a charge as Books.Settle does.
func (m *model) settle(node string, c Charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range c.Accounts {
		l := line{a, c.Period}
		left := m.lines[l]
		m.lines[l] = balance{left.Settled + c.Amount, left.Leased}
	}
	for _, h := range c.Leased {
		l := h.line
		if m.leases[node][l] >= c.Amount {
			m.leases[node][l] -= c.Amount
			left := m.lines[l]
			m.lines[l] = balance{left.Settled, left.Leased - c.Amount}
		}
	}
}

// die closes a node: its open reservations are charged as reserved.
func (m *model) die(node string, open []*Reservation, accounts []Account) (charged credits.Micro) {
	for _, r := range open {
		m.settle(node, Charge{Period: r.Period, Accounts: accounts, Amount: r.Amount})
		charged += r.Amount
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for l, granted := range m.leases[node] {
		left := m.lines[l]
		m.lines[l] = balance{left.Settled, left.Leased - granted}
	}
	m.leases[node] = map[line]credits.Micro{}
	return charged
}

// TestNoCapIsEverOverspent tries random sequences of calls, crashes, lost
// answers and new months on three nodes.
func TestNoCapIsEverOverspent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
		lose := false
		m := &model{limits: map[line]credits.Micro{}, lines: map[line]balance{}, leases: map[string]map[line]credits.Micro{}, ledgers: map[string]*Ledger{},
			faulty: func() bool { return lose }}
		join := func(node string) {
			g := newLedger(teller{m, node}, node, false, func() bool { return true })
			g.patience, g.poll = 0, 0
			m.leases[node], m.ledgers[node] = map[line]credits.Micro{}, g
		}
		nodes := []string{"a", "b", "c"}
		for _, n := range nodes {
			join(n)
		}
		accounts := []Account{{Workspace, "ws"}, {Project, "ws/p"}, {Key, "key"}}
		limits := make([]credits.Micro, len(accounts))
		caps := make([]Cap, len(accounts))
		for i, a := range accounts {
			limits[i] = credits.Micro(rapid.Int64Range(0, 300).Draw(rt, "limit"))
			caps[i] = Cap{Account: a, Limit: &limits[i]}
		}
		open := map[string][]*Reservation{}
		spent := map[Period]credits.Micro{}
		check := func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			for l, b := range m.lines {
				for i, a := range accounts {
					if a == l.Account && b.Settled+b.Leased > limits[i] {
						rt.Fatalf("%v: %d settled and %d leased of %d", l, b.Settled, b.Leased, limits[i])
					}
				}
				if b.Settled != spent[l.Period] || b.Leased < 0 {
					rt.Fatalf("%v: the books say %d settled and %d leased, %d were charged", l, b.Settled, b.Leased, spent[l.Period])
				}
			}
			for node, g := range m.ledgers {
				for l, le := range g.leases {
					if le.granted < le.reserved || le.granted > m.leases[node][l] {
						rt.Fatalf("%s has %d of %v, %d reserved; the books say %d", node, le.granted, l, le.reserved, m.leases[node][l])
					}
				}
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			node := rapid.SampledFrom(nodes).Draw(rt, "node")
			g := m.ledgers[node]
			lose = rapid.IntRange(0, 19).Draw(rt, "fault") == 0
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1, 2, 3:
				amount := credits.Micro(rapid.Int64Range(1, 40).Draw(rt, "amount"))
				r, err := g.Reserve(ctx, caps, amount, now)
				var refusal *Refusal
				switch {
				case err == nil:
					open[node] = append(open[node], r)
				case errors.As(err, &refusal), errors.Is(err, errLost):
				default:
					rt.Fatal(err)
				}
			case 4, 5, 6:
				if len(open[node]) == 0 {
					continue
				}
				r := open[node][0]
				open[node] = open[node][1:]
				cost := credits.Micro(rapid.Int64Range(0, int64(r.Amount)).Draw(rt, "cost"))
				if cost == 0 {
					r.Release()
					break
				}
				c := ChargeOf(r, accounts, cost)
				m.settle(node, c)
				spent[c.Period] += cost
				r.Settled(cost)
			case 7:
				_ = g.GiveBackIdle(ctx)
			case 8:
				for _, r := range open[node] {
					spent[r.Period] += r.Amount
				}
				m.die(node, open[node], accounts)
				open[node] = nil
				join(node)
			case 9:
				now = now.Add(20 * time.Hour)
			}
			lose = false
			check()
		}
		// At rest nothing is set aside.
		for _, node := range nodes {
			for _, r := range open[node] {
				r.Release()
			}
			for range 3 {
				_ = m.ledgers[node].GiveBackIdle(ctx)
			}
		}
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
						return b.Settle(context.Background(), tx, []Charge{ChargeOf(r, []Account{{Workspace, "ws"}}, credits.Credit)})
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
