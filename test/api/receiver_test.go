package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
	"turnpike/internal/webhooks"
	"turnpike/test/harness"
	"turnpike/webhook"
)

// webhookConfig allows the server to deliver to this machine.
func webhookConfig(t *testing.T, engine string) config.Config {
	t.Helper()
	cfg := harness.Config(t, engine)
	cfg.Webhooks.AllowHTTP = true
	cfg.Webhooks.AllowCIDRs = prefixes(t, "127.0.0.0/8")
	return cfg
}

// eachWebhooks is harness.Each with a server that delivers to this machine, and
// a client of it.
func eachWebhooks(t *testing.T, engines []string, change func(t *testing.T, cfg *config.Config), fn func(t *testing.T, c *client)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) {
		cfg := webhookConfig(t, engine)
		if change != nil {
			change(t, &cfg)
		}
		fn(t, newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Live))
	})
}

// client has a workspace and a key with all scopes in one environment.
type client struct {
	*harness.Server
	workspace *accounts.Workspace
	env       accounts.Environment
	key       string
}

func newClient(t *testing.T, s *harness.Server, env accounts.Environment) *client {
	t.Helper()
	c := &client{Server: s, workspace: s.Workspace(t, ids.New("acme ")), env: env}
	c.key, _ = s.Key(t, c.workspace, env)
	return c
}

// withTestKey returns the client with a test key.
func (c *client) withTestKey(t *testing.T) *client {
	t.Helper()
	other := *c
	other.env = accounts.Test
	other.key, _ = c.Key(t, c.workspace, accounts.Test)
	return &other
}

// newKey creates a key of the workspace, with all scopes unless k has some.
func (c *client) newKey(t *testing.T, k access.Key) (value, id string) {
	t.Helper()
	k.Tenant, k.Name = c.workspace.In(c.env), "test"
	if k.Scopes == nil {
		k.Scopes = []string{"*"}
	}
	return c.KeyOf(t, &k)
}

func (c *client) ask(t *testing.T, method, path string, body any) *harness.Response {
	t.Helper()
	return c.Do(t, harness.Request{Method: method, Path: path, Key: c.key, Body: body})
}

func (c *client) get(t *testing.T, path string) *harness.Response {
	t.Helper()
	return c.ask(t, "GET", path, nil).Want(t, 200, "")
}

func (c *client) post(t *testing.T, path string, body any) *harness.Response {
	t.Helper()
	return c.ask(t, "POST", path, body).Want(t, 200, "")
}

// endpoint creates an endpoint at the address for the events, or for all.
func (c *client) endpoint(t *testing.T, url string, names ...string) (id, secret string) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"*"}
	}
	r := c.post(t, "/v1/webhooks", map[string]any{"url": url, "events": names})
	return r.Text("id"), r.Text("secret")
}

var creditsLow = events.CreditsLow{Remaining: 5, Threshold: 10, MonthlyCredits: 100, Period: "2026-10"}

// keyRevoked is an event that no one is emailed about, unless a key really was revoked.
var keyRevoked = events.KeyRevoked{KeyID: "key_1"}

// publish publishes events in one transaction, like another process.
func (c *client) publish(t *testing.T, payloads ...events.Payload) []*events.Event {
	t.Helper()
	var out []*events.Event
	c.write(t, func(tx *db.Tx) error {
		out = nil
		for _, p := range payloads {
			e, err := events.NewPublisher(c.Clock.Now).Publish(t.Context(), tx, events.Origin{Tenant: c.workspace.In(c.env), Project: "shop"}, p)
			if err != nil {
				return err
			}
			out = append(out, e)
		}
		tx.Signal("events", "") // instead of waiting a second for the poll
		return nil
	})
	return out
}

func (c *client) write(t *testing.T, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := c.DB.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func (c *client) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	c.write(t, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), query, args...)
		return err
	})
}

