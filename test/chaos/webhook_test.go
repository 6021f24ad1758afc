package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

// perEndpoint is the server's default number of concurrent attempts per endpoint.
// unwritten is the number of finished attempts that may not be recorded when a server
// dies.
const (
	perEndpoint = 32
	unwritten   = 256
)

// serveHooks starts a server that may deliver to this machine.
func serveHooks(t *testing.T, at program.Place, args ...string) *program.Server {
	t.Helper()
	return serve(t, at, append([]string{"--webhooks-allow-http", "--webhooks-allow-cidrs=127.0.0.0/8"}, args...)...)
}

// webhookFixture is a workspace with endpoints. The test process publishes its events,
// so that they continue when a server dies.
type webhookFixture struct {
	d       *db.DB
	key     string
	origin  events.Origin
	inboxes []*inbox

	arrivals atomic.Int64
	watch    atomic.Pointer[func(n int64)] // called with each arrival before the response

	mu           sync.Mutex
	acknowledged []string // IDs of events whose commit was acknowledged
}

// newWebhookFixture needs a database that a server has initialized.
func newWebhookFixture(t *testing.T, at program.Place) *webhookFixture {
	t.Helper()
	c := &webhookFixture{key: newKey(t, at), d: open(t, at)}
	c.origin.Environment = "test"
	if err := c.d.QueryRow(t.Context(), "SELECT id FROM workspaces").Scan(&c.origin.WorkspaceID); err != nil {
		t.Fatal(err)
	}
	return c
}

// arrival is a delivery that an endpoint received.
type arrival struct {
	at    time.Time
	event string // the ID in the body
	body  string
}

// inbox is a receiver. It verifies, stores and acknowledges deliveries.
type inbox struct {
	c          *webhookFixture
	id, secret string
	server     *httptest.Server

	mu    sync.Mutex
	got   map[string][]arrival // by Service-Event-Id, in order of arrival
	wrong []string             // problems that a customer would report
	gate  chan struct{}        // while it is open, nothing is acknowledged
}

// inbox creates a receiver and its endpoint, which subscribes to the events or to all.
func (c *webhookFixture) inbox(t *testing.T, url string, names ...string) *inbox {
	t.Helper()
	b := &inbox{c: c, got: map[string][]arrival{}}
	b.server = httptest.NewServer(b)
	t.Cleanup(func() {
		b.hold(false)
		b.server.CloseClientConnections()
		b.server.Close()
	})
	id, secret := c.endpoint(t, url, b.server.URL, names...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id, b.secret = id, secret
	c.inboxes = append(c.inboxes, b)
	return b
}

// endpoint creates an endpoint at the target, which subscribes to the events or to all.
func (c *webhookFixture) endpoint(t *testing.T, url, target string, names ...string) (id, secret string) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"*"}
	}
	list, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ ID, Secret string }
	c.mustCall(t, url, request{method: "POST", path: "/v1/webhooks", body: fmt.Sprintf(`{"url":%q,"events":%s}`, target, list)}, &made)
	return made.ID, made.Secret
}

// mustCall sends a request that must succeed.
func (c *webhookFixture) mustCall(t *testing.T, url string, r request, into any) {
	t.Helper()
	r.mark, r.key = "customer", c.key
	o := call(url, r)
	if o.status != http.StatusOK || !o.whole {
		t.Fatalf("%v\n%s", o, o.body)
	}
	if err := json.Unmarshal(o.body, into); err != nil {
		t.Fatalf("%v: %v\n%s", o, err, o.body)
	}
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server died meanwhile
	}
	a := arrival{at: time.Now(), body: string(body)}
	var envelope struct{ ID string }
	err = json.Unmarshal(body, &envelope)
	a.event = envelope.ID
	id := r.Header.Get(webhook.HeaderEventID)
	b.mu.Lock()
	if verr := webhook.Verify(body, r.Header, b.secret); verr != nil || err != nil {
		b.wrong = append(b.wrong, fmt.Sprintf("%s is not to be trusted: %v, %v", id, verr, err))
	}
	b.got[id] = append(b.got[id], a)
	gate := b.gate
	b.mu.Unlock()
	n := b.c.arrivals.Add(1)
	if watch := b.c.watch.Load(); watch != nil {
		(*watch)(n)
	}
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// hold stops or resumes the responses of the inbox.
func (b *inbox) hold(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case on && b.gate == nil:
		b.gate = make(chan struct{})
	case !on && b.gate != nil:
		close(b.gate)
		b.gate = nil
	}
}

