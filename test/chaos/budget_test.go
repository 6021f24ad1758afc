package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// TestBudgetForFiftyServesFiftyOfAThousand calls a thousand times at once, on
// every node there is, where the workspace may pay for fifty.
func TestBudgetForFiftyServesFiftyOfAThousand(t *testing.T) {
	t.Parallel()
	const budget, calls = 50, 1000
	for _, variant := range []struct {
		name   string
		tokens func() int64
		most   int // calls that are served
	}{
		{"of calls at their bound", func() int64 { return callTokens }, budget},
		{"of calls below it", func() int64 { return callTokens/2 + rand.Int64N(callTokens/2) }, 2 * budget},
	} {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			eachEngine(t, func(t *testing.T, at program.Place) {
				settings := metered(t, at, upstream(t, variant.tokens, func() time.Duration { return rand.N(50 * time.Millisecond) }))
				servers := []*program.Server{serve(t, at, settings)}
				if at.DatabaseURL != "" {
					servers = append(servers, serve(t, at, settings))
				}
				p := newPayer(t, at, servers[0].URL)
				p.setCredits(t, servers[0].URL, budget*callBound)
				served, refused := crowd(t, servers, p, calls)
				d := open(t, at)
				switch spent := total(t, d); {
				case served+refused != calls:
					t.Errorf("%d served and %d refused of %d", served, refused, calls)
				case spent > budget*callBound:
					t.Errorf("%s of %d credits are spent", spent, budget)
				case served < budget || served > variant.most:
					t.Errorf("%d calls were served by a budget for %d", served, budget)
				default:
					t.Logf("%d served, %d refused, %s of %d credits spent", served, refused, spent, budget)
				}
				if at.DatabaseURL != "" {
					stop(t, servers...)
				} else {
					eventually(t, 15*time.Second, "what is not used is given back", func() bool {
						return count(t, d, "SELECT count(*) FROM spend_leases")+count(t, d, "SELECT count(*) FROM requests WHERE NOT settled") == 0
					})
				}
				checkBooks(t, d)
			})
		})
	}
}

// crowd makes the calls all at once and counts those served and refused.
func crowd(t *testing.T, servers []*program.Server, p *payer, calls int) (served, refused int) {
	t.Helper()
	outcomes := make([]*outcome, calls)
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() {
			outcomes[i] = call(servers[i%len(servers)].URL, p.pay(fmt.Sprintf("crowd/%d", i), i%4 == 0))
		})
	}
	all.Wait()
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		switch {
		case o.status == http.StatusOK && o.whole:
			served++
		case o.status == http.StatusPaymentRequired && o.code() == "insufficient_credits":
			refused++
		default:
			wrong.add("neither served nor refused: %v\n%s", o, o.body)
		}
	}
	return served, refused
}
