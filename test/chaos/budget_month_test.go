package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/spend"
	"turnpike/test/chaos/program"
)

// TestEachMonthGetsExactlyItsBudgetWhenItChangesUnderLoad lets the month change while requests are in progress on
// nodes whose clocks differ. A request belongs to the month in which it arrived, whenever it ends.
func TestEachMonthGetsExactlyItsBudgetWhenItChangesUnderLoad(t *testing.T) {
	t.Parallel()
	const budget = 50
	t.Run("requests that end in the next month", func(t *testing.T) {
		t.Parallel()
		eachEngine(t, func(t *testing.T, at program.Place) {
			release := make(chan struct{})
			unblock := sync.OnceFunc(func() { close(release) })
			provider := upstream(t, func() int64 { return callTokens }, func() time.Duration { <-release; return 0 })
			t.Cleanup(unblock)
			m := newMonthTest(t, at, provider)
			m.account.setCredits(t, m.servers[0].URL, budget*callBound)
			load := m.startLoad(4 * budget)
			m.awaitOpen(t, budget)
			m.clock.run(t)
			m.awaitOpen(t, 2*budget)
			unblock()
			load.stop(t)
			if served, _ := m.account.sendAll(t, m.servers, 1000); served != 0 {
				t.Errorf("got %d more requests served, want 0", served)
			}
			m.stop(t)
			for _, period := range []spend.Period{m.last, m.next} {
				if n, spent := m.logged(t, period); n != budget || spent != budget*int64(callBound) {
					t.Errorf("%s: got %d requests charged with %d, want %d with %d", period, n, spent, budget, budget*int64(callBound))
				}
			}
			m.check(t, load.served.Load())
		})
	})
	t.Run("requests that end at any time", func(t *testing.T) {
		t.Parallel()
		eachEngine(t, func(t *testing.T, at program.Place) {
			const budget = 6 * budget
			tokens := func() int64 { return 1 + rand.Int64N(callTokens) }
			m := newMonthTest(t, at, upstream(t, tokens, func() time.Duration { return 10*time.Millisecond + rand.N(50*time.Millisecond) }))
			m.account.setCredits(t, m.servers[0].URL, budget*callBound)
			load := m.startLoad(budget / 10) // so few that the budget lasts until the month changes
			eventually(t, 20*time.Second, "requests are served", func() bool { return load.served.Load() > budget/10 })
			m.clock.run(t)
			eventually(t, time.Minute, "the budget of the next month is used up", func() bool { return load.refused.Load() > 0 && m.used(t, m.next) > (budget-1)*int64(callBound) })
			load.stop(t)
			m.stop(t)
			for _, period := range []spend.Period{m.last, m.next} {
				n, spent := m.logged(t, period)
				t.Logf("%s: %d requests charged with %d", period, n, spent)
				if n == 0 || spent > budget*int64(callBound) {
					t.Errorf("%s: got %d requests charged with %d, want some with at most %d", period, n, spent, budget*int64(callBound))
				}
			}
			m.check(t, load.served.Load())
		})
	})
}

// monthClock stands still just before the month ends, until it runs.
type monthClock struct {
	started time.Time
	end     time.Time    // of the month
	passed  atomic.Int64 // since started
}

const monthLead = 2 * time.Second

func newMonthClock() *monthClock {
	end := spend.PeriodOf(time.Now()).End()
	return &monthClock{started: end.Add(-monthLead), end: end}
}

// of returns the clock of a node. Each is ahead of the one before.
func (c *monthClock) of(node int) func() time.Time {
	ahead := time.Duration(node) * monthLead / 5
	return func() time.Time { return c.started.Add(ahead + time.Duration(c.passed.Load())) }
}

