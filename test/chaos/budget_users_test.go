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
	"turnpike/test/chaos/program"
)

const userCalls = 50 // that a user's budget pays for

// userToken creates a scoped token for an end user with a budget for userCalls.
func userToken(t *testing.T, url, key string, window accounts.Window) string {
	t.Helper()
	o := call(url, request{mark: "token", method: "POST", path: "/v1/scoped_tokens", key: key,
		body: fmt.Sprintf(`{"scopes":["chat.completions:create"],"user":"by %s","user_limits":{"budget":%s,"window":%q}}`, window, userCalls*callBound, window)})
	var token struct{ Value string }
	if err := json.Unmarshal(o.body, &token); err != nil || token.Value == "" {
		t.Fatalf("failed to create a token: %v\n%s", o, o.body)
	}
	return token.Value
}

// spentByUser returns the cost of all requests of the user according to the log.
func spentByUser(t *testing.T, d *db.DB, window accounts.Window) credits.Micro {
	t.Helper()
	return credits.Micro(count(t, d, `SELECT CAST(coalesce(sum(r.credits), 0) AS BIGINT) FROM requests r JOIN end_users u ON u.id = r.end_user_id WHERE u.name = $1`, "by "+string(window)))
}

// TestUserBudgetForFiftyCallsServesExactlyFifty sends a thousand concurrent requests
// of an end user with a budget for fifty, for each window.
func TestUserBudgetForFiftyCallsServesExactlyFifty(t *testing.T) {
	longOnly(t, "api.TestUserBudgetIsExactInEachWindow")
	t.Parallel()
	const calls = 1000
	eachEngine(t, func(t *testing.T, at program.Place) {
		settings := writeProviderConfig(t, at, upstream(t, func() int64 { return callTokens }, func() time.Duration { return rand.N(50 * time.Millisecond) }))
		servers := []*program.Server{serve(t, at, settings)}
		if at.DatabaseURL != "" {
			servers = append(servers, serve(t, at, settings))
		}
		p := newAccount(t, at, servers[0].URL)
		d := open(t, at)
		for _, window := range accounts.Windows {
			user := &account{key: userToken(t, servers[0].URL, p.admin, window)}
			served, refused := sendAll(t, servers, calls, "budget_exceeded", func(i int) request { return user.paidRequest(fmt.Sprintf("%s/%d", window, i), i%4 == 0) })
			if served != userCalls || refused != calls-userCalls {
				t.Errorf("%s: got %d served and %d rejected, want %d and %d", window, served, refused, userCalls, calls-userCalls)
			}
			if spent := spentByUser(t, d, window); spent != userCalls*callBound {
				t.Errorf("%s: got %s spent, want %s", window, spent, userCalls*callBound)
			}
		}
		stop(t, servers...)
		checkBalances(t, d)
	})
}

// TestUserBudgetIsNeverExceededAfterKill9 kills a node while end users spend. On
// PostgreSQL, another node keeps running.
func TestUserBudgetIsNeverExceededAfterKill9(t *testing.T) {
	t.Parallel()
	windows := []accounts.Window{accounts.WindowDay}
	if full {
		windows = accounts.Windows
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		settings := writeProviderConfig(t, at, upstream(t, func() int64 { return callTokens }, func() time.Duration { return 5*time.Millisecond + rand.N(50*time.Millisecond) }))
		var survivor *program.Server
		if at.DatabaseURL != "" {
			survivor = serve(t, at, settings)
		}
		victim := serve(t, at, settings)
		d := open(t, at)
		admin := liveKey(t, at)
		for _, window := range windows {
			user := &account{key: userToken(t, victim.URL, admin, window)}
			dead := (&budgetTest{d: d}).newest(t)
			servers := []*program.Server{victim}
			if survivor != nil {
				servers = append(servers, survivor)
			}
			var served, calls atomic.Int64
			send := func(stop func() bool) {
				var workers sync.WaitGroup
				for w := range 40 {
					workers.Go(func() {
						c := newClient(servers[w%len(servers)].URL)
						defer c.close()
						for !stop() {
							o := c.do(user.paidRequest(fmt.Sprintf("%s/%d", window, calls.Add(1)), w%8 >= 6), nil)
							if o.err != nil || o.status == http.StatusPaymentRequired {
								return
							}
							if o.status == http.StatusOK && o.whole && served.Add(1) == userCalls/2 {
								victim.Kill()
							}
						}
					})
				}
				workers.Wait()
			}
			send(func() bool { return served.Load() >= userCalls/2 && survivor == nil })
			if survivor != nil {
				evict(t, d, dead) // other nodes would evict it after a minute
			}
			victim = serve(t, at, settings)
			servers[0] = victim
			send(func() bool { return false }) // until the budget is used up
			if n := served.Load(); n > userCalls || n < userCalls/2 {
				t.Errorf("%s: got %d requests served, want at most %d", window, n, userCalls)
			}
			if spent := spentByUser(t, d, window); spent > userCalls*callBound {
				t.Errorf("%s: got %s spent, want at most %s", window, spent, userCalls*callBound)
			}
		}
		if survivor != nil {
			stop(t, survivor, victim)
		} else {
			stop(t, victim)
		}
		checkBalances(t, d)
	})
}
