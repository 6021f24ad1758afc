package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"turnpike/internal/app"
	"turnpike/internal/ids"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator"
	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

// roleVariable makes this program, started as a child, play another role.
const roleVariable = "TURNPIKE_TEST_BENCH_ROLE"

const (
	roleLoad     = "load generator"
	roleStatic   = "static server"
	roleNode     = "server"
	roleReceiver = "receiver"
	roleSender   = "sending loop"
	roleProxy    = "reverse proxy"
	roleDrawing  = "drawing loop"
)

var roles = map[string]func() error{
	roleLoad:     func() error { return serveOrders(generateLoad) },
	roleStatic:   func() error { return serveOrders((&staticServer{}).configure) },
	roleNode:     func() error { return serveOrders((&nodeServer{}).obey) },
	roleReceiver: func() error { return serveOrders((&receiver{paths: map[string]*expected{}}).obey) },
	roleSender:   func() error { return serveOrders(send) },
	roleProxy:    func() error { return serveOrders(startProxy) },
	roleDrawing:  func() error { return serveOrders(draw) },
}

// serveOrders carries out orders from standard input until there are no more.
func serveOrders[O, A any](do func(O) A) (err error) {
	defer recoverFailure(&err)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var order O
		if err := in.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else {
			check(err)
		}
		check(out.Encode(do(order)))
	}
}

// orderTimeout bounds everything a child or a server is asked to do.
const orderTimeout = 2 * time.Minute

// child is this program in another role. It carries out one order at a time.
type child struct {
	role string
	cmd  *exec.Cmd
	in   *json.Encoder
	out  *json.Decoder
}

// startChild starts the role and, unless the order is nil, returns when the
// child has carried it out.
func (b *bench) startChild(role string, order, answer any) *child {
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	program.EndWithParent(cmd)
	check(cmd.Start())
	c := &child{role: role, cmd: cmd, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	if order != nil {
		c.ask(b.ctx, order, answer)
	}
	return c
}

func (c *child) ask(ctx context.Context, order, answer any) { check(c.tryAsk(ctx, order, answer)) }

func (c *child) tryAsk(ctx context.Context, order, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })()
	err := c.in.Encode(order)
	if err == nil {
		err = c.out.Decode(answer)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.role, errors.Join(ctx.Err(), err))
	}
	return nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the child immediately. A second call does nothing.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only if it has ended already
	_ = c.cmd.Wait()
}

// listen serves on a free port of this machine until the process ends.
func listen(h http.Handler) (address string) {
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = http.Serve(ln, h) }()
	return ln.Addr().String()
}

// staticOrder is what the static server responds with. The first order starts
// it, and later ones change it.
type staticOrder struct {
	Plain  []byte
	Events [][]byte      // of a stream, flushed one by one
	Delay  time.Duration // before a response
	Every  time.Duration // between a stream's events
	// Ignore doesn't read the request: streams are then requested at /stream.
	Ignore bool
}

type staticServer struct { // the mock provider, and the bare net/http server
	order   staticOrder
	address string
}

func (s *staticServer) configure(o staticOrder) (address string) {
	s.order = o // orders come between measurements
	if s.address == "" {
		s.address = listen(s)
	}
	return s.address
}

func (s *staticServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := s.order
	stream := r.URL.Path == "/stream"
	if !o.Ignore {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has left
		}
		stream = bytes.Contains(body, []byte(`"stream":true`))
		time.Sleep(o.Delay)
	}
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(o.Plain)))
		_, _ = w.Write(o.Plain) // the load generator notices a failure
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for i, event := range o.Events {
		if i > 0 && o.Every > 0 {
			select {
			case <-time.After(o.Every):
			case <-r.Context().Done():
				return
			}
		}
		_, _ = w.Write(event)
		_ = control.Flush()
	}
}

// startProxy is Go's own reverse proxy, which has no keys, budgets or log.
func startProxy(upstream string) (address string) {
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 10_000, DisableCompression: true}
	p.FlushInterval = -1
	return listen(p)
}

// hangingPath is where the receiver never responds.
const hangingPath = "/hang"

// receiptTimeout is how long the receiver waits for announced deliveries.
const receiptTimeout = time.Minute

// receiverOrder announces deliveries to a path, or asks for their receipts. The
// first order is empty and starts the server.
type receiverOrder struct {
	Path   string
	Expect int // 0 asks for the receipts
}

