package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// TestBudgetIsExactAfterKill9 repeatedly kills a node that spends. On PostgreSQL,
// another node keeps running. Requests in progress are charged at their reserved cost,
// unused leases are released, and spending never exceeds the limit.
func TestBudgetIsExactAfterKill9(t *testing.T) {
	t.Parallel()
	kills := 3
	if full {
		kills = 20
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		settings := writeProviderConfig(t, at, upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration { return 5*time.Millisecond + rand.N(50*time.Millisecond) }))
		s := &budgetTest{at: at, settings: settings}
		if at.DatabaseURL != "" {
			s.survivor = serve(t, at, settings)
		}
		s.victim = serve(t, at, settings)
		s.d = open(t, at)
		s.account = newAccount(t, at, s.victim.URL)
		if _, errOut, err := binary(t).Run(at, "users", "create", "--email", "owner@example.com", "--role", "owner"); err != nil {
			t.Fatalf("users create: %v\n%s", err, errOut)
		}
		for n := 0; n < kills && !t.Failed(); n++ {
			s.round(t, n, 5+random.IntN(80))
		}
		if s.recovered == 0 {
			t.Error("got no recovered request, want some: the kills came at the wrong moments to show anything")
		}
		stop(t, s.servers()...)
		checkBalances(t, s.d)
	})
}

type budgetTest struct {
	at        program.Place
	settings  string
	d         *db.DB
	victim    *program.Server // is killed and restarted
	survivor  *program.Server // nil on SQLite
	account   *account
	limit     credits.Micro
	outcomes  []*outcome
	recovered int
}

func (s *budgetTest) servers() []*program.Server {
	if s.survivor == nil {
		return []*program.Server{s.victim}
	}
	return []*program.Server{s.survivor, s.victim}
}

// roundCalls is the number of requests at maximum cost that fit into each round's
// limit. They cost half of that on average, and clients send more than twice as many,
// so every round reaches the limit.
const roundCalls = 60

// round raises the limit, sends requests, kills the node, restarts it and checks.
func (s *budgetTest) round(t *testing.T, n, killAt int) {
	t.Helper()
	s.limit += roundCalls * callBound
	s.account.setCredits(t, s.victim.URL, s.limit)
	watched := s.watch(t)
	dead := s.newest(t)
	outcomes := s.load(n, killAt)
	looks := watched()
	s.outcomes = append(s.outcomes, outcomes...)

	if s.at.DatabaseURL != "" {
		evict(t, s.d, dead) // other nodes would evict it after a minute
	}
	s.victim = serve(t, s.at, s.settings)
	s.check(t, dead)
	s.awaitPosted(t) // which publishes alerts
	s.checkAlerts(t)
	served := 0
	for _, o := range outcomes {
		if o.status == http.StatusOK {
			served++
		}
	}
	t.Logf("kill %d at answer %d: %d of %d calls served, %s of %s spent, %d recovered so far, %d looks at billing",
		n+1, killAt, served, len(outcomes), totalSpent(t, s.d), s.limit, s.recovered, looks)
}

