package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestBudgetIsExactWhenCommitResponsesAreLost drops responses to commits while requests
// are reserved, recorded and charged. Nothing is charged twice, failed requests cost
// nothing, no reservation is left, and the next server finds nothing open.
func TestBudgetIsExactWhenCommitResponsesAreLost(t *testing.T) {
	longOnly(t, "spend.TestChargeWhoseCommitIsInDoubtIsPostedOnce")
	t.Parallel()
	at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	responseDropper, address := dropResponses(t, at.DatabaseURL)
	settings := writeProviderConfig(t, at, upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration { return rand.N(40 * time.Millisecond) }))
	server := serve(t, program.Place{Dir: at.Dir, DatabaseURL: address}, settings)
	p := newAccount(t, at, server.URL)
	const limit = 100 * callBound
	p.setCredits(t, server.URL, limit)
	d := open(t, at)

	var mu sync.Mutex
	var outcomes []*outcome
	seen := func(status int) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range outcomes {
			if o.status == status {
				n++
			}
		}
		return n
	}
	quit := make(chan struct{})
	var workers sync.WaitGroup
	for w := range 30 {
		workers.Go(func() {
			c := newClient(server.URL)
			defer c.close()
			for i := 0; ; i++ {
				select {
				case <-quit:
					return
				case <-time.After(rand.N(20 * time.Millisecond)):
				}
				o := c.do(p.paidRequest(fmt.Sprintf("unanswered/%d/%d", w, i), w%4 == 0), nil)
				mu.Lock()
				outcomes = append(outcomes, o)
				mu.Unlock()
			}
		})
	}
	silent, broken := 1, 5
	if full {
		silent, broken = 5, 50
	}
	for n := range silent + broken {
		before := seen(http.StatusOK) + seen(http.StatusPaymentRequired)
		eventually(t, 20*time.Second, "requests get responses", func() bool {
			return seen(http.StatusOK)+seen(http.StatusPaymentRequired) >= before+20
		})
		lost := responseDropper.dropped()
		responseDropper.hangUp(n >= silent)
		if err := responseDropper.begin(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "commit responses are dropped", func() bool { return responseDropper.dropped() > lost+n%3 })
		if err := responseDropper.end(); err != nil {
			t.Fatal(err)
		}
	}
	close(quit)
	workers.Wait()

	check := func() {
		t.Helper()
		checkBalances(t, d)
		if spent := totalSpent(t, d); spent > limit {
			t.Errorf("got %s spent, want at most %s", spent, limit)
		}
		if n := count(t, d, "SELECT count(*) FROM requests WHERE status = 503 AND credits > 0"); n > 0 {
			one, err := db.Value[string](d.QueryRow(t.Context(), `SELECT min(id || ' ' || coalesce(error_code, '') || ' ' || coalesce(usage_source, '') || ' ' || credits || ' of ' || reserved)
				FROM requests WHERE status = 503 AND credits > 0`))
			t.Errorf("got %d rejected requests that were charged, want 0; one is %s (%v)", n, one, err)
		}
	}
	stop(t, server)
	check()
	t.Logf("%d commits were not answered; %d calls served, %d refused for lack of credits, %d for lack of the database; %s spent",
		responseDropper.dropped(), seen(http.StatusOK), seen(http.StatusPaymentRequired), seen(http.StatusServiceUnavailable), totalSpent(t, d))

	// The next server charges the requests that are still open.
	server = serve(t, at, settings)
	log := export(t, server.URL, p.admin)
	checkLogged(t, outcomes, log, acknowledged)
	wrong := &failures{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		// The kind of rejection doesn't matter. None is charged.
		if e := log[o.mark]; o.whole && len(e) == 1 && acknowledged(o) != (e[0].status == http.StatusOK) {
			wrong.add("got status %d in the log for %v", e[0].status, o)
		}
	}
	stop(t, server)
	check()
}
