// Package connlimit limits how many connections one client may have open before
// it has authenticated.
package connlimit

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/clientip"
)

const logEvery = time.Minute

// Limiter counts the unauthenticated connections of every client address, in IPv6 of every /64.
type Limiter struct {
	limit  int
	exempt atomic.Pointer[[]netip.Prefix]

	mu     sync.Mutex
	open   map[netip.Prefix]int
	logged time.Time
}

// New returns a Limiter. A limit of 0 is no limit. Connections from the exempt
// addresses, which are trusted proxies, aren't counted.
func New(limit int, exempt []netip.Prefix) *Limiter {
	l := &Limiter{limit: limit, open: map[netip.Prefix]int{}}
	l.SetExempt(exempt)
	return l
}

// SetExempt replaces the exempt addresses, for new connections.
func (l *Limiter) SetExempt(exempt []netip.Prefix) { l.exempt.Store(&exempt) }

// Listener wraps a TCP listener. Its Accept closes the connections that exceed
// the limit and returns the others.
func (l *Limiter) Listener(inner net.Listener) net.Listener {
	if l.limit == 0 {
		return inner
	}
	return &listener{inner, l}
}

type listener struct {
	net.Listener
	limiter *Limiter
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := accepted.(*net.TCPConn)
		if !ok {
			return accepted, nil
		}
		peer, ok := tcp.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return accepted, nil
		}
		addr := peer.AddrPort().Addr().Unmap().WithZone("")
		if clientip.Contains(*l.limiter.exempt.Load(), addr) {
			return accepted, nil
		}
		network := clientip.Network(addr)
		if l.limiter.add(network) {
			return &conn{TCPConn: tcp, limiter: l.limiter, network: network}, nil
		}
		_ = tcp.Close()
	}
}

// add counts a connection, unless the network has as many as it may.
func (l *Limiter) add(network netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[network] < l.limit {
		l.open[network]++
		return true
	}
	if now := time.Now(); now.Sub(l.logged) >= logEvery {
		l.logged = now
		slog.Warn("closing new connections of a client that has too many open without a valid key or session; if this is your proxy, add it to trusted_proxies",
			"address", network.String(), "limit", l.limit)
	}
	return false
}

func (l *Limiter) remove(network netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[network]--; l.open[network] == 0 {
		delete(l.open, network)
	}
}

// conn is a counted connection. It embeds the TCP connection itself, because
// net/http uses its ReadFrom and CloseWrite.
type conn struct {
	*net.TCPConn
	limiter *Limiter
	network netip.Prefix
	removed sync.Once
}

func (c *conn) remove() { c.removed.Do(func() { c.limiter.remove(c.network) }) }

// Close closes the connection and stops counting it.
func (c *conn) Close() error {
	c.remove()
	return c.TCPConn.Close()
}

type contextKey struct{}

// ConnContext adds the connection to the context of its requests. It is for
// http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if counted, ok := c.(*conn); ok {
		return context.WithValue(ctx, contextKey{}, counted)
	}
	return ctx
}

// Authenticated stops counting the connection of a request. Call it when the
// request has arrived completely and its key or session is valid.
func Authenticated(ctx context.Context) {
	if counted, ok := ctx.Value(contextKey{}).(*conn); ok {
		counted.remove()
	}
}