// hold stops or resumes the responses of all inboxes.
func (c *webhookFixture) hold(on bool) {
	for _, b := range c.inboxes {
		b.hold(on)
	}
}

func (b *inbox) has(event string) bool { return b.receivedCount(event) > 0 }

// receivedCount returns how often an event arrived.
func (b *inbox) receivedCount(event string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, all := range b.got {
		for _, a := range all {
			if a.event == event {
				n++
			}
		}
	}
	return n
}

// receivedSince counts the arrivals since the given time.
func (b *inbox) receivedSince(since time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, all := range b.got {
		for _, a := range all {
			if a.at.After(since) {
				n++
			}
		}
	}
	return n
}

// publish stores n events of the type in one transaction. It retries while the database
// is down. As with any client, a failed attempt may have been stored.
func (c *webhookFixture) publish(ctx context.Context, kind events.Type, n int) (list []*events.Event, err error) {
	publisher := events.NewPublisher(time.Now)
	for {
		err = c.d.Write(ctx, func(tx *db.Tx) error {
			list = nil
			for range n {
				e, err := publisher.Publish(ctx, tx, c.origin, events.Sample(kind, time.Now()))
				if err != nil {
					return err
				}
				list = append(list, e)
			}
			tx.Signal("events", "") // wakes the servers as a publisher does; they also poll
			return nil
		})
		if err == nil {
			c.acknowledge(list)
			return list, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (c *webhookFixture) acknowledge(list []*events.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range list {
		c.acknowledged = append(c.acknowledged, e.ID)
	}
}

// checkStored checks that every acknowledged event is stored.
func (c *webhookFixture) checkStored(wrong *failures, all map[string]stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.acknowledged {
		if _, found := all[id]; !found {
			wrong.add("%s was acknowledged, but isn't stored", id)
		}
	}
}

// publishNow publishes n events.
func (c *webhookFixture) publishNow(t *testing.T, n int) []*events.Event {
	t.Helper()
	list, err := c.publish(t.Context(), events.BillingCreditsLow, n)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// burst publishes n events in the background, a few at a time. wait returns when all
// are published.
func (c *webhookFixture) burst(t *testing.T, n int) (wait func()) {
	t.Helper()
	const few = 5
	var err error
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; i < n && err == nil; i += few {
			_, err = c.publish(t.Context(), events.Types[i/few%len(events.Types)], min(few, n-i))
		}
	})
	wait = func() {
		t.Helper()
		if all.Wait(); err != nil {
			t.Fatalf("the burst ended early: %v", err)
		}
	}
	t.Cleanup(all.Wait)
	return wait
}

// stream publishes events until it is stopped. It cycles through the event types, with
// a pause after each.
func (c *webhookFixture) stream(t *testing.T, pause time.Duration, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := c.publish(ctx, events.Types[i%len(events.Types)], n); err != nil {
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// waitUntilDelivered waits until every stored event is delivered to every endpoint.
func (c *webhookFixture) waitUntilDelivered(t *testing.T, patience time.Duration) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			c.showUndelivered(t)
		}
	})
	begun := time.Now()
	eventually(t, patience, "all events are delivered", func() bool { return c.undelivered(t) == 0 })
	t.Logf("settled after %v", time.Since(begun).Round(time.Millisecond))
}

// undelivered counts the deliveries that haven't succeeded.
func (c *webhookFixture) undelivered(t *testing.T) int {
	t.Helper()
	return count(t, c.d, "SELECT (SELECT count(*) FROM new_events) + (SELECT count(*) FROM deliveries WHERE status <> 'succeeded')")
}

// showUndelivered logs a few deliveries that haven't succeeded, with the owners of
// their lanes.
func (c *webhookFixture) showUndelivered(t *testing.T) {
	t.Helper()
	rows, err := c.d.Query(context.WithoutCancel(t.Context()), `SELECT d.id, d.status, d.attempts, COALESCE(d.due_at, 0), COALESCE(l.owner, 'nobody'), COALESCE(l.lease_until, 0), COALESCE(l.due_at, 0)
		FROM deliveries d LEFT JOIN lanes l ON l.id = d.endpoint_id WHERE d.status <> 'succeeded' ORDER BY d.id LIMIT 10`)
	err = db.Each(rows, err, func(r db.Row) error {
		var id, status, owner string
		var attempts, due, until, next int64
		err := r.Scan(&id, &status, &attempts, &due, &owner, &until, &next)
		t.Logf("open: %s is %s after %d attempts and due at %s; its lane is due at %s and %s has it until %s", id, status, attempts,
			formatTime(time.UnixMicro(due)), formatTime(time.UnixMicro(next)), owner, formatTime(time.UnixMicro(until)))
		return err
	})
	if err != nil {
		t.Logf("open deliveries cannot be shown: %v", err)
	}
}

