package safehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"sync"
	"time"
)

// Timings are the timings of one request. On a reused connection DNS, Connect and TLS are zero.
type Timings struct {
	DNS, Connect, TLS time.Duration
	FirstByte         time.Duration // from the start of the request to the first byte of the response
	Reused            bool
	Address           string // ip:port of the connection or the last attempt; empty if the guard refused it
}

type stage int

const (
	starting stage = iota
	resolving
	connecting
	handshaking
	responding // connected: sending the request or waiting for the response
)

// Trace collects the timings of a request. It may change at any time, because
// connections are attempted concurrently and may outlive the request.
type Trace struct {
	mu        sync.Mutex
	timings   Timings
	stage     stage
	connected bool // one of the attempts succeeded

	start, lookupStart, connectStart, handshakeStart time.Time
}

type traceKey struct{}

// traceOf returns the context's trace, or adds one. httptrace would compose two of
// them by reflection, which takes longer than the rest of a request.
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
		GetConn: func(string) { t.begin() },
		DNSStart: func(httptrace.DNSStartInfo) {
			t.whileDialing(func() { t.stage, t.lookupStart = resolving, time.Now() })
		},
		DNSDone:              func(httptrace.DNSDoneInfo) { t.whileDialing(func() { t.timings.DNS = since(t.lookupStart) }) },
		ConnectStart:         func(_, addr string) { t.whileDialing(func() { t.startConnect(addr) }) },
		ConnectDone:          func(_, addr string, err error) { t.whileDialing(func() { t.endConnect(addr, err) }) },
		TLSHandshakeStart:    func() { t.whileDialing(func() { t.stage, t.handshakeStart = handshaking, time.Now() }) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { t.whileDialing(func() { t.timings.TLS = since(t.handshakeStart) }) },
		GotConn:              t.gotConn,
		GotFirstResponseByte: t.firstByte,
	}), t
}

// Timings returns the timings so far.
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

// begin resets the trace when the transport repeats a request because its reused
// connection was closed.
func (t *Trace) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.start.IsZero() {
		t.start = time.Now()
	}
	t.timings, t.stage, t.connected = Timings{}, starting, false
	t.lookupStart, t.connectStart, t.handshakeStart = time.Time{}, time.Time{}, time.Time{}
}

// whileDialing runs a step of a dial unless the request already has a
// connection. A later dial is for the pool.
func (t *Trace) whileDialing(step func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage != responding {
		step()
	}
}

func (t *Trace) startConnect(addr string) {
	t.stage, t.timings.Address = connecting, addr
	if t.connectStart.IsZero() {
		t.connectStart = time.Now()
	}
}

// endConnect records the first success or, as long as there is none, the last
// failure. An address that the guard refused isn't shown: see explainDNS.
func (t *Trace) endConnect(addr string, err error) {
	var refused *AddrError
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

func (t *Trace) gotConn(info httptrace.GotConnInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if info.Reused {
		t.timings = Timings{Reused: true} // another dial may have started, but did not serve it
	}
	t.stage = responding
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
