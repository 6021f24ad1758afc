package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestBudgetIsKeptWhenCommitsAreNotAnswered has the database commit and not say
// so, while calls are reserved, recorded and charged. What was charged once is
// not charged again, who was told that the call failed does not pay for it,
// nothing stays set aside, and whoever takes over finds nothing open.
func TestBudgetIsKeptWhenCommitsAreNotAnswered(t *testing.T) {
	t.Parallel()
	at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	swallower, address := swallow(t, at.DatabaseURL)
	settings := metered(t, at, upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration { return rand.N(40 * time.Millisecond) }))
	server := serve(t, program.Place{Folder: at.Folder, DatabaseURL: address}, settings)
	p := newPayer(t, at, server.URL)
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
				o := c.do(p.pay(fmt.Sprintf("unanswered/%d/%d", w, i), w%4 == 0), nil)
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
		eventually(t, 20*time.Second, "calls are answered", func() bool {
			return seen(http.StatusOK)+seen(http.StatusPaymentRequired) >= before+20
		})
		lost := swallower.swallowed()
		swallower.hangUp(n >= silent)
		if err := swallower.begin(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "commits are not answered", func() bool { return swallower.swallowed() > lost+n%3 })
		if err := swallower.end(); err != nil {
			t.Fatal(err)
		}
	}
	close(quit)
	workers.Wait()

	check := func() {
		t.Helper()
		checkBooks(t, d)
		if spent := total(t, d); spent > limit {
			t.Errorf("%s of %s are spent", spent, limit)
		}
		if n := count(t, d, "SELECT count(*) FROM requests WHERE status = 503 AND credits > 0"); n > 0 {
			t.Errorf("%d refused calls are charged", n)
		}
	}
	stop(t, server)
	check()
	t.Logf("%d commits were not answered; %d calls served, %d refused for want of credits, %d for want of the store; %s spent",
		swallower.swallowed(), seen(http.StatusOK), seen(http.StatusPaymentRequired), seen(http.StatusServiceUnavailable), total(t, d))

	// What another finds open, it charges.
	server = serve(t, at, settings)
	log := export(t, server.URL, p.admin)
	checkLogged(t, outcomes, log, acknowledged)
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		// Which refusal it was does not matter, and nobody paid for one.
		if e := log[o.mark]; o.whole && len(e) == 1 && acknowledged(o) != (e[0].status == http.StatusOK) {
			wrong.add("in the log with %d: %v", e[0].status, o)
		}
	}
	stop(t, server)
	check()
}
