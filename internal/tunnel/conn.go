package tunnel

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"turnpike/internal/fault"
	"turnpike/internal/webhooks"
)

const (
	// resultSlack is how long a result may take after the timeout of the delivery.
	resultSlack = 10 * time.Second
	// stateInterval is how long a tunnel that was deleted or connected elsewhere keeps its connection.
	stateInterval = 2 * time.Second
)

// Conn is a client's connection, on the server.
type Conn struct {
	hub   *Hub
	hello Hello

	ready chan struct{} // closed when the hello was sent
	slots chan struct{}
	ws    *websocket.Conn // set when ready is closed

	endOnce  sync.Once
	ended    chan struct{}
	code     websocket.StatusCode // to close with; 0 if the client is gone
	reason   string
	byClient bool // the client closed the connection

	mu      sync.Mutex
	pending map[attempt]*pendingResult
}

// attempt identifies an attempt of a delivery. It keeps its number until it is
// recorded, however often it is sent.
type attempt struct {
	id     string
	number int64
}

// pendingResult is a delivery that was sent.
type pendingResult struct {
	result chan *result
	done   chan struct{}
}

func newConn(h *Hub, hello Hello) *Conn {
	return &Conn{hub: h, hello: hello, ready: make(chan struct{}), slots: make(chan struct{}, maxInFlight),
		ended: make(chan struct{}), pending: map[attempt]*pendingResult{}}
}

// CheckUpgrade returns an API error for a request that isn't a WebSocket upgrade.
func CheckUpgrade(r *http.Request) error {
	if r.ProtoMajor != 1 || !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket") ||
		r.Header.Get("Sec-WebSocket-Version") != "13" || len(r.Header.Values("Sec-WebSocket-Key")) != 1 {
		return fault.Invalid("Upgrade", "A tunnel is a WebSocket over HTTP/1.1. Open one with turnpike listen. Proxies must pass on the Upgrade and Connection headers.")
	}
	return nil
}

func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// Serve upgrades the request, and returns when the connection has ended and the
// disconnect is stored. The connection ends with the request's context.
func (c *Conn) Serve(w http.ResponseWriter, r *http.Request) {
	defer c.hub.open.Done()
	// The API uses no cookies, so pages of other origins are harmless.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		slog.Debug("tunnel client left before the upgrade", "endpoint", c.hello.Endpoint, "error", err)
		c.end(0, "")
		c.hub.disconnect(c)
		return
	}
	ws.SetReadLimit(maxResult)
	c.ws = ws
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { c.read(ctx) })
	all.Go(func() { c.sendHello(ctx) })
	all.Go(func() {
		if keepAlive(ctx, ws) != nil {
			c.end(0, "")
		}
	})
	defer context.AfterFunc(r.Context(), func() { c.cancel(context.Cause(r.Context())) })()
	all.Go(func() { c.watch(ctx) })
	<-c.ended
	slog.Debug("tunnel closed", "endpoint", c.hello.Endpoint, "code", int(c.code), "reason", c.reason)
	all.Go(func() {
		if c.code == 0 {
			_ = ws.CloseNow()
		} else {
			_ = ws.Close(c.code, c.reason)
		}
		cancel()
	})
	c.hub.disconnect(c)
	all.Wait()
}

// end ends the connection. Only the first call counts.
func (c *Conn) end(code websocket.StatusCode, reason string) {
	c.endOnce.Do(func() {
		c.code, c.reason = code, reason
		close(c.ended)
	})
}

func (c *Conn) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *Conn) sendHello(ctx context.Context) {
	if err := send(ctx, c.ws, frame{Type: typeHello, Hello: &c.hello}); err != nil {
		c.end(0, "")
		return
	}
	close(c.ready)
}

// read receives results. It ignores results of deliveries that weren't sent.
func (c *Conn) read(ctx context.Context) {
	for {
		f, err := receive(ctx, c.ws)
		if err != nil {
			c.endOnce.Do(func() {
				c.byClient = websocket.CloseStatus(err) == websocket.StatusNormalClosure
				close(c.ended)
			})
			return
		}
		if f.Type != typeResult || f.Result == nil {
			continue
		}
		c.mu.Lock()
		w := c.pending[attempt{f.Result.ID, f.Result.Attempt}]
		c.mu.Unlock()
		if w == nil {
			continue
		}
		select {
		case w.result <- f.Result:
		default: // a second result
		}
	}
}

// cancel ends the connection because its request was canceled, usually because its key lost the permission.
func (c *Conn) cancel(cause error) {
	if f, ok := fault.As(cause); ok && fault.FamilyOf(f.Code).Status < http.StatusInternalServerError {
		c.end(closeRefused, "the key is no longer allowed to listen")
		return
	}
	c.end(websocket.StatusServiceRestart, "the server is stopping")
}

// watch ends the connection if the tunnel was deleted or connected elsewhere. While the store is
// unavailable, the connection stays.
func (c *Conn) watch(ctx context.Context) {
	tick := time.NewTicker(stateInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		state, err := c.hub.hooks.TunnelState(ctx, c.hello.Endpoint)
		switch {
		case err != nil || state == webhooks.TunnelHere:
		case state == webhooks.TunnelMoved:
			c.end(closeReplaced, "another client has connected")
		default: // reconnecting resumes the tunnel, or fails because it was deleted
			c.end(websocket.StatusServiceRestart, "the tunnel was "+string(state))
		}
	}
}

// send sends a delivery and waits for its result.
func (c *Conn) send(ctx context.Context, m *webhooks.Message) webhooks.Outcome {
	notConnected := webhooks.Outcome{NotConnected: true}
	if !c.unlessEnded(c.ready) {
		return notConnected
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.ended:
		return notConnected
	}
	defer func() { <-c.slots }()
	key := attempt{m.DeliveryID, m.Attempt}
	w, first := c.expect(key)
	if !first {
		// Sent twice concurrently, after the lane's lease was lost and claimed again.
		// The first result counts.
		c.unlessEnded(w.done)
		return notConnected
	}
	defer c.forget(key, w)
	d := &delivery{ID: m.DeliveryID, Attempt: m.Attempt, Header: linesOf(m.Header, maxDelivery), Body: m.Body, TimeoutMS: m.Timeout.Milliseconds()}
	if err := send(context.Background(), c.ws, frame{Type: typeDelivery, Delivery: d}); err != nil {
		c.end(0, "")
		return notConnected
	}
	late := time.NewTimer(m.Timeout + resultSlack)
	defer late.Stop()
	select {
	case r := <-w.result:
		return r.outcome()
	case <-c.ended:
	case <-ctx.Done():
	case <-late.C:
		return webhooks.Outcome{Class: "timeout", Error: fmt.Sprintf("the tunnel client reported no response within %d s", int((m.Timeout + resultSlack).Seconds()))}
	}
	select {
	case r := <-w.result: // it came at the same time
		return r.outcome()
	default:
		return notConnected
	}
}

// unlessEnded waits for the channel, and reports whether it was closed before
// the connection ended.
func (c *Conn) unlessEnded(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-c.ended:
		return false
	}
}

func (c *Conn) expect(key attempt) (w *pendingResult, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.pending[key]; w != nil {
		return w, false
	}
	w = &pendingResult{result: make(chan *result, 1), done: make(chan struct{})}
	c.pending[key] = w
	return w, true
}

func (c *Conn) forget(key attempt, w *pendingResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, key)
	close(w.done)
}
