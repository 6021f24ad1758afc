package safehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"sync"
	"time"
)

// Timings of one request. What did not happen is zero: on a reused connection
// that is DNS, Connect and TLS.
type Timings struct {
	DNS, Connect, TLS time.Duration
	FirstByte         time.Duration // from the request's start to the answer's first byte
	Reused            bool
	Address           string // ip:port of the connection, or the one tried last; none if that was refused
}

// stage is how far a request came.
type stage int

const (
	beginning stage = iota
	lookup
	connecting
	handshake
	answer // connected: sending the request or waiting for the answer
)

// Trace collects the timings of a request. Connections are tried side by side
// and may outlive the request, so it may be written to at any time.
type Trace struct {
	mu        sync.Mutex
	timings   Timings
	stage     stage
	connected bool // one of the attempts was

	start, lookupStart, connectStart, handshakeStart time.Time
}

// traceKey is a trace's place in its context.
type traceKey struct{}

// traceOf returns the context's trace, or one that is added to it: two would be
// composed by reflection, which takes longer than the rest of a request.
func traceOf(ctx context.Context) (context.Context, *Trace) {
	if t, ok := ctx.Value(traceKey{}).(*Trace); ok {
		return ctx, t
	}
	return WithTrace(ctx)
}

// WithTrace returns a context for one request and the trace that it fills.
func WithTrace(ctx context.Context) (context.Context, *Trace) {
	t := &Trace{}
	ctx = context.WithValue(ctx, traceKey{}, t)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { t.begin() },
		DNSStart:             func(httptrace.DNSStartInfo) { t.dialling(t.startLookup) },
		DNSDone:              func(httptrace.DNSDoneInfo) { t.dialling(t.endLookup) },
		ConnectStart:         func(_, addr string) { t.dialling(func() { t.startConnect(addr) }) },
		ConnectDone:          func(_, addr string, err error) { t.dialling(func() { t.endConnect(addr, err) }) },
		TLSHandshakeStart:    func() { t.dialling(t.startHandshake) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { t.dialling(t.endHandshake) },
		GotConn:              t.got,
		GotFirstResponseByte: t.firstByte,
	}), t
}

// Timings returns what is known so far.
func (t *Trace) Timings() Timings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timings
}

func (t *Trace) reached() stage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stage
}

// begin starts over when the transport repeats a request whose reused
// connection turned out to be closed.
func (t *Trace) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.start.IsZero() {
		t.start = time.Now()
	}
	t.timings, t.stage, t.connected = Timings{}, beginning, false
	t.lookupStart, t.connectStart, t.handshakeStart = time.Time{}, time.Time{}, time.Time{}
}

// dialling runs one step of a dial unless the request has its connection: a
// dial that goes on after that is for the pool.
func (t *Trace) dialling(step func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage != answer {
		step()
	}
}

func (t *Trace) startLookup() { t.stage, t.lookupStart = lookup, time.Now() }

func (t *Trace) endLookup() { t.timings.DNS = since(t.lookupStart) }

func (t *Trace) startConnect(addr string) {
	t.stage, t.timings.Address = connecting, addr
	if t.connectStart.IsZero() {
		t.connectStart = time.Now()
	}
}

// endConnect takes the first success or, as long as there is none, the last
// failure. What the guard refused was not tried, and is not shown: see explainDNS.
func (t *Trace) endConnect(addr string, err error) {
	var refused *Refused
	if errors.As(err, &refused) {
		if t.timings.Address == addr {
			t.timings.Address = ""
		}
		return
	}
	if t.connected {
		return
	}
	t.connected = err == nil
	t.timings.Connect = since(t.connectStart)
}

func (t *Trace) startHandshake() { t.stage, t.handshakeStart = handshake, time.Now() }

func (t *Trace) endHandshake() { t.timings.TLS = since(t.handshakeStart) }

func (t *Trace) got(info httptrace.GotConnInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if info.Reused {
		t.timings = Timings{Reused: true} // a dial of its own may have begun, but did not serve it
	}
	t.stage = answer
	t.timings.Address = info.Conn.RemoteAddr().String()
}

func (t *Trace) firstByte() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timings.FirstByte = since(t.start)
}

func since(start time.Time) time.Duration {
	if start.IsZero() {
		return 0
	}
	return time.Since(start)
}
