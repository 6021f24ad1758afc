//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestFrozenNodeSpendsNothingAfterItsEviction freezes a node, evicts it, spends the
// budget on another node, and resumes it. The node must not spend the leases in its
// memory, and rejoins with a new ID.
func TestFrozenNodeSpendsNothingAfterItsEviction(t *testing.T) {
	t.Parallel()
	if !full {
		t.Skip("waits for the database to end the node's transactions: part of the long form")
	}
	for n := range 3 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			freezeNode(t)
		})
	}
}

func freezeNode(t *testing.T) {
	at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	settings := writeProviderConfig(t, at, upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration { return rand.N(200 * time.Millisecond) }))
	s := &budgetTest{at: at, settings: settings, d: open(t, at)}
	s.survivor = serve(t, at, settings)
	s.victim = serve(t, at, settings)
	s.account = newAccount(t, at, s.survivor.URL)
	s.limit = 200 * callBound
	s.account.setCredits(t, s.survivor.URL, s.limit)
	frozen := s.newest(t)
	watched := s.watch(t)

	spend := func(url, mark string, clients, calls int) func() {
		var workers sync.WaitGroup
		for w := range clients {
			workers.Go(func() {
				c := newClient(url)
				defer c.close()
				for i := range calls {
					o := c.do(s.account.paidRequest(fmt.Sprintf("%s/%d/%d", mark, w, i), w%4 == 0), nil)
					if o.whole && o.status != http.StatusOK && o.status != http.StatusPaymentRequired && o.status != http.StatusServiceUnavailable {
						t.Errorf("got %v, want a served or rejected request\n%s", o, o.body)
					}
				}
			})
		}
		return workers.Wait
	}
	ended := spend(s.victim.URL, "frozen", 40, 3)
	eventually(t, 10*time.Second, "requests are in progress", func() bool { return count(t, s.d, "SELECT count(*) FROM requests WHERE NOT settled") >= 5 })
	if err := syscall.Kill(s.victim.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(32 * time.Second) // until the database ends the node's transactions
	evict(t, s.d, frozen)
	third := serve(t, at, settings) // recovers its requests
	s.recovered = count(t, s.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered'")
	if s.recovered == 0 {
		t.Error("got no recovered request, want some: the node was frozen at the wrong moment to show anything")
	}
	spend(s.survivor.URL, "awake", 20, 40)()
	if err := syscall.Kill(s.victim.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ended()
	eventually(t, 30*time.Second, "the node rejoins", func() bool { return count(t, s.d, "SELECT count(*) FROM nodes") == 3 })
	if n := count(t, s.d, "SELECT count(*) FROM nodes WHERE id = $1", frozen); n != 0 {
		t.Error("the evicted node rejoined with its old ID")
	}
	eventually(t, 10*time.Second, "the node is ready", func() bool { return get(s.victim.URL, "/readyz").status == http.StatusOK })
	spend(s.victim.URL, "again", 20, 5)()
	t.Logf("%d recovered, %s of %s spent, %d looks at billing", s.recovered, totalSpent(t, s.d), s.limit, watched())
	stop(t, s.survivor, s.victim, third)
	if spent := totalSpent(t, s.d); spent > s.limit {
		t.Errorf("got %s spent, want at most %s", spent, s.limit)
	}
	checkBalances(t, s.d)
}