// delivery is a delivery as the API returns it.
type delivery struct {
	ID           string
	EventID      string `json:"event_id"`
	Type         events.Type
	Status       string
	AttemptCount int `json:"attempt_count"`
	Attempts     []attempt
}

type attempt struct {
	Number         int
	ResponseStatus int `json:"response_status"` // 0 without a response
}

// deliveries returns all deliveries of an endpoint from the API.
func (c *webhookFixture) deliveries(t *testing.T, url, endpoint string) (all []delivery) {
	t.Helper()
	path := "/v1/deliveries?order=asc&limit=100&endpoint=" + endpoint
	for next := path; ; {
		var page struct {
			Data    []delivery
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		c.mustCall(t, url, request{method: "GET", path: next}, &page)
		all = append(all, page.Data...)
		if !page.HasMore {
			return all
		}
		next = path + "&after=" + page.LastID
	}
}

// repeat is a delivery that arrived more than once.
type repeat struct {
	id            string
	happened      time.Time // the event's time
	before, after time.Time // two consecutive arrivals
}

// check compares stored events, arrivals and the API after all events are delivered. It
// returns the deliveries that arrived more than once.
//
// It fails if an event is missing, arrived as two deliveries, or differs from the
// stored body. It also fails if a delivery hasn't succeeded or its count differs from
// its recorded attempts.
func (c *webhookFixture) check(t *testing.T, url string) (repeats []repeat) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	truth := c.storedEvents(t)
	c.checkStored(wrong, truth)
	attempts := c.attempts(t)
	for _, b := range c.inboxes {
		var endpoint struct {
			Events []string
			Stats  struct {
				Succeeded      int
				FailedAttempts int `json:"failed_attempts"`
			}
		}
		c.mustCall(t, url, request{method: "GET", path: "/v1/webhooks/" + b.id}, &endpoint)
		shown := map[string]delivery{}
		for _, d := range c.deliveries(t, url, b.id) {
			if other, again := shown[d.EventID]; again {
				wrong.add("%s has two deliveries at %s: %+v and %+v", d.EventID, b.id, other, d)
			}
			shown[d.EventID] = d
		}
		recorded := 0
		for _, d := range shown {
			recorded += attempts[d.ID].all
		}
		if st := endpoint.Stats; st.Succeeded+st.FailedAttempts != recorded {
			wrong.add("%s: got counts %+v, want %d as in the recorded attempts", b.id, st, recorded)
		}
		b.mu.Lock()
		for _, complaint := range b.wrong {
			wrong.add("%s: %s", b.id, complaint)
		}
		for id, event := range truth {
			if !event.kind.Matches(endpoint.Events) {
				continue
			}
			d, came := shown[id], b.got[shown[id].ID]
			if len(came) == 0 {
				wrong.add("%s never arrived at %s (%+v)", id, b.id, d)
				continue
			}
			for i, a := range came {
				if a.event != id || a.body != event.body {
					wrong.add("%s arrived as %s: got body %q, want %q", id, d.ID, a.body, event.body)
				}
				if i > 0 {
					repeats = append(repeats, repeat{d.ID, event.at, came[i-1].at, a.at})
				}
			}
			// A node that was frozen between the start of an attempt and its first byte records a timeout that never arrived.
			if of := attempts[d.ID]; d.Status != "succeeded" || d.AttemptCount != of.all || d.AttemptCount < 1 || of.answered > len(came) {
				wrong.add("%s: got status %s, %d attempts, %d recorded attempts, %d with a response, and %d arrivals", d.ID, d.Status, d.AttemptCount, of.all, of.answered, len(came))
			}
			delete(shown, id)
		}
		b.mu.Unlock()
		for id := range shown {
			wrong.add("%s was delivered to %s, which doesn't subscribe to it", id, b.id)
		}
	}
	c.checkRecords(t, url, wrong, repeats)
	return repeats
}

