package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"turnpike/test/chaos/program"
)

// TestEveryAnsweredCallIsLoggedAfterKill9 repeatedly kills the server under load, on
// the same data. If a client received a byte of a response, the request is in the log
// exactly once.
func TestEveryAnsweredCallIsLoggedAfterKill9(t *testing.T) {
	t.Parallel()
	rounds, calls, conns := 2, 400, 100
	if full {
		rounds, calls, conns = 10, 2000, 200
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		k := &killTest{at: at, random: rand.New(rand.NewPCG(seed, 0)), calls: calls, conns: conns}
		server := serve(t, at)
		k.key = newKey(t, at)
		for n := 0; n < rounds && !t.Failed(); n++ {
			k.round, k.last = n, n == rounds-1
			server = k.run(t, server)
		}
	})
}

type killTest struct {
	at        program.Place
	key       string
	random    *rand.Rand
	calls     int // per round
	conns     int
	round     int
	last      bool
	outcomes  []*outcome // of all rounds
	recovered int        // entries of all rounds
}

// run is one round: load, kill, restart, check. It returns the new server.
func (k *killTest) run(t *testing.T, server *program.Server) *program.Server {
	t.Helper()
	requests := make([]request, k.calls)
	for i := range requests {
		requests[i] = k.request(fmt.Sprintf("kill/%d/%d", k.round, i))
	}
	killAt := int64(k.calls/5 + k.random.IntN(k.calls*3/5))
	outcomes := k.load(server, requests, killAt)
	server.Kill()

	if k.last && k.at.DatabaseURL != "" {
		evictAll(t, open(t, k.at)) // so that the next start recovers its entries
	}
	// Every other server commits before the provider request, so that plain requests
	// leave open entries too.
	server = serve(t, k.at, fmt.Sprintf("--audit-strict=%t", k.round%2 == 0))
	serves(t, server.URL, k.key)
	k.outcomes = append(k.outcomes, outcomes...)
	log := export(t, server.URL, k.key)
	checkLogged(t, k.outcomes, log, answered)
	k.checkRecovered(t, log)
	k.checkTokens(t, server, outcomes)
	k.report(t, outcomes, log, killAt)
	return server
}

// request returns a random request. Some are still in progress when the server dies.
func (k *killTest) request(mark string) request {
	delay := func(most int) int { return 1 + k.random.IntN(most) }
	switch n := k.random.IntN(100); {
	case n < 45:
		return chat(mark, k.key, "Say something.", false)
	case n < 60:
		return chat(mark, k.key, fmt.Sprintf("Take your time. [[sim:delay=%dms]]", delay(40)), false)
	case n < 78:
		return chat(mark, k.key, "Tell me a story.", true)
	case n < 88:
		return chat(mark, k.key, fmt.Sprintf("Slowly. [[sim:length=20]] [[sim:chunk_delay=%dms]]", delay(5)), true)
	case n < 94:
		return request{mark: mark, method: "POST", path: "/v1/scoped_tokens", key: k.key, body: `{"scopes":["models:read"]}`}
	case n < 96:
		return request{mark: mark, method: "GET", path: "/v1/models", key: k.key}
	case n < 98:
		return chat(mark, k.key, "[[sim:error=429]]", false)
	case n < 99:
		return request{mark: mark, method: "POST", path: "/v1/chat/completions", key: k.key, body: `{"model":`}
	default:
		return request{mark: mark, method: "GET", path: "/v1/nothing", key: k.key}
	}
}

// load sends the requests over many connections and kills the server after killAt
// responses. It drops the requests that were not sent by then.
func (k *killTest) load(server *program.Server, requests []request, killAt int64) []*outcome {
	var next, done atomic.Int64
	var dead atomic.Bool
	outcomes := make([]*outcome, len(requests))
	var workers sync.WaitGroup
	for range k.conns {
		workers.Go(func() {
			c := newClient(server.URL)
			defer c.close()
			for !dead.Load() {
				i := next.Add(1) - 1
				if i >= int64(len(requests)) {
					return
				}
				outcomes[i] = c.do(requests[i], nil)
				if outcomes[i].whole && done.Add(1) == killAt {
					dead.Store(true)
					server.Kill()
				}
			}
		})
	}
	workers.Wait()
	return outcomes[:min(next.Load(), int64(len(requests)))]
}

// checkRecovered checks that the entries the dead server left open were closed. On
// PostgreSQL this needs an expired heartbeat.
func (k *killTest) checkRecovered(t *testing.T, log map[string][]entry) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	recovered := 0
	taken := k.at.DatabaseURL == "" || k.last
	for mark, entries := range log {
		for _, e := range entries {
			if !strings.HasPrefix(mark, "kill/") {
				continue
			}
			switch {
			case e.usage == "recovered":
				recovered++
			case e.status == 0 && taken:
				wrong.add("entry %s (%s) is still open", e.id, mark)
			}
		}
	}
	if taken {
		if n := count(t, open(t, k.at), "SELECT count(*) FROM requests WHERE NOT settled AND user_agent LIKE 'kill/%'"); n > 0 {
			wrong.add("got %d unsettled entries of dead servers, want 0", n)
		}
		if recovered == 0 && k.last {
			wrong.add("got no recovered entry, want some: the kills came at the wrong moments to show anything")
		}
	}
	k.recovered = recovered
}

// checkTokens checks that the returned tokens are valid: tokens are as durable as their
// log entries.
func (k *killTest) checkTokens(t *testing.T, server *program.Server, outcomes []*outcome) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	c := newClient(server.URL)
	defer c.close()
	for _, o := range outcomes {
		if o.path != "/v1/scoped_tokens" || o.status != http.StatusOK || !o.whole {
			continue
		}
		var token struct{ Value string }
		if err := json.Unmarshal(o.body, &token); err != nil || token.Value == "" {
			wrong.add("got no token in the response: %v", o)
			continue
		}
		if used := c.do(request{mark: "token", method: "GET", path: "/v1/models", key: token.Value}, nil); used.status != http.StatusOK {
			wrong.add("got %v for a returned token, want it to be valid", used)
		}
	}
}

func (k *killTest) report(t *testing.T, outcomes []*outcome, log map[string][]entry, killAt int64) {
	t.Helper()
	whole, cut, none, unseen := 0, 0, 0, 0
	for _, o := range outcomes {
		switch {
		case o.whole:
			whole++
		case o.seen > 0:
			cut++
		default:
			none++
			unseen += len(log[o.mark])
		}
	}
	t.Logf("round %d: killed at answer %d of %d; %d answered, %d cut short, %d without an answer (of those %d in the log); %d recovered so far",
		k.round+1, killAt, k.calls, whole, cut, none, unseen, k.recovered)
}
