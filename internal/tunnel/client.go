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
	firstWait = 100 * time.Millisecond
	longWait  = 5 * time.Second
	// steady is how long a connection must last for the waits to begin anew.
	steady = time.Second
)

// Options configure a client.
type Options struct {
	BaseURL   string
	Key       string
	UserAgent string
	// One of these: the events of a new tunnel, the endpoint that a new one
	// mirrors, or the tunnel to come back to.
	Events   []string
	Endpoint string
	Resume   string
	// Target is where deliveries are forwarded to.
	Target     *url.URL
	SkipVerify bool // of a local certificate

	// What happens is told one call at a time. All of them may be nil.
	OnReady   func(Ready)
	OnForward func(Forwarded)
	OnLost    func(err error)
}

// Ready is a connection that was made.
type Ready struct {
	Hello
	// Again is set when it was lost before, Replaced when the tunnel was gone
	// and this is another one.
	Again    bool
	Replaced bool
}

// Forwarded is a delivery and its answer.
type Forwarded struct {
	ID      string
	Type    string
	Attempt int64
	Body    []byte
	Status  int    // 0 for no answer
	Error   string // then
	Took    time.Duration
}

// Client is the developer's end of a tunnel.
type Client struct {
	o      Options
	local  *http.Transport
	memory *memory
	slots  chan struct{}
	hello  *Hello // of the last connection; nil before the first

	telling sync.Mutex
}

// NewClient makes a client; Run connects it.
func NewClient(o Options) *Client {
	return &Client{o: o, local: newLocalTransport(o.SkipVerify), memory: newMemory(), slots: make(chan struct{}, maxInFlight)}
}

// Refusal is an answer of the server other than a tunnel.
type Refusal struct {
	Status  int
	Code    string // empty when it was not our server that answered
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Endpoint is the tunnel's id, or empty before the first connection.
func (c *Client) Endpoint() string {
	if c.hello == nil {
		return ""
	}
	return c.hello.Endpoint
}

// Run forwards until ctx ends, coming back whenever the connection is lost.
// Then it finishes what is under way and returns nil. It returns an error when
// the first connection cannot be made, or coming back is of no use.
func (c *Client) Run(ctx context.Context) error {
	defer c.local.CloseIdleConnections()
	wait := firstWait
	for {
		good, err := c.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case c.hello == nil || final(err):
			return err
		case good:
			wait = firstWait
		}
		c.told(func() { tell(c.o.OnLost, err) })
		select {
		case <-time.After(wait/2 + rand.N(wait)): // not all clients of a server at once
		case <-ctx.Done():
			return nil
		}
		wait = min(2*wait, longWait)
	}
}

// final reports whether trying again cannot help. What a proxy says can change.
func final(err error) bool {
	switch websocket.CloseStatus(err) {
	case closeReplaced, closeRefused:
		return true
	}
	var refused *Refusal
	return errors.As(err, &refused) && refused.Code != "" && refused.Status < 500 &&
		refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusRequestTimeout && refused.Status != http.StatusConflict
}

// connect makes a connection and serves it until it ends. It was good when it
// was of use or lasted.
func (c *Client) connect(ctx context.Context) (good bool, err error) {
	ready := Ready{Again: c.hello != nil}
	ws, err := c.dial(ctx, c.query())
	var refused *Refusal
	if c.hello != nil && errors.As(err, &refused) && refused.Code != "" && refused.Status == http.StatusNotFound {
		// Deleted while nobody listened: the same once more.
		ready.Replaced = true
		again := url.Values{"events": {strings.Join(c.hello.Events, ",")}}
		if c.hello.Mirrors != "" {
			again = url.Values{"endpoint": {c.hello.Mirrors}}
		}
		ws, err = c.dial(ctx, again)
	}
	if err != nil {
		return false, err
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxDelivery)
	greeting, cancel := context.WithTimeout(ctx, helloPatience)
	f, err := receive(greeting, ws)
	cancel()
	if err != nil {
		return false, ended(err)
	}
	if f.Type != typeHello || f.Hello == nil || f.Hello.Endpoint == "" {
		return false, errors.New("the server did not greet; is it a Turnpike server?")
	}
	c.hello, ready.Hello = f.Hello, *f.Hello
	c.told(func() { tell(c.o.OnReady, ready) })
	began := time.Now()
	reported, err := c.serve(ctx, ws)
	return reported || time.Since(began) > steady, ended(err)
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
	ctx, cancel := context.WithTimeout(ctx, helloPatience)
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

// refusals turns every answer but an upgrade into an error that says what the
// server said.
type refusals struct{ next http.RoundTripper }

func (t refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
		return res, err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what is there of it
	var said struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		return nil, &Refusal{Status: res.StatusCode, Message: fmt.Sprintf("%s answered with %s; is it a Turnpike server, and does every proxy before it let WebSockets through?",
			req.URL.Host, res.Status)}
	}
	return nil, &Refusal{res.StatusCode, said.Error.Code, said.Error.Message}
}

// serve forwards what comes until the connection ends, or, when ctx does,
// until what is under way is reported.
func (c *Client) serve(ctx context.Context, ws *websocket.Conn) (reported bool, err error) {
	life, cancel := context.WithCancel(context.Background())
	defer cancel()
	lost := make(chan error, 2)
	deliveries := make(chan *delivery)
	go func() { lost <- read(life, ws, deliveries) }()
	go func() { lost <- keepAlive(life, ws) }()
	var under sync.WaitGroup
	var reports atomic.Int64
	for {
		select {
		case d := <-deliveries:
			under.Go(func() {
				if c.handle(life, ws, d) {
					reports.Add(1)
				}
			})
		case err := <-lost:
			return reports.Load() > 0, err
		case <-ctx.Done():
			go drop(life, deliveries)
			under.Wait()
			return true, ws.Close(websocket.StatusNormalClosure, "")
		}
	}
}

// read passes deliveries on until the connection ends.
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

// drop leaves what comes to whoever connects next. The connection is read on
// for the goodbye.
func drop(life context.Context, deliveries <-chan *delivery) {
	for {
		select {
		case <-deliveries:
		case <-life.Done():
			return
		}
	}
}

// handle answers a delivery: from memory, or with what the local service says.
// Unless the report can be sent, the server sends the delivery again.
func (c *Client) handle(life context.Context, ws *websocket.Conn, d *delivery) (reported bool) {
	t := turn{d.ID, d.Attempt}
	made, fresh := c.memory.begin(t)
	if fresh {
		c.slots <- struct{}{}
		began := time.Now()
		r := c.forward(d)
		took := time.Since(began)
		<-c.slots
		c.memory.finish(t, made, r)
		defer c.told(func() {
			tell(c.o.OnForward, Forwarded{d.ID, eventType(d.Body), d.Attempt, d.Body, r.Status, r.Error, took})
		})
	}
	return send(life, ws, frame{Type: typeResult, Result: c.memory.answer(made)}) == nil
}

// told keeps what is told in order.
func (c *Client) told(fn func()) {
	c.telling.Lock()
	defer c.telling.Unlock()
	fn()
}

func tell[T any](listener func(T), what T) {
	if listener != nil {
		listener(what)
	}
}

// ended says in the server's words why it closed the connection.
func ended(err error) error {
	var closed websocket.CloseError
	if errors.As(err, &closed) && closed.Reason != "" {
		return &lost{closed.Reason, err}
	}
	return &lost{"the connection was cut", err}
}

// lost is the end of a connection, told to people.
type lost struct {
	why string
	err error
}

func (l *lost) Error() string { return l.why }
func (l *lost) Unwrap() error { return l.err }
