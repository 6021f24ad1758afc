// Package tunnel_test tests the tunnel: a local receiver gets the same requests as an
// endpoint, and a lost connection neither loses nor repeats a delivery.
package tunnel_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/lanes"
	"turnpike/internal/tunnel"
	"turnpike/internal/webhooks"
	"turnpike/test/harness"
	"turnpike/webhook"
)

// timeout limits every wait.
const timeout = 20 * time.Second

// tenant is a workspace with a test key.
type tenant struct {
	*harness.Server
	workspace *accounts.Workspace
	key       string
	keyID     string
}

// each runs fn on each engine, with a separate server.
func each(t *testing.T, fn func(t *testing.T, c *tenant)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, newTenant(t, harness.Start(t, configured(t, engine), harness.NewClock())))
		})
	}
}

// configured allows deliveries to this machine.
func configured(t *testing.T, engine string) config.Config {
	t.Helper()
	cfg := harness.Config(t, engine)
	cfg.Webhooks.AllowHTTP = true
	cfg.Webhooks.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return cfg
}

func newTenant(t *testing.T, s *harness.Server) *tenant {
	t.Helper()
	c := &tenant{Server: s, workspace: s.Workspace(t, t.Name())}
	c.key, c.keyID = s.Key(t, c.workspace, accounts.Test)
	return c
}

func (c *tenant) get(t *testing.T, path string) *harness.Response {
	t.Helper()
	return c.Do(t, harness.Request{Method: "GET", Path: path, Key: c.key}).Want(t, 200, "")
}

func (c *tenant) post(t *testing.T, path string, body any) *harness.Response {
	t.Helper()
	return c.Do(t, harness.Request{Method: "POST", Path: path, Key: c.key, Body: body}).Want(t, 200, "")
}

