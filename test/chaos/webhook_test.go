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

// perEndpoint is the server's default: so many attempts to one endpoint can be
// under way when a server dies. As many as unwritten were made and are not
// written down yet.
const (
	perEndpoint = 32
	unwritten   = 256
)

// serveHooks starts a server that delivers to this machine.
func serveHooks(t *testing.T, at program.Place, args ...string) *program.Server {
	t.Helper()
	return serve(t, at, append([]string{"--webhooks-allow-http", "--webhooks-allow-cidrs=127.0.0.0/8"}, args...)...)
}

// customer is who has endpoints, and to whom events happen. They are published
// by this process, so that a server's death does not end them.
type customer struct {
	d       *db.DB
	key     string
	origin  events.Origin
	inboxes []*inbox

	arrivals atomic.Int64
	watch    atomic.Pointer[func(n int64)] // hears of each arrival before it is answered
	stored   atomic.Int64                  // events whose commit was acknowledged
}

// newCustomer needs a server that has run once.
func newCustomer(t *testing.T, at program.Place) *customer {
	t.Helper()
	c := &customer{key: newKey(t, at), d: open(t, at)}
	c.origin.Environment = "test"
	if err := c.d.QueryRow(t.Context(), "SELECT id FROM workspaces").Scan(&c.origin.WorkspaceID); err != nil {
		t.Fatal(err)
	}
	return c
}

// arrival is a delivery as it came to an endpoint.
type arrival struct {
	at    time.Time
	event string // the id in the body
	body  string
}

// inbox is an endpoint's other side. It verifies, keeps and acknowledges what comes.
type inbox struct {
	c          *customer
	id, secret string
	server     *httptest.Server

	mu    sync.Mutex
	got   map[string][]arrival // by Service-Event-Id, in the order they came
	wrong []string             // what a customer would complain about
	gate  chan struct{}        // while it is there and open, nothing is answered
}

// inbox makes a receiver and an endpoint for it, for the events or for all.
func (c *customer) inbox(t *testing.T, url string, names ...string) *inbox {
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

// endpoint makes one at the target, for the events or for all.
func (c *customer) endpoint(t *testing.T, url, target string, names ...string) (id, secret string) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"*"}
	}
	list, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ ID, Secret string }
	c.ask(t, url, request{method: "POST", path: "/v1/webhooks", body: fmt.Sprintf(`{"url":%q,"events":%s}`, target, list)}, &made)
	return made.ID, made.Secret
}