// receipts are the times at which deliveries arrived.
type receipts struct {
	Address string // in the first answer
	At      []int64
	Missing int
	Body    []byte         // the last one
	By      map[string]int // deliveries by their User-Agent, also repeated ones
}

// receiver is the customer's server: it reads a delivery, notes the time and
// responds with 200.
type receiver struct {
	mu    sync.Mutex
	paths map[string]*expected
}

type expected struct {
	receipts
	complete chan struct{} // closed when all deliveries have arrived
}

func (r *receiver) obey(o receiverOrder) receipts {
	if o.Path == "" {
		return receipts{Address: listen(r)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Expect > 0 {
		r.paths[o.Path] = &expected{receipts: receipts{At: make([]int64, o.Expect), Missing: o.Expect, By: map[string]int{}}, complete: make(chan struct{})}
		return receipts{}
	}
	e := r.paths[o.Path]
	r.mu.Unlock()
	select {
	case <-e.complete:
	case <-time.After(receiptTimeout):
	}
	r.mu.Lock()
	return e.receipts
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender has left
	}
	if req.URL.Path == hangingPath {
		<-req.Context().Done()
		return
	}
	at := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.paths[req.URL.Path]
	if e == nil {
		return
	}
	e.By[req.UserAgent()]++
	n, err := strconv.Atoi(string(numberIn(body)))
	if err != nil {
		n = len(e.At) - e.Missing // count deliveries without a number
	}
	if n >= len(e.At) || e.At[n] != 0 {
		return
	}
	e.At[n], e.Body = at, body
	if e.Missing--; e.Missing == 0 {
		close(e.complete)
	}
}

// Deliveries are numbered in their metadata, always with as many digits.
const numberKey = "bench"

func numberText(n int) string { return fmt.Sprintf("%07d", n) }

func numberIn(body []byte) []byte {
	_, after, _ := bytes.Cut(body, []byte(`"`+numberKey+`":"`))
	if len(after) < 7 {
		return nil
	}
	return after[:7]
}

// span is when something began and ended, in nanoseconds.
type span struct{ Begun, Ended int64 }

// forEach calls fn for the numbers below n, in several goroutines.
func forEach(workers, n int, fn func(int) error) span {
	begun := time.Now()
	var all errgroup.Group
	all.SetLimit(workers)
	for i := range n {
		all.Go(func() error { return fn(i) })
	}
	check(all.Wait())
	return span{begun.UnixNano(), time.Now().UnixNano()}
}

// sendOrder is what the sending loop posts: the body that Turnpike sent, with
// other numbers.
type sendOrder struct {
	URL, Secret    string
	Body           []byte
	Count, Workers int
}

var sendClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}

// send is what deliveries are compared with: it signs, posts and stores nothing.
func send(o sendOrder) span {
	bodies := make([][]byte, o.Count)
	for i := range bodies {
		bodies[i] = bytes.Clone(o.Body)
		copy(numberIn(bodies[i]), numberText(i))
	}
	return forEach(o.Workers, o.Count, func(i int) error {
		req, err := http.NewRequest(http.MethodPost, o.URL, bytes.NewReader(bodies[i]))
		if err != nil {
			return err
		}
		if err := webhook.Sign(req.Header, ids.New(ids.Delivery), time.Now(), bodies[i], o.Secret); err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("User-Agent", "bench")
		res, err := sendClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("the receiver responded with %s", res.Status), err)
		}
		return nil
	})
}

// tuneMemory does what `turnpike serve` does: drawing allocates much.
var tuneMemory = sync.OnceFunc(func() { app.TuneMemory(context.Background(), func() int64 { return 0 }) })

// draw is what image batches are compared with: one worker per core calls the
// simulator and keeps nothing.
func draw(count int) span {
	tuneMemory()
	images := simulator.New(simulator.Options{})
	return forEach(runtime.GOMAXPROCS(0), count, func(i int) error {
		_, err := images.Images(context.Background(), &providers.ImageRequest{Body: []byte(imageBody(i))})
		return err
	})
}

// imageBody requests an image that no other request asks for.
func imageBody(n int) string {
	return fmt.Sprintf(`{"prompt":"a harbour at dawn, number %d","n":1}`, n)
}
