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
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// TestBackgroundResponsesSurviveKill9 repeatedly kills a node while it creates background responses. On
// PostgreSQL, another node keeps running. Every response ends once, is charged once and has one event,
// which arrives. Streams that were interrupted end as well.
//
// A response would be lost if its row were deleted before its end is stored. If its charge or its event had
// another transaction, a crash between the two would lose or repeat one of them.
func TestBackgroundResponsesSurviveKill9(t *testing.T) {
	t.Parallel()
	kills, amount := 2, 80
	if full {
		kills, amount = 10, 1000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := newBackgroundTest(t, at, amount)
		created := s.createAll(t)
		for n := range kills {
			// Within part n of the expected calls. Repeats come on top.
			part := amount / (kills + 1)
			killAt := max(int64(n*part+part/4+random.IntN(part)), s.calls.Load()+1)
			eventually(t, time.Minute, "the provider is called", func() bool { return s.calls.Load() >= killAt })
			dead := s.newest(t)
			s.victim.Load().Kill()
			open := count(t, s.d, "SELECT count(*) FROM background_responses WHERE attempts > 0")
			if at.DatabaseURL != "" {
				s.takeOver(t, dead)
			}
			s.victim.Store(serve(t, at, s.args...))
			t.Logf("killed at call %d, with %d responses in progress", killAt, open)
		}
		created()
		eventually(t, 2*time.Minute, "all responses end", func() bool { return count(t, s.d, "SELECT count(*) FROM background_responses") == 0 })
		s.hooks.waitUntilDelivered(t, time.Minute)
		s.check(t)
		if n := int(s.calls.Load()); n <= amount {
			t.Errorf("got %d calls for %d responses, want more: the kills came at the wrong moments to show anything", n, amount)
		}
		t.Logf("%d calls for %d responses", s.calls.Load(), amount)
		stop(t, s.servers()...)
		checkBalances(t, s.d)
	})
}

// TestPlannedRestartsDoNotFailABackgroundResponse stops the server more often than a response may be interrupted
// by crashes. Each stop waits 15 seconds for the provider.
func TestPlannedRestartsDoNotFailABackgroundResponse(t *testing.T) {
	longOnly(t, "api.TestInterruptedBackgroundResponseIsRepeatedAndChargedOnce")
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		over := make(chan struct{})
		args := []string{writeProviderConfig(t, at, slowStream(t, over))}
		server := serve(t, at, args...)
		p, d := newAccount(t, at, server.URL), open(t, at)
		p.setCredits(t, server.URL, 10*callBound)
		body := fmt.Sprintf(`{"model":%q,"background":true,"stream":true,"max_output_tokens":%d,"input":"Well?"}`, callModel, callTokens)
		started := make(chan struct{})
		go newClient(server.URL).do(request{mark: "order", method: "POST", path: "/v1/responses", key: p.key, body: body}, func([]byte) {
			select {
			case started <- struct{}{}:
			default:
			}
		})
		<-started
		for range 4 {
			eventually(t, time.Minute, "the response has output", func() bool {
				return count(t, d, "SELECT count(*) FROM background_responses WHERE attempts > 0 AND output_tokens > 0") == 1
			})
			stop(t, server)
			if n := count(t, d, "SELECT count(*) FROM background_responses WHERE attempts = 0"); n != 1 {
				t.Errorf("got %d responses without an attempt, want 1", n)
			}
			server = serve(t, at, args...)
		}
		close(over)
		var id string
		if err := d.QueryRow(t.Context(), "SELECT id FROM responses").Scan(&id); err != nil {
			t.Fatal(err)
		}
		var o *outcome
		eventually(t, time.Minute, "the stream ends", func() bool {
			o = call(server.URL, request{mark: "look", method: "GET", path: "/v1/responses/" + id + "?stream=true", key: p.key})
			return o.whole && o.status == http.StatusOK
		})
		// The first stream may have begun with an attempt that was interrupted. The stored events are of one attempt.
		o = call(server.URL, o.request)
		var r struct{ Status string }
		if err := json.Unmarshal(lastResponse(t, o.body), &r); err != nil || r.Status != "completed" || strings.Count(string(o.body), "event: response.in_progress") != 1 {
			t.Errorf("got %s (%v)", o.body, err)
		}
		stop(t, server)
		checkBalances(t, d)
	})
}

type backgroundTest struct {
	at       program.Place
	args     []string
	d        *db.DB
	victim   atomic.Pointer[program.Server] // is killed and restarted
	survivor *program.Server                // nil on SQLite
	account  *account
	hooks    *webhookFixture
	inbox    *inbox
	calls    atomic.Int64 // to the provider
	ids      []string     // of the responses
}

func newBackgroundTest(t *testing.T, at program.Place, amount int) *backgroundTest {
	t.Helper()
	s := &backgroundTest{at: at, ids: make([]string, amount)}
	url := upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration {
		s.calls.Add(1)
		return 50*time.Millisecond + rand.N(300*time.Millisecond)
	})
	s.args = []string{writeProviderConfig(t, at, url), "--webhooks-allow-http", "--webhooks-allow-cidrs=127.0.0.0/8"}
	if at.DatabaseURL != "" {
		s.survivor = serve(t, at, s.args...)
	}
	s.victim.Store(serve(t, at, s.args...))
	s.d = open(t, at)
	s.account = newAccount(t, at, s.victim.Load().URL)
	s.account.setCredits(t, s.victim.Load().URL, credits.Micro(2*amount)*callBound)
	s.hooks = &webhookFixture{d: s.d, key: s.account.admin}
	s.inbox = s.hooks.inbox(t, s.victim.Load().URL, "response.*")
	return s
}