// ask makes a call that must succeed.
func (c *customer) ask(t *testing.T, url string, r request, into any) {
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
		return // the server died in the middle of it
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

// hold has the inbox answer nothing, or answer again.
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

// hold has all inboxes answer nothing, or answer again.
func (c *customer) hold(on bool) {
	for _, b := range c.inboxes {
		b.hold(on)
	}
}

// has reports whether the event came.
func (b *inbox) has(event string) bool { return b.times(event) > 0 }

// times counts how often an event came.
func (b *inbox) times(event string) (n int) {
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

// came counts what came since the moment.
func (b *inbox) came(since time.Time) (n int) {
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

// publish has n events of the type happen in one transaction. A store that is
// away is tried again: the customers' doings do not end with it. An attempt
// that failed may have been stored all the same, as with any client.
func (c *customer) publish(ctx context.Context, kind events.Type, n int) (list []*events.Event, err error) {
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
			tx.Signal("events", "") // as a publisher in a server wakes it; the poll would find it, too
			return nil
		})
		if err == nil {
			c.stored.Add(int64(n))
			return list, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// happen publishes n events now.
func (c *customer) happen(t *testing.T, n int) []*events.Event {
	t.Helper()
	list, err := c.publish(t.Context(), events.BillingCreditsLow, n)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// burst publishes n events in the background, a few at a time, and returns the
// way to wait for its end.
func (c *customer) burst(t *testing.T, n int) (wait func()) {
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

// stream publishes without end until it is stopped. It goes through the types
// of events one after the other, a pause after each.
func (c *customer) stream(t *testing.T, pause time.Duration, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := c.publish(ctx, events.Types[i%len(events.Types)], n); err != nil {
				return // stopped
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

// settle waits until every stored event is delivered everywhere.
func (c *customer) settle(t *testing.T, patience time.Duration) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			c.showOpen(t)
		}
	})
	begun := time.Now()
	eventually(t, patience, "everything is delivered", func() bool { return c.open(t) == 0 })
	t.Logf("settled after %v", time.Since(begun).Round(time.Millisecond))
}

// open counts what is not delivered yet.
func (c *customer) open(t *testing.T) int {
	t.Helper()
	return count(t, c.d, "SELECT (SELECT count(*) FROM new_events) + (SELECT count(*) FROM deliveries WHERE status <> 'succeeded')")
}

// showOpen logs a few deliveries that are not done, and who has their lanes.
func (c *customer) showOpen(t *testing.T) {
	t.Helper()
	rows, err := c.d.Query(context.WithoutCancel(t.Context()), `SELECT d.id, d.status, d.attempts, COALESCE(d.due_at, 0), COALESCE(l.owner, 'nobody'), COALESCE(l.lease_until, 0), COALESCE(l.due_at, 0)
		FROM deliveries d LEFT JOIN lanes l ON l.id = d.endpoint_id WHERE d.status <> 'succeeded' ORDER BY d.id LIMIT 10`)
	err = db.Each(rows, err, func(r db.Row) error {
		var id, status, owner string
		var attempts, due, until, next int64
		err := r.Scan(&id, &status, &attempts, &due, &owner, &until, &next)
		t.Logf("open: %s is %s after %d attempts and due at %s; its lane is due at %s and %s has it until %s", id, status, attempts,
			clock(time.UnixMicro(due)), clock(time.UnixMicro(next)), owner, clock(time.UnixMicro(until)))
		return err
	})
	if err != nil {
		t.Logf("open deliveries cannot be shown: %v", err)
	}
}

// delivery is one as the interface shows it.
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
	ResponseStatus int `json:"response_status"` // 0 for no answer
}

// deliveries are all of an endpoint, through the interface.
func (c *customer) deliveries(t *testing.T, url, endpoint string) (all []delivery) {
	t.Helper()
	path := "/v1/deliveries?order=asc&limit=100&endpoint=" + endpoint
	for next := path; ; {
		var page struct {
			Data    []delivery
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		c.ask(t, url, request{method: "GET", path: next}, &page)
		all = append(all, page.Data...)
		if !page.HasMore {
			return all
		}
		next = path + "&after=" + page.LastID
	}
}

// repeat is a delivery that came again.
type repeat struct {
	id            string
	happened      time.Time // the event
	before, after time.Time // when it came, and when it came again
}

// check compares what was stored, what came and what the interface says, after
// all is settled. It returns what came more than once.
//
// It fails when an event did not come, came as two deliveries or with another
// body than was stored; when a delivery is not shown as succeeded; and when
// the attempts in its record are not as many as it counts.
func (c *customer) check(t *testing.T, url string) (repeats []repeat) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	truth := c.truth(t)
	if len(truth) < int(c.stored.Load()) {
		wrong.add("%d events are stored, %d were acknowledged", len(truth), c.stored.Load())
	}
	attempts := c.attempts(t)
	for _, b := range c.inboxes {
		var endpoint struct {
			Events []string
			Stats  struct {
				Succeeded      int
				FailedAttempts int `json:"failed_attempts"`
			}
		}
		c.ask(t, url, request{method: "GET", path: "/v1/webhooks/" + b.id}, &endpoint)
		shown := map[string]delivery{}
		for _, d := range c.deliveries(t, url, b.id) {
			if other, again := shown[d.EventID]; again {
				wrong.add("%s has two deliveries at %s: %+v and %+v", d.EventID, b.id, other, d)
			}
			shown[d.EventID] = d
		}
		recorded := 0
		for _, d := range shown {
			recorded += attempts[d.ID]
		}
		if st := endpoint.Stats; st.Succeeded+st.FailedAttempts != recorded {
			wrong.add("%s counts %+v, and %d attempts are recorded", b.id, st, recorded)
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
				wrong.add("%s never came to %s (%+v)", id, b.id, d)
				continue
			}
			for i, a := range came {
				if a.event != id || a.body != event.body {
					wrong.add("%s came as %s with the body %q, stored is %q", id, d.ID, a.body, event.body)
				}
				if i > 0 {
					repeats = append(repeats, repeat{d.ID, event.at, came[i-1].at, a.at})
				}
			}
			if d.Status != "succeeded" || d.AttemptCount != attempts[d.ID] || d.AttemptCount < 1 || d.AttemptCount > len(came) {
				wrong.add("%s is %s after %d attempts, of which %d are recorded; it came %d times", d.ID, d.Status, d.AttemptCount, attempts[d.ID], len(came))
			}
			delete(shown, id)
		}
		b.mu.Unlock()
		for id := range shown {
			wrong.add("%s was delivered to %s, which did not ask for it", id, b.id)
		}
	}
	c.checkRecords(t, url, wrong, repeats)
	return repeats
}

// stored is an event as the store has it.
type stored struct {
	kind events.Type
	at   time.Time
	body string
}

// truth is what must have come.
func (c *customer) truth(t *testing.T) map[string]stored {
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

// attempts counts the recorded attempts of each delivery.
func (c *customer) attempts(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	rows, err := c.d.Query(t.Context(), "SELECT delivery_id, count(*) FROM attempts GROUP BY delivery_id")
	err = db.Each(rows, err, func(r db.Row) error {
		var id string
		var of int
		err := r.Scan(&id, &of)
		n[id] = of
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkRecords looks at some deliveries as a customer would: the ones that
// came again, and a few others.
func (c *customer) checkRecords(t *testing.T, url string, wrong *complaints, repeats []repeat) {
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
		c.ask(t, url, request{method: "GET", path: "/v1/deliveries/" + id}, &d)
		acknowledged := 0
		for i, a := range d.Attempts {
			if a.Number != i+1 {
				wrong.add("%s shows its attempts as %+v", id, d.Attempts)
			}
			if a.ResponseStatus == http.StatusNoContent {
				acknowledged++
			}
		}
		if len(d.Attempts) != d.AttemptCount || acknowledged == 0 {
			wrong.add("%s counts %d attempts and shows %+v", id, d.AttemptCount, d.Attempts)
		}
	}
}

// noRepeats is for servers that did not die.
func noRepeats(t *testing.T, repeats []repeat) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, r := range repeats {
		wrong.add("%s came at %s and again at %s, although no server died", r.id, clock(r.before), clock(r.after))
	}
}

// death is when a server was killed, and when another began; or when it stood
// still, and when it went on.
type death struct {
	engaged                time.Time // since when attempts were kept waiting, if they were
	killed, begun, resumed time.Time
}

// explains reports whether what was under way then can have come again: before
// and after, or from the one that took over and from the one that went on.
func (d death) explains(r repeat) bool {
	// An attempt is written down within milliseconds of its answer; a busy
	// machine gets more.
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

// excused fails for what came again without a server's death between, or
// although it had come long before that: only what is under way is repeated.
func excused(t *testing.T, repeats []repeat, deaths []death, most int) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, r := range repeats {
		if !slices.ContainsFunc(deaths, func(d death) bool { return d.explains(r) }) {
			wrong.add("%s came at %s and again at %s, which no death explains", r.id, clock(r.before), clock(r.after))
		}
	}
	if len(repeats) > most {
		t.Errorf("%d deliveries were repeated, at most %d can have been under way", len(repeats), most)
	}
}

func clock(at time.Time) string { return at.Format("15:04:05.000") }
