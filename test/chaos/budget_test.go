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

// TestBudgetForFiftyCallsServesExactlyFifty sends a thousand concurrent requests to
// every node, with a budget for fifty.
func TestBudgetForFiftyCallsServesExactlyFifty(t *testing.T) {
	longOnly(t, "spend.TestConcurrentCallsOnTwoNodesSpendExactlyTheBudget")
	t.Parallel()
	const budget, calls = 50, 1000
	for _, variant := range []struct {
		name   string
		tokens func() int64
		most   int // requests served
	}{
		{"of calls at their bound", func() int64 { return callTokens }, budget},
		{"of calls below it", func() int64 { return callTokens/2 + rand.Int64N(callTokens/2) }, 2 * budget},
	} {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			eachEngine(t, func(t *testing.T, at program.Place) {
				settings := writeProviderConfig(t, at, upstream(t, variant.tokens, func() time.Duration { return rand.N(50 * time.Millisecond) }))
				servers := []*program.Server{serve(t, at, settings)}
				if at.DatabaseURL != "" {
					servers = append(servers, serve(t, at, settings))
				}
				p := newAccount(t, at, servers[0].URL)
				p.setCredits(t, servers[0].URL, budget*callBound)
				served, refused := p.sendAll(t, servers, calls)
				d := open(t, at)
				switch spent := totalSpent(t, d); {
				case served+refused != calls:
					t.Errorf("got %d served and %d rejected, want %d in total", served, refused, calls)
				case spent > budget*callBound:
					t.Errorf("got %s spent, want at most %d", spent, budget)
				case served < budget || served > variant.most:
					t.Errorf("got %d requests served with a budget for %d", served, budget)
				default:
					t.Logf("%d served, %d refused, %s of %d credits spent", served, refused, spent, budget)
				}
				if at.DatabaseURL != "" {
					stop(t, servers...)
				} else {
					eventually(t, 15*time.Second, "unused reservations are released", func() bool {
						return count(t, d, "SELECT count(*) FROM spend_leases")+count(t, d, "SELECT count(*) FROM requests WHERE NOT settled") == 0
					})
				}
				checkBalances(t, d)
			})
		})
	}
}

// TestGrandchildrenNeverExceedTheGrandparentsBudget sends a thousand concurrent
// requests with four grandchild keys to every node. The first key has a budget for
// fifty.
func TestGrandchildrenNeverExceedTheGrandparentsBudget(t *testing.T) {
	longOnly(t, "api.TestChildSpendingCountsTowardEveryAncestor, spend.TestNoBudgetIsEverOverspent")
	t.Parallel()
	const budget, calls = 50, 1000
	eachEngine(t, func(t *testing.T, at program.Place) {
		settings := writeProviderConfig(t, at, upstream(t, func() int64 { return callTokens }, func() time.Duration { return rand.N(50 * time.Millisecond) }))
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
				t.Fatalf("failed to create a child key: %v\n%s", o, o.body)
			}
			return key.Value
		}
		grandparent := liveKey(t, at, "--budget", limit)
		var keys []string
		for range 2 {
			parent := child(grandparent)
			keys = append(keys, child(parent), child(parent))
		}
		served, refused := sendAll(t, servers, calls, "budget_exceeded", func(i int) request {
			return (&account{key: keys[i/2%len(keys)]}).paidRequest(fmt.Sprintf("crowd/%d", i), i%3 == 0)
		})
		d := open(t, at)
		if served != budget || refused != calls-budget {
			t.Errorf("got %d calls served and %d refused, want %d and %d", served, refused, budget, calls-budget)
		}
		if spent := totalSpent(t, d); spent > budget*callBound {
			t.Errorf("got %s spent, want at most %s", spent, limit)
		}
		stop(t, servers...)
		checkBalances(t, d)
	})
}

// sendAll sends the account's requests concurrently, in a workspace with few credits.
func (p *account) sendAll(t *testing.T, servers []*program.Server, calls int) (served, refused int) {
	t.Helper()
	return sendAll(t, servers, calls, "insufficient_credits", func(i int) request { return p.paidRequest(fmt.Sprintf("crowd/%d", i), i%4 == 0) })
}

// sendAll sends requests concurrently. It counts the served ones and those rejected
// with the code.
func sendAll(t *testing.T, servers []*program.Server, calls int, code string, next func(i int) request) (served, refused int) {
	t.Helper()
	outcomes := make([]*outcome, calls)
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() {
			outcomes[i] = call(servers[i%len(servers)].URL, next(i))
		})
	}
	all.Wait()
	wrong := &failures{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		switch {
		case o.status == http.StatusOK && o.whole:
			served++
		case o.status == http.StatusPaymentRequired && o.code() == code:
			refused++
		default:
			wrong.add("got %v, want a served or rejected request\n%s", o, o.body)
		}
	}
	return served, refused
}
