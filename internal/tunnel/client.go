package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// stableAfter is how long a connection must last to reset the backoff.
	stableAfter = time.Second
)

// Options configure a client.
type Options struct {
	BaseURL   string
	Key       string
	UserAgent string
	// Set one of these: the events of a new tunnel, the endpoint to mirror, or the
	// tunnel to resume.
	Events   []string
	Endpoint string
	Resume   string
	// Target is the local address.
	Target     *url.URL
	SkipVerify bool // accepts any local certificate

	// The callbacks are called one at a time. They may be nil.
	OnReady   func(Ready)
	OnForward func(Forwarded)
	OnLost    func(err error)
}

// Ready is a new connection.
type Ready struct {
	Hello
	// Reconnected is set if the connection was lost before, Replaced if the tunnel was
	// deleted and this is a new one.
	Reconnected bool
	Replaced    bool
}

// Forwarded is a delivery and its response.
type Forwarded struct {
	ID      string
	Type    string
	Attempt int64
	Body    []byte
	Status  int    // 0 if there was no response
	Error   string // why
	Took    time.Duration
}

// Client is the client of a tunnel.
type Client struct {
	o       Options
	local   *http.Transport
	replies *replies
	slots   chan struct{}
	hello   *Hello // of the last connection; nil before the first

	notifying sync.Mutex
}

// NewClient returns a client. Run connects it.
func NewClient(o Options) *Client {
	return &Client{o: o, local: newLocalTransport(o.SkipVerify), replies: newReplies(), slots: make(chan struct{}, maxInFlight)}
}

// Refusal is a response of the server other than an upgrade.
type Refusal struct {
	Status  int
	Code    string // empty if the response isn't from Turnpike
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Endpoint returns the tunnel's ID, or an empty string before the first connection.
func (c *Client) Endpoint() string {
	if c.hello == nil {
		return ""
	}
	return c.hello.Endpoint
}

// Run forwards deliveries until ctx ends, and reconnects whenever the connection is
// lost. Then it finishes the deliveries in progress and returns nil. It returns an
// error if the first connection fails, or if reconnecting can't help.
func (c *Client) Run(ctx context.Context) error {
	defer c.local.CloseIdleConnections()
	backoff := minBackoff
	for {
		good, err := c.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case c.hello == nil || final(err):
			return err
		case good:
			backoff = minBackoff
		}
		notify(c, c.o.OnLost, err)
		select {
		case <-time.After(backoff/2 + rand.N(backoff)): // spread the clients of a server
		case <-ctx.Done():
			return nil
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// final reports whether reconnecting can't help. Responses of proxies may change.
func final(err error) bool {
	switch websocket.CloseStatus(err) {
	case closeReplaced, closeRefused:
		return true
	}
	var refused *Refusal
	return errors.As(err, &refused) && refused.Code != "" && refused.Status < 500 &&
		refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusRequestTimeout && refused.Status != http.StatusConflict
}

// connect opens a connection and serves it until it ends. It was good if it reported
// a result or lasted for stableAfter.
func (c *Client) connect(ctx context.Context) (good bool, err error) {
	ready := Ready{Reconnected: c.hello != nil}
	ws, err := c.dial(ctx, c.query())
	var refused *Refusal
	if c.hello != nil && errors.As(err, &refused) && refused.Code != "" && refused.Status == http.StatusNotFound {
		// The tunnel was deleted while it was disconnected: open a new one like it.
		ready.Replaced = true
		query := url.Values{"events": {strings.Join(c.hello.Events, ",")}}
		if c.hello.Mirrors != "" {
			query = url.Values{"endpoint": {c.hello.Mirrors}}
		}
		ws, err = c.dial(ctx, query)
	}
	if err != nil {
		return false, err
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxDelivery)
	greeting, cancel := context.WithTimeout(ctx, helloTimeout)
	f, err := receive(greeting, ws)
	cancel()
	if err != nil {
		return false, ended(err)
	}
	if f.Type != typeHello || f.Hello == nil || f.Hello.Endpoint == "" {
		return false, errors.New("the server sent no hello; is it a Turnpike server?")
	}
	c.hello, ready.Hello = f.Hello, *f.Hello
	notify(c, c.o.OnReady, ready)
	began := time.Now()
	reported, err := c.serve(ctx, ws)
	return reported || time.Since(began) > stableAfter, ended(err)
}

func (c *Client) query() url.Values {
	switch {
	case c.hello != nil:
		return url.Values{"resume": {c.hello.Endpoint}}
	case c.o.Resume != "":
		return url.Values{"resume": {c.o.Resume}}
	case c.o.Endpoint != "":
		return url.Values{"endpoint": {c.o.Endpoint}}
	case len(c.o.Events) > 0:
		return url.Values{"events": {strings.Join(c.o.Events, ",")}}
	}
	return nil
}

func (c *Client) dial(ctx context.Context, query url.Values) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	address := c.o.BaseURL + "/v1/tunnel"
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	ws, _, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: refusals{http.DefaultTransport}},
		HTTPHeader: http.Header{"Authorization": {"Bearer " + c.o.Key}, "User-Agent": {c.o.UserAgent}},
	})
	var refused *Refusal
	if errors.As(err, &refused) {
		return nil, refused
	}
	return ws, err
}

