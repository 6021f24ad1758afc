package chaos

import (
	"encoding/json"
	"errors"
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

// TestBudgetForFiftyCallsServesExactlyFifty sends a thousand concurrent requests to one, two or three nodes, with a
// budget for fifty. One of three nodes is killed meanwhile. Then its replacement and the others serve exactly the rest.
func TestBudgetForFiftyCallsServesExactlyFifty(t *testing.T) {
	longOnly(t, "spend.TestConcurrentCallsOnTwoNodesSpendExactlyTheBudget, TestBudgetIsExactAfterKill9BeforeCostsArePosted")
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
		for nodes := 1; nodes <= 3; nodes++ {
			t.Run(fmt.Sprintf("%s/nodes=%d", variant.name, nodes), func(t *testing.T) {
				t.Parallel()
				at := program.Place{Dir: t.TempDir()}
				if nodes > 1 {
					at.DatabaseURL = dbtest.Address(t, "postgres")
				}
				settings := writeProviderConfig(t, at, upstream(t, variant.tokens, func() time.Duration { return rand.N(50 * time.Millisecond) }))
				var servers []*program.Server
				for range nodes {
					servers = append(servers, serve(t, at, settings))
				}
				d := open(t, at)
				p := newAccount(t, at, servers[0].URL)
				p.setCredits(t, servers[0].URL, budget*callBound)
				var killed *program.Server
				var killing sync.WaitGroup
				dead := (&budgetTest{d: d}).newest(t)
				if nodes > 2 {
					killed = servers[nodes-1]
					p.sendAll(t, servers[nodes-1:], 1) // leases credits
					killing.Go(func() { killInProgress(t, d, killed, dead) })
				}
				served, refused, lost := p.sendAllKilling(t, servers, calls, killed)
				killing.Wait()
				if killed != nil {
					if leases := count(t, d, "SELECT count(*) FROM spend_leases WHERE node_id = $1", dead); leases == 0 || lost == 0 {
						t.Errorf("got %d leases of the killed node and %d lost requests, want some: the kill came at the wrong moment to show anything", leases, lost)
					}
					evict(t, d, dead) // other nodes would evict it after a minute
					servers[nodes-1] = serve(t, at, settings)
					more, _ := p.sendAll(t, servers, calls)
					served += 1 + more
				}
				switch spent := totalSpent(t, d); {
				case killed == nil && served+refused != calls:
					t.Errorf("got %d served and %d rejected, want %d in total", served, refused, calls)
				case spent > budget*callBound:
					t.Errorf("got %s spent, want at most %d", spent, budget)
				case killed == nil && served < budget || served > variant.most:
					t.Errorf("got %d requests served with a budget for %d", served, budget)
				case spent <= (budget-1)*callBound: // recovered requests cost their bound, whether or not they were served
					t.Errorf("got %s spent, want more: another request fits into a budget of %d", spent, budget)
				default:
					t.Logf("%d served, %d refused, %d lost, %s of %d credits spent", served, refused, lost, spent, budget)
				}
				if nodes > 1 {
					stop(t, servers...)
				} else {
					eventually(t, 15*time.Second, "unused reservations are released", func() bool {
						return count(t, d, "SELECT count(*) FROM spend_leases")+count(t, d, "SELECT count(*) FROM requests WHERE NOT settled") == 0
					})
				}
				checkBalances(t, d)
			})
		}
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
	served, refused, _ = p.sendAllKilling(t, servers, calls, nil)
	return served, refused
}

// sendAllKilling is sendAll while a server is killed.
func (p *account) sendAllKilling(t *testing.T, servers []*program.Server, calls int, killed *program.Server) (served, refused, lost int) {
	t.Helper()
	return sendAllKilling(t, servers, calls, crowd{"insufficient_credits", func(i int) request { return p.paidRequest(fmt.Sprintf("crowd/%d", i), i%4 == 0) }, killed})
}

// crowd is a number of concurrent requests.
type crowd struct {
	code   string // of rejected requests
	next   func(i int) request
	killed *program.Server // nil if none is killed
}

// sendAll sends requests concurrently. It counts the served ones and those rejected
// with the code.
func sendAll(t *testing.T, servers []*program.Server, calls int, code string, next func(i int) request) (served, refused int) {
	t.Helper()
	served, refused, _ = sendAllKilling(t, servers, calls, crowd{code, next, nil})
	return served, refused
}

// sendAllKilling is sendAll that also counts the requests that got no complete response from a killed server.
func sendAllKilling(t *testing.T, servers []*program.Server, calls int, c crowd) (served, refused, lost int) {
	t.Helper()
	outcomes := make([]*outcome, calls)
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() {
			outcomes[i] = call(servers[i%len(servers)].URL, c.next(i))
		})
	}
	all.Wait()
	wrong := &failures{t: t}
	defer wrong.done()
	for i, o := range outcomes {
		switch {
		case o.status == http.StatusOK && o.whole:
			served++
		case o.status == http.StatusPaymentRequired && o.code() == c.code:
			refused++
		case !o.whole && servers[i%len(servers)] == c.killed:
			lost++
		default:
			wrong.add("got %v, want a served or rejected request\n%s", o, o.body)
		}
	}
	return served, refused, lost
}

// killInProgress kills a server as soon as the log has a request of its node that is in progress.
func killInProgress(t *testing.T, d *db.DB, s *program.Server, node string) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var open int
		err := d.QueryRow(t.Context(), "SELECT count(*) FROM requests WHERE node_id = $1 AND NOT settled", node).Scan(&open)
		if err == nil && open == 0 && time.Now().After(deadline) {
			err = errors.New("timed out")
		}
		if err != nil {
			t.Errorf("got no request in progress: %v", err)
		}
		if err != nil || open > 0 {
			s.Kill()
			return
		}
	}
}
