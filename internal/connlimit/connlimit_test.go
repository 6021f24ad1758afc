package connlimit

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"turnpike/internal/clientip"
)

// listen starts a limited listener on loopback and hands out what it accepts.
func listen(t *testing.T, l *Limiter) (address string, accepted <-chan net.Conn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := l.Listener(inner)
	conns := make(chan net.Conn, 16)
	go func() {
		defer close(conns)
		for {
			c, err := limited.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	t.Cleanup(func() {
		_ = limited.Close()
		for c := range conns {
			_ = c.Close()
		}
	})
	return inner.Addr().String(), conns
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantClosed waits for the server to close the connection.
func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read from a refused connection: %d bytes, %v; want EOF", n, err)
	}
}

func TestConnectionsBeyondTheLimitAreClosed(t *testing.T) {
	t.Parallel()
	address, accepted := listen(t, New(2, nil))
	dial(t, address)
	first := <-accepted
	dial(t, address)
	second := <-accepted
	wantClosed(t, dial(t, address))

	_ = first.Close()
	_ = first.Close() // counted once
	dial(t, address)
	<-accepted
	wantClosed(t, dial(t, address))

	ctx := ConnContext(context.Background(), second)
	Authenticated(ctx)
	Authenticated(ctx)
	dial(t, address)
	<-accepted
	wantClosed(t, dial(t, address))
	_ = second.Close() // isn't counted any more, so it makes no room
	wantClosed(t, dial(t, address))
}

func TestTrustedProxiesHaveNoConnectionLimit(t *testing.T) {
	t.Parallel()
	address, accepted := listen(t, New(1, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}))
	for range 3 {
		dial(t, address)
		Authenticated(ConnContext(context.Background(), <-accepted))
	}
	if l := New(0, nil); l.Listener(nil) != nil {
		t.Error("a limit of 0 limits connections")
	}
}

func TestIPv6ConnectionsAreCountedByPrefix(t *testing.T) {
	t.Parallel()
	l := New(1, nil)
	network := func(addr string) netip.Prefix { return clientip.Network(netip.MustParseAddr(addr)) }
	if !l.add(network("2001:db8::1")) || l.add(network("2001:db8::2")) || !l.add(network("2001:db8:0:1::1")) {
		t.Error("connections of one /64 are not counted together")
	}
	l.remove(network("2001:db8::3"))
	if !l.add(network("2001:db8::2")) || len(l.open) != 2 {
		t.Errorf("open connections are %v", l.open)
	}
}
