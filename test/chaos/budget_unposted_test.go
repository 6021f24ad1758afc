package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// TestBudgetIsExactAfterKill9BeforeCostsArePosted kills a node that has recorded costs and not added them to the
// balances yet, while it holds leases. A kill at another moment is repeated. Then the node restarts, or another node
// recovers it. Nothing is lost or charged twice, and a thousand more requests get exactly the rest of the budget.
func TestBudgetIsExactAfterKill9BeforeCostsArePosted(t *testing.T) {
	t.Parallel()
	rounds := 1
	if full {
		rounds = 10
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		var atBound atomic.Bool
		tokens := func() int64 {
			if atBound.Load() {
				return callTokens
			}
			return 1 + rand.Int64N(callTokens)
		}
		settings := writeProviderConfig(t, at, upstream(t, tokens, func() time.Duration { return 5*time.Millisecond + rand.N(50*time.Millisecond) }))
		s := &budgetTest{at: at, settings: settings}
		if at.DatabaseURL != "" {
			s.survivor = serve(t, at, settings)
		}
		s.victim = serve(t, at, settings)
		s.d = open(t, at)
		s.account = newAccount(t, at, s.victim.URL)
		for n := range rounds {
			s.killUnposted(t, n)
		}
		atBound.Store(true)
		s.spendRest(t)
		stop(t, s.servers()...)
		checkBalances(t, s.d)
	})
}

// killUnposted repeats a round until the kill hits a node with leases and costs that are not posted.
func (s *budgetTest) killUnposted(t *testing.T, n int) {
	t.Helper()
	const tries = 10
	for try := range tries {
		s.limit = totalSpent(t, s.d) + 5*roundCalls*callBound // so that the budget isn't used up
		s.account.setCredits(t, s.victim.URL, s.limit)
		dead := s.newest(t)
		s.outcomes = append(s.outcomes, s.load(n*tries+try, 2*roundCalls)...)
		killed := readUnposted(t, s.d, dead)
		if s.at.DatabaseURL != "" {
			evict(t, s.d, dead) // other nodes would evict it after a minute
		}
		if s.survivor != nil && n%2 == 1 {
			eventually(t, time.Minute, "the other node recovers the dead one", func() bool {
				return count(t, s.d, "SELECT count(*) FROM spend_leases WHERE node_id = $1", dead) == 0
			})
		}
		s.victim = serve(t, s.at, s.settings)
		s.check(t, dead)
		s.awaitPosted(t)
		t.Logf("round %d: killed with %+v", n+1, killed)
		if killed.commits > 0 && killed.leases > 0 && killed.logged > killed.balance {
			return
		}
	}
	t.Fatalf("none of %d kills hit a node with leases and costs that are not posted", tries)
}

// unposted is the state of a node that was killed.
type unposted struct {
	commits         int           // in its journal
	leases          int           // that it holds
	logged, balance credits.Micro // the workspace's costs in the log and in its balance
}

func readUnposted(t *testing.T, d *db.DB, node string) (u unposted) {
	t.Helper()
	// One statement, because the database may still be working for the dead node.
	err := d.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM spend_journal WHERE node_id = $1), (SELECT count(*) FROM spend_leases WHERE node_id = $1),
		(SELECT CAST(COALESCE(sum(credits), 0) AS BIGINT) FROM requests WHERE settled AND environment = 'live'),
		(SELECT CAST(COALESCE(sum(settled), 0) AS BIGINT) FROM spend WHERE level = 'workspace')`, node).Scan(&u.commits, &u.leases, (*int64)(&u.logged), (*int64)(&u.balance))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// awaitPosted waits until the running nodes have posted their costs, and compares the balance with the log.
func (s *budgetTest) awaitPosted(t *testing.T) {
	t.Helper()
	eventually(t, 15*time.Second, "all charges are posted", func() bool {
		return count(t, s.d, "SELECT count(*) FROM spend_journal")+count(t, s.d, "SELECT count(*) FROM requests WHERE NOT settled") == 0
	})
	if u := readUnposted(t, s.d, ""); u.logged != u.balance {
		t.Errorf("got a balance of %s, want %s as in the log", u.balance, u.logged)
	}
}

// spendRest sends a thousand requests at their bound, for which the budget is too small.
func (s *budgetTest) spendRest(t *testing.T) {
	t.Helper()
	const calls = 1000
	spent := totalSpent(t, s.d)
	c := newClient(s.victim.URL)
	defer c.close()
	if used, _, ok := s.account.used(c); !ok || used != spent {
		t.Errorf("got %s used (%t), want %s as in the log", used, ok, spent)
	}
	rest := int((s.limit - spent) / callBound)
	served, _ := s.account.sendAll(t, s.servers(), calls)
	// On a busy machine, all of them may be refused before the other node has released its leases.
	for try := 0; served < rest && try < rest; try++ {
		if o := c.do(s.account.paidRequest(fmt.Sprintf("rest/%d", try), false), nil); o.status == http.StatusOK {
			served++
		}
	}
	if got, want := totalSpent(t, s.d), spent+credits.Micro(rest)*callBound; served != rest || got != want {
		t.Errorf("got %d requests served and %s spent, want %d and %s", served, got, rest, want)
	}
}
