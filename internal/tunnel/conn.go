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
	// answerSlack is what a report may take beyond the answer itself.
	answerSlack = 10 * time.Second
	// stillEvery is how long a revoked key goes on listening, stateEvery how
	// long a tunnel that was deleted or went elsewhere keeps its connection.
	stillEvery = time.Second
	stateEvery = 2 * time.Second
)

// Conn is a client's connection, at the server.
type Conn struct {
	hub   *Hub
	hello Hello
	still func(ctx context.Context) error

	ready chan struct{} // closed when the client was greeted
	slots chan struct{}
	ws    *websocket.Conn // from ready on

	ending  sync.Once
	ended   chan struct{}
	code    websocket.StatusCode // to close with; 0 when nobody is there to hear it
	reason  string
	goodbye bool // the client said that it leaves

	mu      sync.Mutex
	pending map[turn]*waiting
}

// turn is one attempt of a delivery. The number stays the same until the
// attempt is recorded, however often it is sent.
type turn struct {
	id      string
	attempt int64
}

// waiting is a delivery that was sent.
type waiting struct {
	result chan *result
	done   chan struct{}
}

func newConn(h *Hub, hello Hello, still func(ctx context.Context) error) *Conn {
	return &Conn{hub: h, hello: hello, still: still, ready: make(chan struct{}), slots: make(chan struct{}, maxInFlight),
		ended: make(chan struct{}), pending: map[turn]*waiting{}}
}

// CheckUpgrade refuses a request that does not ask for a WebSocket, so that
// the refusal is one of ours.
func CheckUpgrade(r *http.Request) error {
	if r.ProtoMajor != 1 || !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket") ||
		r.Header.Get("Sec-WebSocket-Version") != "13" || len(r.Header.Values("Sec-WebSocket-Key")) != 1 {
		return fault.Invalid("Upgrade", "a tunnel is a WebSocket over HTTP/1.1; turnpike listen opens one (a proxy in between must pass on Upgrade and Connection)")
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

// Serve upgrades the request and returns when the connection has ended and
// that is stored.
func (c *Conn) Serve(w http.ResponseWriter, r *http.Request) {
	defer c.hub.open.Done()
	// Without cookies there is no harm in a page of another origin.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		slog.Debug("a tunnel's client left before it was connected", "endpoint", c.hello.Endpoint, "error", err)
		c.end(0, "")
		c.hub.leave(c)
		return
	}
	ws.SetReadLimit(maxResult)
	c.ws = ws
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { c.read(ctx) })
	all.Go(func() { c.greet(ctx) })
	all.Go(func() {
		if keepAlive(ctx, ws) != nil {
			c.end(0, "")
		}
	})
	all.Go(func() { c.watch(ctx) })
	<-c.ended
	slog.Debug("tunnel closed", "endpoint", c.hello.Endpoint, "code", int(c.code), "reason", c.reason)
	all.Go(func() {
		if c.code == 0 {
			_ = ws.CloseNow() // nobody is there
		} else {
			_ = ws.Close(c.code, c.reason) // or not any more
		}
		cancel()
	})
	c.hub.leave(c)
	all.Wait()
}

// end ends the connection. Only the first call counts.
func (c *Conn) end(code websocket.StatusCode, reason string) {
	c.ending.Do(func() {
		c.code, c.reason = code, reason
		close(c.ended)
	})
}

func (c *Conn) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *Conn) greet(ctx context.Context) {
	if err := send(ctx, c.ws, frame{Type: typeHello, Hello: &c.hello}); err != nil {
		c.end(0, "")
		return
	}
	close(c.ready)
}

// read takes what the client reports. What it was not sent it cannot answer.
func (c *Conn) read(ctx context.Context) {
	for {
		f, err := receive(ctx, c.ws)
		if err != nil {
			c.ending.Do(func() {
				c.goodbye = websocket.CloseStatus(err) == websocket.StatusNormalClosure
				close(c.ended)
			})
			return
		}
		if f.Type != typeResult || f.Result == nil {
			continue
		}
		c.mu.Lock()
		w := c.pending[turn{f.Result.ID, f.Result.Attempt}]
		c.mu.Unlock()
		if w == nil {
			continue
		}
		select {
		case w.result <- f.Result:
		default: // a second answer
		}
	}
}

// watch ends a connection that its client has lost the right to, or its
// tunnel. While the store cannot say, it goes on.
func (c *Conn) watch(ctx context.Context) {
	tick := time.NewTicker(stillEvery)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, refused := fault.As(c.still(ctx)); refused {
			c.end(closeRefused, "the key may not listen any more")
			return
		}
		if time.Since(looked) < stateEvery {
			continue
		}
		looked = time.Now()
		state, err := c.hub.hooks.TunnelState(ctx, c.hello.Endpoint)
		switch {
		case err != nil || state == webhooks.TunnelHere:
		case state == webhooks.TunnelMoved:
			c.end(closeReplaced, "another client has connected")
		default: // coming back gives it its state, or says that it is gone
			c.end(websocket.StatusServiceRestart, "the tunnel was "+string(state))
		}
	}
}

// send sends a delivery and waits for what came of it.
func (c *Conn) send(ctx context.Context, m *webhooks.Message) webhooks.Outcome {
	unsent := webhooks.Outcome{Unsent: true}
	if !c.unlessOver(c.ready) {
		return unsent
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.ended:
		return unsent
	}
	defer func() { <-c.slots }()
	key := turn{m.DeliveryID, m.Attempt}
	w, first := c.expect(key)
	if !first {
		// Twice at once, after the lane was given away and taken back. The
		// first one's answer counts.
		c.unlessOver(w.done)
		return unsent
	}
	defer c.forget(key, w)
	d := &delivery{ID: m.DeliveryID, Attempt: m.Attempt, Header: linesOf(m.Header, maxDelivery), Body: m.Body, TimeoutMS: m.Timeout.Milliseconds()}
	if err := send(context.Background(), c.ws, frame{Type: typeDelivery, Delivery: d}); err != nil {
		c.end(0, "")
		return unsent
	}
	late := time.NewTimer(m.Timeout + answerSlack)
	defer late.Stop()
	select {
	case r := <-w.result:
		return r.outcome()
	case <-c.ended:
	case <-ctx.Done():
	case <-late.C:
		return webhooks.Outcome{Class: "timeout", Error: fmt.Sprintf("the tunnel's client reported no answer within %d s", int((m.Timeout + answerSlack).Seconds()))}
	}
	select {
	case r := <-w.result: // its last words
		return r.outcome()
	default:
		return unsent
	}
}

// unlessOver waits for the channel, and reports whether it was closed before
// the connection ended.
func (c *Conn) unlessOver(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-c.ended:
		return false
	}
}

func (c *Conn) expect(key turn) (w *waiting, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.pending[key]; w != nil {
		return w, false
	}
	w = &waiting{result: make(chan *result, 1), done: make(chan struct{})}
	c.pending[key] = w
	return w, true
}

func (c *Conn) forget(key turn, w *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, key)
	close(w.done)
}