// run lets the clock run until the next month has begun on all nodes.
func (c *monthClock) run(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Duration(c.passed.Load()) < 2*monthLead {
		select {
		case <-tick.C:
			c.passed.Add(int64(5 * time.Millisecond))
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// monthTest is one node, or several on PostgreSQL, with a clock that the test moves. So they run in this process.
type monthTest struct {
	clock      *monthClock
	last, next spend.Period
	apps       []*app.App
	servers    []*program.Server // only their URLs
	d          *db.DB
	account    *account
}

func newMonthTest(t *testing.T, at program.Place, provider string) *monthTest {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.PublicURL, cfg.Data, cfg.ShutdownTimeout = "127.0.0.1:0", "", at.Dir, 20*time.Second
	nodes := 1
	if at.DatabaseURL != "" {
		cfg.DatabaseURL, cfg.MasterKey = config.SecretURL(at.DatabaseURL), program.MasterKey
		if nodes = 2; full {
			nodes = 3
		}
	}
	limits := &cfg.Limits
	limits.LiveRequestsPerMinute, limits.LiveTokensPerMinute, limits.LiveInFlight, limits.WritesPerMinute, limits.WorkspaceWritesPerMinute = 0, 0, 0, 0, 0
	cfg.Providers = []config.Provider{{Name: "mock", Type: config.OpenAI, BaseURL: config.Address(provider), APIKey: "sk-mock", Weight: 1,
		Models: []config.ProviderModel{{ID: callModel, Price: &config.ModelPrice{Input: "0", Output: "1"}, MaxOutputTokens: callTokens}}}}
	m := &monthTest{clock: newMonthClock()}
	m.last, m.next = spend.PeriodOf(m.clock.started), spend.PeriodOf(m.clock.end)
	for n := range nodes {
		a, err := app.Start(context.Background(), cfg, "test", m.clock.of(n))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		a.Serve()
		m.apps, m.servers = append(m.apps, a), append(m.servers, &program.Server{URL: a.ListenURL()})
	}
	m.d = open(t, at)
	m.account = newAccount(t, at, m.servers[0].URL)
	return m
}

// monthLoad is a number of clients.
type monthLoad struct {
	served, refused atomic.Int64
	over            atomic.Bool
	clients         sync.WaitGroup
	wrong           atomic.Pointer[outcome]
}

// startLoad starts clients that send requests, and repeat rejected ones, until they are stopped.
func (m *monthTest) startLoad(clients int) *monthLoad {
	l := &monthLoad{}
	for w := range clients {
		l.clients.Go(func() {
			c := newClient(m.servers[w%len(m.servers)].URL)
			defer c.close()
			for i := 0; !l.over.Load(); i++ {
				r := m.account.paidRequest(fmt.Sprintf("month/%d/%d", w, i), w%4 == 0)
				r.timeout = time.Minute
				switch o := c.do(r, nil); {
				case o.status == http.StatusOK && o.whole:
					l.served.Add(1)
				case o.status == http.StatusPaymentRequired:
					l.refused.Add(1)
					time.Sleep(20 * time.Millisecond) // clients without credits pause
				default:
					l.wrong.Store(o)
					return
				}
			}
		})
	}
	return l
}

// stop waits for the requests in progress.
func (l *monthLoad) stop(t *testing.T) {
	t.Helper()
	l.over.Store(true)
	l.clients.Wait()
	if o := l.wrong.Load(); o != nil {
		t.Fatalf("got %v, want a served or rejected request\n%s", o, o.body)
	}
}

// awaitOpen waits until a number of requests are in progress.
func (m *monthTest) awaitOpen(t *testing.T, want int) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("%d requests are in progress", want), func() bool {
		return count(t, m.d, "SELECT count(*) FROM requests WHERE NOT settled AND reserved > 0") >= want
	})
}

// used returns the workspace's balance in a month.
func (m *monthTest) used(t *testing.T, period spend.Period) int64 {
	t.Helper()
	return int64(count(t, m.d, "SELECT CAST(COALESCE(sum(settled), 0) AS BIGINT) FROM spend WHERE level = 'workspace' AND period = $1", string(period)))
}

// logged returns the requests that arrived in a month and cost credits, according to the log.
func (m *monthTest) logged(t *testing.T, period spend.Period) (n int, spent int64) {
	t.Helper()
	err := m.d.QueryRow(t.Context(), "SELECT count(*), CAST(COALESCE(sum(credits), 0) AS BIGINT) FROM requests WHERE credits > 0 AND created_at >= $1 AND created_at < $2",
		period.Start().UnixMicro(), period.End().UnixMicro()).Scan(&n, &spent)
	if err != nil {
		t.Fatal(err)
	}
	return n, spent
}

func (m *monthTest) stop(t *testing.T) {
	t.Helper()
	for _, a := range m.apps {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// check compares the log with the served requests, and each month's balances with the log. checkBalances also checks
// that every request counts toward the month in which it arrived.
func (m *monthTest) check(t *testing.T, served int64) {
	t.Helper()
	if n := count(t, m.d, "SELECT count(*) FROM requests WHERE credits > 0"); int64(n) != served {
		t.Errorf("got %d charged requests in the log, want %d", n, served)
	}
	checkBalances(t, m.d)
}