func (c *tenant) write(t *testing.T, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := c.DB.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// publish publishes n events.
func (c *tenant) publish(t *testing.T, typ events.Type, n int) {
	t.Helper()
	c.write(t, func(tx *db.Tx) error {
		for range n {
			from := events.Origin{Tenant: c.workspace.In(accounts.Test)}
			if _, err := events.NewPublisher(c.Clock.Now).Publish(t.Context(), tx, from, events.Sample(typ, c.Clock.Now())); err != nil {
				return err
			}
		}
		tx.Signal("events", "") // otherwise the poll finds them a second later
		return nil
	})
}

// advance moves the clock and wakes the lane of the endpoint.
func (c *tenant) advance(t *testing.T, d time.Duration, endpointID string) {
	t.Helper()
	c.Clock.Turn(d)
	c.write(t, func(tx *db.Tx) error {
		return lanes.Enqueue(t.Context(), tx, webhooks.Queue, map[string]time.Time{endpointID: c.Clock.Now()})
	})
}

// deliveries counts an endpoint's deliveries by status.
func (c *tenant) deliveries(t *testing.T, endpointID string) map[string]int {
	t.Helper()
	rows, err := c.DB.Query(t.Context(), "SELECT status, count(*) FROM deliveries WHERE endpoint_id = $1 GROUP BY status", endpointID)
	counts := map[string]int{}
	err = db.Each(rows, err, func(r db.Row) error {
		var status string
		var n int
		if err := r.Scan(&status, &n); err != nil {
			return err
		}
		counts[status] = n
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// await waits until the endpoint has n deliveries of the status and no others.
func (c *tenant) await(t *testing.T, endpointID, status string, n int) {
	t.Helper()
	var last map[string]int
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("deliveries of %s: got %v, want %d %s", endpointID, last, n, status)
		}
	})
	eventually(t, func() bool {
		last = c.deliveries(t, endpointID)
		return len(last) == 1 && last[status] == n
	})
}

// onlyDelivery waits until the endpoint's only delivery has the status and the number
// of attempts.
func (c *tenant) onlyDelivery(t *testing.T, endpointID, status string, attempts int) *harness.Response {
	t.Helper()
	var one *harness.Response
	eventually(t, func() bool {
		list := c.get(t, "/v1/deliveries?endpoint="+endpointID)
		if list.Text("data.0.status") != status {
			return false
		}
		one = c.get(t, "/v1/deliveries/"+list.Text("data.0.id"))
		return one.At("attempt_count") == float64(attempts)
	})
	return one
}

// awaitDisconnect waits until the server has stored that the client is gone.
func (c *tenant) awaitDisconnect(t *testing.T, endpointID string) {
	t.Helper()
	eventually(t, func() bool {
		var at *int64
		if err := c.DB.QueryRow(t.Context(), "SELECT disconnected_at FROM endpoints WHERE id = $1", endpointID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at != nil
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, ok func() bool) { t.Helper(); waitFor(t, 25*time.Millisecond, ok) }

// waitFor checks a condition at an interval.
func waitFor(t *testing.T, every time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.After(timeout)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("timed out")
		}
	}
}

type received struct {
	header http.Header
	body   []byte
}

// receiver is the local service.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	answer http.HandlerFunc
}

func newReceiver(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.got = append(r.got, received{req.Header, body})
		answer := r.answer
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) setHandler(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// wait waits for n deliveries.
func (r *receiver) wait(t *testing.T, n int) []received {
	t.Helper()
	eventually(t, func() bool { return r.count() >= n })
	got := r.all()
	if len(got) != n {
		t.Fatalf("got %d deliveries, want %d", len(got), n)
	}
	return got
}

// times counts how often each delivery came.
func (r *receiver) times() map[string]int {
	counts := map[string]int{}
	for _, d := range r.all() {
		counts[d.header.Get(webhook.HeaderEventID)]++
	}
	return counts
}

func respond(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// listener is a running client of a tunnel.
type listener struct {
	ready     chan tunnel.Ready
	lost      chan error
	forwarded chan tunnel.Forwarded
	ended     chan error
	stop      context.CancelFunc
}

// listen starts a client and returns when it is connected.
func (c *tenant) listen(t *testing.T, to string, change func(o *tunnel.Options)) (*listener, tunnel.Ready) {
	t.Helper()
	l := c.start(t, to, change)
	return l, l.connected(t)
}

func (c *tenant) start(t *testing.T, to string, change func(o *tunnel.Options)) *listener {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{ready: make(chan tunnel.Ready, 10_000), lost: make(chan error, 10_000), forwarded: make(chan tunnel.Forwarded, 10_000), ended: make(chan error, 1)}
	o := tunnel.Options{BaseURL: c.URL, Key: c.key, UserAgent: "test", Target: target,
		OnReady: func(r tunnel.Ready) { l.ready <- r }, OnLost: func(err error) { l.lost <- err }, OnForward: func(f tunnel.Forwarded) { l.forwarded <- f }}
	if change != nil {
		change(&o)
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.ended <- tunnel.NewClient(o).Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return l
}

func (l *listener) connected(t *testing.T) tunnel.Ready {
	t.Helper()
	select {
	case err := <-l.ended:
		l.ended <- err
		t.Fatalf("the client ended: %v", err)
	case <-time.After(timeout):
		t.Fatal("the client is not connected")
	case r := <-l.ready:
		return r
	}
	panic("unreachable")
}

// stopAndWait stops the client and waits for its end.
func (l *listener) stopAndWait(t *testing.T) {
	t.Helper()
	l.stop()
	if err := l.end(t); err != nil {
		t.Fatalf("the client ended with %v", err)
	}
}

// end waits for the client's end.
func (l *listener) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-l.ended:
		l.ended <- err
		return err
	case <-time.After(timeout):
		t.Fatal("the client did not stop")
	}
	panic("unreachable")
}

// proxy is a TCP proxy between client and server whose connections can be cut and
// rerouted.
type proxy struct {
	URL string
	ln  net.Listener

	mu     sync.Mutex
	to     string
	broken bool
	conns  map[net.Conn]struct{}
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &proxy{URL: "http://" + ln.Addr().String(), ln: ln, conns: map[net.Conn]struct{}{}}
	w.routeTo(t, to)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go w.copyBoth(c)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		w.cut()
	})
	return w
}

func (w *proxy) copyBoth(near net.Conn) {
	w.mu.Lock()
	to, broken := w.to, w.broken
	w.mu.Unlock()
	if broken {
		_ = near.Close()
		return
	}
	far, err := net.Dial("tcp", to)
	if err != nil {
		_ = near.Close()
		return
	}
	w.mu.Lock()
	w.conns[near], w.conns[far] = struct{}{}, struct{}{}
	w.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = near.Close()
			_ = far.Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	delete(w.conns, near)
	delete(w.conns, far)
	w.mu.Unlock()
}

// cut resets every connection.
func (w *proxy) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// block cuts, and rejects connections until unblock.
func (w *proxy) block() {
	w.mu.Lock()
	w.broken = true
	w.mu.Unlock()
	w.cut()
}

func (w *proxy) unblock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = false
}

// routeTo sends new connections to another server.
func (w *proxy) routeTo(t *testing.T, to string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = u.Host
}

// over connects the client through the proxy.
func (w *proxy) over(o *tunnel.Options) { o.BaseURL = w.URL }

// wantOnce checks that n deliveries came, each once.
func (r *receiver) wantOnce(t *testing.T, n int) {
	t.Helper()
	counts := r.times()
	if len(counts) != n {
		t.Errorf("got %d deliveries, want %d", len(counts), n)
	}
	twice := 0
	for _, times := range counts {
		if times > 1 {
			twice++
		}
	}
	if twice > 0 {
		t.Errorf("%d deliveries came more than once", twice)
	}
}