// stored is an event in the database.
type stored struct {
	kind events.Type
	at   time.Time
	body string
}

// storedEvents returns the events that must have arrived.
func (c *webhookFixture) storedEvents(t *testing.T) map[string]stored {
	t.Helper()
	all := map[string]stored{}
	rows, err := c.d.Query(t.Context(), "SELECT id, type, created_at, body FROM events")
	err = db.Each(rows, err, func(r db.Row) error {
		var id, kind, body string
		var at int64
		err := r.Scan(&id, &kind, &at, &body)
		all[id] = stored{events.Type(kind), time.UnixMicro(at), body}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// recordedAttempts counts the attempts of a delivery, and those that got a response.
type recordedAttempts struct{ all, answered int }

// attempts counts the recorded attempts of each delivery.
func (c *webhookFixture) attempts(t *testing.T) map[string]recordedAttempts {
	t.Helper()
	n := map[string]recordedAttempts{}
	rows, err := c.d.Query(t.Context(), "SELECT delivery_id, count(*), count(status) FROM attempts GROUP BY delivery_id")
	err = db.Each(rows, err, func(r db.Row) error {
		var id string
		var of recordedAttempts
		err := r.Scan(&id, &of.all, &of.answered)
		n[id] = of
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkRecords checks the API's records of the repeated deliveries and of a few others.
func (c *webhookFixture) checkRecords(t *testing.T, url string, wrong *failures, repeats []repeat) {
	t.Helper()
	const few = 20
	look := map[string]bool{}
	for _, r := range repeats[:min(few, len(repeats))] {
		look[r.id] = true
	}
	b := c.inboxes[0]
	b.mu.Lock()
	for id := range b.got {
		if len(look) < 2*few {
			look[id] = true
		}
	}
	b.mu.Unlock()
	for id := range look {
		var d delivery
		c.mustCall(t, url, request{method: "GET", path: "/v1/deliveries/" + id}, &d)
		acknowledged := 0
		for i, a := range d.Attempts {
			if a.Number != i+1 {
				wrong.add("%s: got attempts %+v", id, d.Attempts)
			}
			if a.ResponseStatus == http.StatusNoContent {
				acknowledged++
			}
		}
		if len(d.Attempts) != d.AttemptCount || acknowledged == 0 {
			wrong.add("%s: got a count of %d and the attempts %+v", id, d.AttemptCount, d.Attempts)
		}
	}
}

// wantNoRepeats is for tests in which no server dies.
func wantNoRepeats(t *testing.T, repeats []repeat) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	for _, r := range repeats {
		wrong.add("%s arrived at %s and again at %s, but no server died", r.id, formatTime(r.before), formatTime(r.after))
	}
}

// crash is the time between the kill of a server and the start of the next one, or
// between freezing and resuming it.
type crash struct {
	engaged                time.Time // since when the inboxes held attempts, if they did
	killed, begun, resumed time.Time
}

// explains reports whether the attempt was in progress during the crash: it may arrive
// before and after, or from both owners of the lane.
func (d crash) explains(r repeat) bool {
	// An attempt is recorded within milliseconds of its response. A busy machine gets
	// more.
	const recent = 5 * time.Second
	if !r.happened.Before(d.begun) {
		return false
	}
	underway := d.engaged
	if underway.IsZero() {
		underway = d.killed.Add(-recent)
	}
	if r.before.After(underway) && r.before.Before(d.begun) && r.after.After(d.killed) {
		return true
	}
	return !d.resumed.IsZero() && r.before.After(d.killed) && r.after.After(d.resumed) && r.after.Before(d.resumed.Add(recent))
}

// checkRepeats fails for repeats without a crash in between, or long after the first
// arrival: only attempts in progress may repeat.
func checkRepeats(t *testing.T, repeats []repeat, deaths []crash, most int) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	for _, r := range repeats {
		if !slices.ContainsFunc(deaths, func(d crash) bool { return d.explains(r) }) {
			wrong.add("%s arrived at %s and again at %s, which no crash explains", r.id, formatTime(r.before), formatTime(r.after))
		}
	}
	if len(repeats) > most {
		t.Errorf("got %d repeated deliveries, want at most %d (those in progress)", len(repeats), most)
	}
}

func formatTime(at time.Time) string { return at.Format("15:04:05.000") }