func (s *backgroundTest) servers() []*program.Server {
	if s.survivor == nil {
		return []*program.Server{s.victim.Load()}
	}
	return []*program.Server{s.survivor, s.victim.Load()}
}

// newest returns the node that started last, which is the victim.
func (s *backgroundTest) newest(t *testing.T) string {
	t.Helper()
	return (&budgetTest{d: s.d}).newest(t)
}

// takeOver evicts the dead node and ends the leases of its lanes, instead of waiting for both.
func (s *backgroundTest) takeOver(t *testing.T, dead string) {
	t.Helper()
	evict(t, s.d, dead)
	err := s.d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE lanes SET lease_until = lease_until - $1 WHERE owner = $2", leaseTime.Microseconds(), dead)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// createAll creates responses in the background until wait returns. Clients repeat a request that got no response
// with the same Idempotency-Key.
func (s *backgroundTest) createAll(t *testing.T) (wait func()) {
	t.Helper()
	const clients = 12
	var next atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(s.ids) && t.Context().Err() == nil; i = next.Add(1) - 1 {
				s.ids[i] = s.create(t, int(i))
			}
		})
	}
	t.Cleanup(all.Wait)
	return all.Wait
}

// create creates a response and returns its ID. Every fourth is streamed to its end.
func (s *backgroundTest) create(t *testing.T, i int) string {
	stream := i%4 == 0
	r := request{mark: fmt.Sprintf("background/%d", i), method: "POST", path: "/v1/responses", key: s.account.key, once: fmt.Sprintf("once-%d", i), streamed: stream,
		body: fmt.Sprintf(`{"model":%q,"background":true,"stream":%t,"max_output_tokens":%d,"input":"Well?"}`, callModel, stream, callTokens)}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && t.Context().Err() == nil; {
		servers := s.servers()
		o := call(servers[i%len(servers)].URL, r)
		switch {
		case o.status != 0 && o.status != http.StatusOK && o.status < http.StatusInternalServerError && o.code() != "conflict":
			t.Errorf("got %v, want a response\n%s", o, o.body)
			return ""
		case o.status != http.StatusOK || !o.whole:
			time.Sleep(20 * time.Millisecond) // the server was killed, or is starting
			continue
		}
		body := o.body
		if stream {
			if body = lastResponse(t, body); body == nil {
				continue // the stream was interrupted
			}
		}
		var made struct{ ID string }
		if err := json.Unmarshal(body, &made); err != nil || made.ID == "" {
			t.Errorf("got %v, want a response with an ID (%v)\n%s", o, err, o.body)
		}
		return made.ID
	}
	t.Errorf("timed out creating response %d", i)
	return ""
}

// lastResponse returns the response in the last event of a stream, or nil if the stream didn't reach the end. Its
// sequence numbers must increase.
func lastResponse(t *testing.T, stream []byte) []byte {
	last := int64(-1)
	for line := range strings.Lines(string(stream)) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type     string
			Sequence int64 `json:"sequence_number"`
			Response json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Errorf("got event %s: %v", data, err)
		}
		switch e.Type {
		case "error":
			continue
		case "response.completed", "response.failed":
			return e.Response
		}
		if e.Sequence <= last {
			t.Errorf("got sequence number %d after %d", e.Sequence, last)
		}
		last = e.Sequence
	}
	return nil
}

// check compares the responses, their charges and their events.
func (s *backgroundTest) check(t *testing.T) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	seen := map[string]bool{}
	states := map[string]int{}
	var sum credits.Micro
	for i, id := range s.ids {
		if id == "" || seen[id] {
			wrong.add("got ID %q for response %d, want a new one", id, i)
			continue
		}
		seen[id] = true
		o := call(s.victim.Load().URL, request{mark: "look", method: "GET", path: "/v1/responses/" + id, key: s.account.admin})
		var r struct {
			Status string
			Usage  struct{ Credits credits.Micro }
		}
		if err := json.Unmarshal(o.body, &r); err != nil || o.status != http.StatusOK {
			wrong.add("%v: %v\n%s", o, err, o.body)
			continue
		}
		states[r.Status]++
		sum += r.Usage.Credits
		if r.Status != "completed" && r.Status != "failed" || (r.Status == "completed") != (r.Usage.Credits > 0) {
			wrong.add("got %s", o.body)
		}
		charged := count(t, s.d, "SELECT credits FROM requests WHERE id = $1", "req"+strings.TrimPrefix(id, "resp"))
		if charged != int(r.Usage.Credits) {
			wrong.add("%s was charged %d, want %d", id, charged, r.Usage.Credits)
		}
		if names := s.inbox.events(id); len(names) != 1 || names[0] != "response."+r.Status {
			wrong.add("%s is %s, and these events arrived: %v", id, r.Status, names)
		}
	}
	if spent := totalSpent(t, s.d); spent != sum {
		wrong.add("got %s charged, want %s", spent, sum)
	}
	if n := count(t, s.d, "SELECT count(*) FROM events WHERE type LIKE 'response.%'"); n != len(s.ids) {
		wrong.add("got %d events for %d responses", n, len(s.ids))
	}
	if states["completed"] == 0 || states["failed"] > len(s.ids)/10 {
		wrong.add("got states %v", states)
	}
	t.Logf("states %v, %s charged", states, sum)
}

// events returns the types of the different events about an object that arrived.
func (b *inbox) events(id string) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, all := range b.got {
		var event struct {
			Type string
			Data struct{ ID string }
		}
		if err := json.Unmarshal([]byte(all[0].body), &event); err == nil && event.Data.ID == id {
			names = append(names, event.Type)
		}
	}
	return names
}
