package safehttp

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimingsOfNewAndReusedConnections(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	g := New(loopbackAllowed)
	g.resolver = resolver(t, fixed("127.0.0.1"))
	c := client(t, g, r, ClientOptions{})

	ctx, trace := WithTrace(t.Context())
	mustPost(t, ctx, c, r.at("example.com"))
	first := trace.Timings()
	if first.Reused || first.DNS <= 0 || first.Connect <= 0 || first.TLS <= 0 || first.FirstByte < first.DNS+first.Connect+first.TLS {
		t.Errorf("the first request's timings are %+v", first)
	}
	if first.Address != r.Listener.Addr().String() {
		t.Errorf("it was served by %s, want %s", first.Address, r.Listener.Addr())
	}

	ctx, trace = WithTrace(t.Context())
	mustPost(t, ctx, c, r.at("example.com"))
	second := trace.Timings()
	if want := (Timings{FirstByte: second.FirstByte, Reused: true, Address: first.Address}); second != want || second.FirstByte <= 0 {
		t.Errorf("the second request's timings are %+v", second)
	}
	if n := r.conns.Load(); n != 1 {
		t.Errorf("the server saw %d connections, want 1", n)
	}
}

func TestTimingsOfFailedRequestHaveTheAddress(t *testing.T) {
	t.Parallel()
	g := New(loopbackAllowed)
	g.resolver = resolver(t, fixed("127.0.0.1"))
	nobody := closedPort(t)
	ctx, trace := WithTrace(t.Context())
	if _, err := post(t, ctx, client(t, g, nil, ClientOptions{}), "https://example.com"+strings.TrimPrefix(nobody, "127.0.0.1")+"/"); err == nil {
		t.Fatal("there was an answer")
	}
	if got := trace.Timings(); got.Address != nobody || got.DNS <= 0 || got.FirstByte != 0 {
		t.Errorf("timings %+v", got)
	}
}

// In a synctest bubble, time advances only when all goroutines wait, so
// durations are exact.
func TestTimingsOfConcurrentDials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, trace := WithTrace(t.Context())
		hook := httptrace.ContextClientTrace(ctx)
		pass := func(seconds time.Duration) { time.Sleep(seconds * time.Second) }

		hook.GetConn("example.com:443")
		hook.DNSStart(httptrace.DNSStartInfo{})
		pass(1)
		hook.DNSDone(httptrace.DNSDoneInfo{})
		hook.ConnectStart("tcp", "[2606:4700::1]:443")
		pass(1)
		hook.ConnectStart("tcp", "1.1.1.1:443")
		pass(1)
		hook.ConnectDone("tcp", "1.1.1.1:443", nil)
		hook.TLSHandshakeStart()
		pass(1)
		hook.ConnectDone("tcp", "[2606:4700::1]:443", errors.New("cancelled"))
		pass(1)
		hook.TLSHandshakeDone(tls.ConnectionState{}, nil)
		hook.GotConn(httptrace.GotConnInfo{Conn: connTo("1.1.1.1:443")})
		pass(1)
		hook.GotFirstResponseByte()
		want := Timings{DNS: time.Second, Connect: 2 * time.Second, TLS: 2 * time.Second, FirstByte: 6 * time.Second, Address: "1.1.1.1:443"}
		if got := trace.Timings(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}

		// A second dial that ends late doesn't count.
		hook.ConnectStart("tcp", "1.0.0.1:443")
		hook.ConnectDone("tcp", "1.0.0.1:443", nil)
		hook.TLSHandshakeStart()
		pass(1)
		hook.TLSHandshakeDone(tls.ConnectionState{}, nil)
		if got := trace.Timings(); got != want {
			t.Errorf("after a late dial got %+v, want %+v", got, want)
		}

		// The transport retries on a connection that another request released,
		// while its own lookup was in progress.
		hook.GetConn("example.com:443")
		hook.DNSStart(httptrace.DNSStartInfo{})
		pass(1)
		hook.DNSDone(httptrace.DNSDoneInfo{})
		hook.GotConn(httptrace.GotConnInfo{Conn: connTo("1.0.0.1:443"), Reused: true})
		if got, want := trace.Timings(), (Timings{Reused: true, Address: "1.0.0.1:443"}); got != want {
			t.Errorf("after a repetition got %+v, want %+v", got, want)
		}

		// It retries once more on a new connection.
		hook.GetConn("example.com:443")
		hook.ConnectStart("tcp", "1.1.1.1:443")
		pass(1)
		hook.ConnectDone("tcp", "1.1.1.1:443", nil)
		hook.GotConn(httptrace.GotConnInfo{Conn: connTo("1.1.1.1:443")})
		hook.GotFirstResponseByte()
		want = Timings{Connect: time.Second, FirstByte: 9 * time.Second, Address: "1.1.1.1:443"}
		if got := trace.Timings(); got != want {
			t.Errorf("after two repetitions got %+v, want %+v", got, want)
		}
	})
}

func TestTraceCanBeReadDuringDials(t *testing.T) {
	t.Parallel()
	ctx, trace := WithTrace(t.Context())
	hook := httptrace.ContextClientTrace(ctx)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			hook.GetConn("example.com:443")
			hook.DNSStart(httptrace.DNSStartInfo{})
			hook.DNSDone(httptrace.DNSDoneInfo{})
			hook.ConnectStart("tcp", "1.1.1.1:443")
			hook.ConnectDone("tcp", "1.1.1.1:443", nil)
			hook.TLSHandshakeStart()
			hook.TLSHandshakeDone(tls.ConnectionState{}, nil)
			hook.GotConn(httptrace.GotConnInfo{Conn: connTo("1.1.1.1:443")})
			hook.GotFirstResponseByte()
		})
		wg.Go(func() { trace.Timings() })
	}
	wg.Wait()
	if got := trace.Timings(); got.Address != "1.1.1.1:443" || got.DNS > time.Hour || got.Connect > time.Hour || got.TLS > time.Hour {
		t.Errorf("timings %+v", got)
	}
}

// connTo is a connection that only has a remote address.
type connTo string

func (c connTo) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", string(c)) // an IP address, so nothing is looked up
	if err != nil {
		panic(err)
	}
	return addr
}

// The rest of net.Conn is not used.
func (connTo) Read([]byte) (int, error)         { return 0, http.ErrNotSupported }
func (connTo) Write([]byte) (int, error)        { return 0, http.ErrNotSupported }
func (connTo) Close() error                     { return nil }
func (connTo) LocalAddr() net.Addr              { return nil }
func (connTo) SetDeadline(time.Time) error      { return nil }
func (connTo) SetReadDeadline(time.Time) error  { return nil }
func (connTo) SetWriteDeadline(time.Time) error { return nil }