// refusals turns responses other than an upgrade into errors with the server's message.
type refusals struct{ next http.RoundTripper }

func (t refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
		return res, err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // the part that arrived
	var said struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		return nil, &Refusal{Status: res.StatusCode, Message: fmt.Sprintf("%s returned %s; is it a Turnpike server, and do all proxies in front of it allow WebSockets?",
			req.URL.Host, res.Status)}
	}
	return nil, &Refusal{res.StatusCode, said.Error.Code, said.Error.Message}
}

// serve forwards deliveries until the connection ends. If ctx ends, it reports the
// deliveries in progress first.
func (c *Client) serve(ctx context.Context, ws *websocket.Conn) (reported bool, err error) {
	life, cancel := context.WithCancel(context.Background())
	defer cancel()
	lost := make(chan error, 2)
	deliveries := make(chan *delivery)
	go func() { lost <- read(life, ws, deliveries) }()
	go func() { lost <- keepAlive(life, ws) }()
	var inFlight sync.WaitGroup
	var reports atomic.Int64
	for {
		select {
		case d := <-deliveries:
			inFlight.Go(func() {
				if c.handle(life, ws, d) {
					reports.Add(1)
				}
			})
		case err := <-lost:
			return reports.Load() > 0, err
		case <-ctx.Done():
			go discard(life, deliveries)
			inFlight.Wait()
			return true, ws.Close(websocket.StatusNormalClosure, "")
		}
	}
}

// read receives deliveries until the connection ends.
func read(life context.Context, ws *websocket.Conn, deliveries chan<- *delivery) error {
	for {
		f, err := receive(life, ws)
		if err != nil {
			return err
		}
		if f.Type != typeDelivery || f.Delivery == nil {
			continue
		}
		select {
		case deliveries <- f.Delivery:
		case <-life.Done():
			return life.Err()
		}
	}
}

// discard ignores further deliveries, which the server sends again. Reading goes on
// for the close handshake.
func discard(life context.Context, deliveries <-chan *delivery) {
	for {
		select {
		case <-deliveries:
		case <-life.Done():
			return
		}
	}
}

// handle reports the result of a delivery: a remembered one, or the local response. If
// that fails, the server sends the delivery again.
func (c *Client) handle(life context.Context, ws *websocket.Conn, d *delivery) (reported bool) {
	t := attempt{d.ID, d.Attempt}
	r, created := c.replies.begin(t)
	if created {
		c.slots <- struct{}{}
		began := time.Now()
		local := c.forward(d)
		took := time.Since(began)
		<-c.slots
		c.replies.finish(t, r, local)
		defer notify(c, c.o.OnForward, Forwarded{d.ID, eventType(d.Body), d.Attempt, d.Body, local.Status, local.Error, took})
	}
	return send(life, ws, frame{Type: typeResult, Result: r.wait()}) == nil
}

// notify calls a callback, one at a time.
func notify[T any](c *Client, callback func(T), arg T) {
	c.notifying.Lock()
	defer c.notifying.Unlock()
	if callback != nil {
		callback(arg)
	}
}

// ended returns the reason for which the server closed the connection.
func ended(err error) error {
	var closed websocket.CloseError
	if errors.As(err, &closed) && closed.Reason != "" {
		return &lost{closed.Reason, err}
	}
	return &lost{"the connection was lost", err}
}

// lost is the end of a connection.
type lost struct {
	why string
	err error
}

func (l *lost) Error() string { return l.why }
func (l *lost) Unwrap() error { return l.err }
