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

// TestFrozenNodeSpendsNothingAfterItsEviction stops a node's process during its
// work, evicts it, uses up the budget on another node, and resumes it: it must
// not spend the leases it still has in memory, and rejoins with a new ID.
func TestFrozenNodeSpendsNothingAfterItsEviction(t *testing.T) {
	t.Parallel()
	if !full {
		t.Skip("waits for the database to end the node's transactions: part of the long form")
	}
	for n := range 3 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			freeze(t)
		})
	}
}

func freeze(t *testing.T) {
	at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	settings := metered(t, at, upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration { return rand.N(200 * time.Millisecond) }))
	s := &spending{at: at, settings: settings, d: open(t, at)}
	s.survivor = serve(t, at, settings)
	s.mortal = serve(t, at, settings)
	s.payer = newPayer(t, at, s.survivor.URL)
	s.limit = 200 * callBound
	s.payer.setCredits(t, s.survivor.URL, s.limit)
	frozen := s.newest(t)
	watched := s.watch(t)

	spend := func(url, mark string, clients, calls int) func() {
		var workers sync.WaitGroup
		for w := range clients {
			workers.Go(func() {
				c := newClient(url)
				defer c.close()
				for i := range calls {
					o := c.do(s.payer.pay(fmt.Sprintf("%s/%d/%d", mark, w, i), w%4 == 0), nil)
					if o.whole && o.status != http.StatusOK && o.status != http.StatusPaymentRequired && o.status != http.StatusServiceUnavailable {
						t.Errorf("neither served nor refused: %v\n%s", o, o.body)
					}
				}
			})
		}
		return workers.Wait
	}
	ended := spend(s.mortal.URL, "frozen", 40, 3)
	eventually(t, 10*time.Second, "calls are under way", func() bool { return count(t, s.d, "SELECT count(*) FROM requests WHERE NOT settled") >= 5 })
	if err := syscall.Kill(s.mortal.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(32 * time.Second) // the database ends the transactions of the node meanwhile
	evict(t, s.d, frozen)
	third := serve(t, at, settings) // recovers its requests
	s.recovered = count(t, s.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered'")
	if s.recovered == 0 {
		t.Error("nothing was recovered: the node was frozen at the wrong moment to show anything")
	}
	spend(s.survivor.URL, "awake", 20, 40)()
	if err := syscall.Kill(s.mortal.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ended()
	eventually(t, 30*time.Second, "the node rejoins", func() bool { return count(t, s.d, "SELECT count(*) FROM nodes") == 3 })
	if n := count(t, s.d, "SELECT count(*) FROM nodes WHERE id = $1", frozen); n != 0 {
		t.Error("the evicted node is a member again")
	}
	eventually(t, 10*time.Second, "the node is ready", func() bool { return get(s.mortal.URL, "/readyz").status == http.StatusOK })
	spend(s.mortal.URL, "again", 20, 5)()
	t.Logf("%d recovered, %s of %s spent, %d looks at billing", s.recovered, total(t, s.d), s.limit, watched())
	stop(t, s.survivor, s.mortal, third)
	if spent := total(t, s.d); spent > s.limit {
		t.Errorf("%s of %s credits are spent", spent, s.limit)
	}
	checkBooks(t, s.d)
}