func (c *client) rows(t *testing.T, what string) (n int) {
	t.Helper()
	if err := c.DB.QueryRow(t.Context(), "SELECT count(*) FROM "+what).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// waitUntilPosted waits until all charges are in the ledger.
func (c *client) waitUntilPosted(t *testing.T) {
	t.Helper()
	c.Eventually(t, func() bool { return c.rows(t, "spend_journal") == 0 })
}

// wakeEndpoint enqueues the endpoint. The poll would find it a second later.
func (c *client) wakeEndpoint(t *testing.T, endpointID string) {
	t.Helper()
	c.write(t, func(tx *db.Tx) error {
		return lanes.Enqueue(t.Context(), tx, webhooks.Queue, map[string]time.Time{endpointID: c.Clock.Now()})
	})
}

// advanceEndpoint moves the clock and wakes the endpoint.
func (c *client) advanceEndpoint(t *testing.T, d time.Duration, endpointID string) {
	t.Helper()
	c.Clock.Turn(d)
	c.wakeEndpoint(t, endpointID)
}

// deliveries waits for n deliveries of an endpoint and returns their IDs,
// oldest first.
func (c *client) deliveries(t *testing.T, endpointID string, n int) []string {
	t.Helper()
	var found []string
	c.Eventually(t, func() bool {
		found = idsOf(c.get(t, "/v1/deliveries?order=asc&limit=100&endpoint="+endpointID))
		return len(found) >= n
	})
	if len(found) != n {
		t.Fatalf("there are %d deliveries, want %d", len(found), n)
	}
	return found
}

func idsOf(list *harness.Response) (found []string) {
	for _, one := range list.At("data").([]any) {
		found = append(found, one.(map[string]any)["id"].(string))
	}
	return found
}

// waitForDelivery waits for the status and the number of attempts.
func (c *client) waitForDelivery(t *testing.T, deliveryID, status string, attempts int) *harness.Response {
	t.Helper()
	var last *harness.Response
	t.Cleanup(func() {
		if t.Failed() && last != nil && (last.Text("status") != status || last.At("attempt_count") != float64(attempts)) {
			t.Logf("a delivery was waited for to be %s after %d attempts: %s", status, attempts, last.Body)
		}
	})
	c.Eventually(t, func() bool {
		last = c.get(t, "/v1/deliveries/"+deliveryID)
		return last.Text("status") == status && last.At("attempt_count") == float64(attempts)
	})
	return last
}

// waitForCount waits for a count to reach n, as long as there is progress.
func (c *client) waitForCount(t *testing.T, n int, count func() int) {
	t.Helper()
	for have := count(); have < n; have = count() {
		c.Eventually(t, func() bool { return count() > have })
	}
}

// received is a request to a receiver.
type received struct {
	id     string
	header http.Header
	body   []byte
	at     time.Time // by the server's clock
}

func (r received) sample() bool { return bytes.Contains(r.body, []byte(`"sample":true`)) }

// receiver is the server of an endpoint. It stores requests, and the test sets
// its response.
type receiver struct {
	*httptest.Server
	ended chan struct{} // closed before the server, so that waiting handlers end

	mu     sync.Mutex
	got    []received
	answer http.HandlerFunc
}

func newReceiver(t *testing.T, clock *harness.Clock, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := unstarted(t, clock, answer)
	r.Start()
	return r
}

func unstarted(t *testing.T, clock *harness.Clock, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{ended: make(chan struct{}), answer: answer}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the client disconnected
		}
		r.mu.Lock()
		r.got = append(r.got, received{req.Header.Get(webhook.HeaderEventID), req.Header, body, clock.Now()})
		answer := r.answer
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(func() {
		close(r.ended)
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// respondWith changes the response.
func (r *receiver) respondWith(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// all returns the received requests without samples.
func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.got), received.sample)
}

func (r *receiver) count() int { return len(r.all()) }

// wait waits for n requests, and fails if there are more.
func (r *receiver) wait(t *testing.T, c *client, n int) []received {
	t.Helper()
	c.waitForCount(t, n, r.count)
	got := r.all()
	if len(got) != n {
		t.Fatalf("%d deliveries came, want %d", len(got), n)
	}
	return got
}

// respond responds with the status.
func respond(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// unlessSample responds to samples with 204 and to others with the status.
func unlessSample(r *receiver, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		last := r.got
		r.mu.Unlock()
		id := req.Header.Get(webhook.HeaderEventID)
		i := slices.IndexFunc(last, func(got received) bool { return got.id == id })
		if i >= 0 && last[i].sample() {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(status)
	}
}

// respondAfter responds with the status when the gate opens.
func (r *receiver) respondAfter(gate <-chan struct{}, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-gate:
		case <-r.ended:
		case <-req.Context().Done():
		}
		w.WriteHeader(status)
	}
}

// signedBy reports whether the Service-Signature was made with the secret.
func (r received) signedBy(secret string) bool {
	return webhook.Verifier{Secrets: []string{secret}, Now: func() time.Time { return r.at }}.Verify(r.body, r.header) == nil
}

func decode(t *testing.T, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatal(err)
	}
}

// discardLog is for a server whose clients reject its certificate.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
