package chaos

import (
	"encoding/json"
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
				served, refused := p.crowd(t, servers, calls)
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

// TestGrandchildrenNeverExceedTheGrandparentsBudget makes a thousand concurrent
// calls with four keys of the third generation, on every node there is, where
// the first key may pay for fifty.
func TestGrandchildrenNeverExceedTheGrandparentsBudget(t *testing.T) {
	t.Parallel()
	const budget, calls = 50, 1000
	eachEngine(t, func(t *testing.T, at program.Place) {
		settings := metered(t, at, upstream(t, func() int64 { return callTokens }, func() time.Duration { return rand.N(50 * time.Millisecond) }))
		servers := []*program.Server{serve(t, at, settings)}
		if at.DatabaseURL != "" {
			servers = append(servers, serve(t, at, settings))
		}
		limit := (budget * callBound).String()
		child := func(parent string) string {
			t.Helper()
			o := call(servers[0].URL, request{mark: "child", method: "POST", path: "/v1/keys", key: parent,
				body: `{"name":"child","scopes":["*"],"monthly_budget":` + limit + `}`})
			var key struct{ Value string }
			if err := json.Unmarshal(o.body, &key); err != nil || key.Value == "" {
				t.Fatalf("no child key: %v\n%s", o, o.body)
			}
			return key.Value
		}
		grandparent := liveKey(t, at, "--budget", limit)
		var keys []string
		for range 2 {
			parent := child(grandparent)
			keys = append(keys, child(parent), child(parent))
		}
		served, refused := crowd(t, servers, calls, "budget_exceeded", func(i int) request {
			return (&payer{key: keys[i/2%len(keys)]}).pay(fmt.Sprintf("crowd/%d", i), i%3 == 0)
		})
		d := open(t, at)
		if served != budget || refused != calls-budget {
			t.Errorf("got %d calls served and %d refused, want %d and %d", served, refused, budget, calls-budget)
		}
		if spent := total(t, d); spent > budget*callBound {
			t.Errorf("got %s spent, want at most %s", spent, limit)
		}
		stop(t, servers...)
		checkBooks(t, d)
	})
}

// crowd makes the payer's calls concurrently, in a workspace with few credits.
func (p *payer) crowd(t *testing.T, servers []*program.Server, calls int) (served, refused int) {
	t.Helper()
	return crowd(t, servers, calls, "insufficient_credits", func(i int) request { return p.pay(fmt.Sprintf("crowd/%d", i), i%4 == 0) })
}

// crowd makes the calls concurrently and counts those served, and those refused
// with the code.
func crowd(t *testing.T, servers []*program.Server, calls int, code string, next func(i int) request) (served, refused int) {
	t.Helper()
	outcomes := make([]*outcome, calls)
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() {
			outcomes[i] = call(servers[i%len(servers)].URL, next(i))
		})
	}
	all.Wait()
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		switch {
		case o.status == http.StatusOK && o.whole:
			served++
		case o.status == http.StatusPaymentRequired && o.code() == code:
			refused++
		default:
			wrong.add("neither served nor refused: %v\n%s", o, o.body)
		}
	}
	return served, refused
}