// checkAlerts checks that each threshold of the current limit was published exactly once, if spending has reached it, and
// that the owner gets one email about each alert.
func (s *budgetTest) checkAlerts(t *testing.T) {
	t.Helper()
	published := map[int64]int{} // 0 is budget.exceeded
	rows, err := s.d.Query(t.Context(), "SELECT body FROM events WHERE type LIKE 'budget.%'")
	err = db.Each(rows, err, func(r db.Row) error {
		var body string
		if err := r.Scan(&body); err != nil {
			return err
		}
		var e struct{ Data events.BudgetThreshold }
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			return err
		}
		if e.Data.Budget == s.limit {
			published[e.Data.Threshold]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	spent := totalSpent(t, s.d)
	for _, percent := range accounts.DefaultAlertThresholds {
		want := 0
		if spent >= s.limit/100*credits.Micro(percent) {
			want = 1
		}
		if published[percent] != want {
			t.Errorf("the alert at %d%% of %s was published %d times with %s spent, want %d", percent, s.limit, published[percent], spent, want)
		}
	}
	if published[0] > 1 {
		t.Errorf("the end of the budget of %s was published %d times, want at most once", s.limit, published[0])
	}
	eventually(t, time.Minute, "the owner gets one email about each alert", func() bool {
		return count(t, s.d, "SELECT count(*) FROM mails WHERE kind = 'budget_alert'") == count(t, s.d, "SELECT count(*) FROM events WHERE type LIKE 'budget.%'")
	})
}

// newest returns the node that started last, which is the victim: IDs are ordered by
// time.
func (s *budgetTest) newest(t *testing.T) (id string) {
	t.Helper()
	if err := s.d.QueryRow(t.Context(), "SELECT max(id) FROM nodes").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// watch polls the used credits until the returned function is called.
func (s *budgetTest) watch(t *testing.T) (looks func() int) {
	t.Helper()
	servers, limit := s.servers(), s.limit
	var n atomic.Int64
	quit := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		c := newClient(servers[0].URL)
		defer c.close()
		for {
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
			used, reserved, ok := s.account.used(c)
			if !ok {
				continue
			}
			n.Add(1)
			if used+reserved > limit {
				t.Errorf("got %s used and %s reserved, want at most %s", used, reserved, limit)
				return
			}
		}
	})
	return sync.OnceValue(func() int {
		close(quit)
		watcher.Wait()
		return int(n.Load())
	})
}

// load sends requests on many connections and kills the victim after killAt responses.
// Its clients stop with it, the others 100 ms later.
func (s *budgetTest) load(n, killAt int) []*outcome {
	const conns = 40
	var mu sync.Mutex
	var outcomes []*outcome
	var served atomic.Int64
	var over atomic.Bool
	var workers sync.WaitGroup
	servers := s.servers()
	for w := range conns {
		workers.Go(func() {
			c := newClient(servers[w%len(servers)].URL)
			defer c.close()
			for i := 0; !over.Load(); i++ {
				o := c.do(s.account.paidRequest(fmt.Sprintf("budget/%d/%d/%d", n, w, i), w%8 >= 6), nil)
				mu.Lock()
				outcomes = append(outcomes, o)
				mu.Unlock()
				switch {
				case o.err != nil:
					return
				case o.status == http.StatusOK:
					if served.Add(1) == int64(killAt) {
						s.victim.Kill()
						time.AfterFunc(100*time.Millisecond, func() { over.Store(true) })
					}
				case o.status == http.StatusPaymentRequired:
					time.Sleep(20 * time.Millisecond) // clients without credits pause
				}
			}
		})
	}
	workers.Wait()
	return outcomes
}

// check compares the log with the responses and looks for leftovers of the dead node.
func (s *budgetTest) check(t *testing.T, dead string) {
	t.Helper()
	log := export(t, s.victim.URL, s.account.admin)
	checkLogged(t, s.outcomes, log, answered)
	wrong := &failures{t: t}
	defer wrong.done()
	for _, o := range s.outcomes {
		if o.whole && o.status != http.StatusOK && o.status != http.StatusPaymentRequired {
			wrong.add("got %v, want a served or rejected request\n%s", o, o.body)
		}
	}
	if n := count(t, s.d, "SELECT count(*) FROM requests WHERE NOT settled AND node_id = $1", dead); n > 0 {
		wrong.add("got %d open entries of a dead node, want 0", n)
	}
	if n := count(t, s.d, "SELECT count(*) FROM spend_leases WHERE node_id = $1", dead); n > 0 {
		wrong.add("got %d leases of a dead node, want 0", n)
	}
	if n := count(t, s.d, "SELECT count(*) FROM spend_journal WHERE node_id = $1", dead); n > 0 {
		wrong.add("got %d commits of a dead node that are not posted, want 0", n)
	}
	if n := count(t, s.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered' AND credits <> reserved"); n > 0 {
		wrong.add("got %d recovered requests whose cost differs from the reservation, want 0", n)
	}
	if spent := totalSpent(t, s.d); spent > s.limit {
		wrong.add("got %s spent, want at most %s", spent, s.limit)
	}
	s.recovered = count(t, s.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered' AND credits = reserved AND credits > 0")
}
