// Package safehttp is the HTTP client for customers' URLs. It reaches only the
// public internet and the addresses that the operator allows.
package safehttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"turnpike/internal/budget"
)

const (
	// maxIdle limits the idle connections to all hosts: each costs a file descriptor
	// and, with TLS, some ten kilobytes.
	maxIdle = 256
	// pingInterval finds dead HTTP/2 connections. One connection serves all requests
	// to a host, so all of them would time out.
	pingInterval = 15 * time.Second
)

// ClientOptions configure a client. The zero value has the defaults.
type ClientOptions struct {
	MaxIdlePerHost         int            // 2 by default
	IdleTimeout            time.Duration  // of a connection; 90 s by default
	ConnectTimeout         time.Duration  // including the name lookup; 10 s by default
	TLSTimeout             time.Duration  // of the handshake; 10 s by default
	RootCAs                *x509.CertPool // the system's by default
	MaxResponseHeaderBytes int64          // 64 KiB by default
	MaxResponseBytes       int64          // of a body; 1 MiB by default
}

// maxResponse is more than the responses of any API that Turnpike calls have, except for tools.
const maxResponse = 1 << 20

// Client returns a client with its own connection pool. It returns redirects
// instead of following them, and uses no proxy and no compression. The context
// sets the timeout of the whole request.
func (g *Guard) Client(o ClientOptions) *http.Client {
	dialer := &net.Dialer{
		Timeout:        cmp.Or(o.ConnectTimeout, 10*time.Second),
		ControlContext: g.control,
		Resolver:       g.resolver,
	}
	pool := &http.Transport{
		Proxy:                  nil, // a proxy would dial without the check
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    cmp.Or(o.TLSTimeout, 10*time.Second),
		ForceAttemptHTTP2:      true, // a DialContext turns it off otherwise
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingInterval},
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    cmp.Or(o.MaxIdlePerHost, http.DefaultMaxIdleConnsPerHost),
		IdleConnTimeout:        cmp.Or(o.IdleTimeout, 90*time.Second),
		MaxResponseHeaderBytes: cmp.Or(o.MaxResponseHeaderBytes, 64<<10),
		DisableCompression:     true, // responses are recorded unchanged
	}
	return &http.Client{ //budget:own the transport is bounded
		Transport:     &transport{guard: g, pool: pool, bounded: bounded{withoutUpgrades{pool}, cmp.Or(o.MaxResponseBytes, maxResponse)}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// control checks the address that is about to be dialed, after all name
// lookups. So a name whose address changes can't bypass it.
func (g *Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return &AddrError{}
	}
	return g.CheckAddr(to.Addr())
}

// transport checks the URL of each request, limits the response, and records how far a failed one got.
type transport struct {
	guard   *Guard
	pool    *http.Transport
	bounded bounded
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.guard.checkTarget("url", req.URL); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	start := time.Now()
	ctx, trace := traceOf(req.Context())
	if ctx != req.Context() {
		req = req.WithContext(ctx)
	}
	resp, err := t.bounded.RoundTrip(req)
	if isRefusedName(err) {
		slog.Debug("refused to connect: the name leads to an address that is not allowed", "host", req.URL.Hostname(), "err", err)
	}
	if err != nil {
		return nil, &failure{host: req.URL.Hostname(), stage: trace.reached(), after: time.Since(start), err: err}
	}
	return resp, nil
}

// CloseIdleConnections is called by the method of http.Client with that name.
func (t *transport) CloseIdleConnections() { t.pool.CloseIdleConnections() }

// ErrUpgraded is the error of a request whose response is 101.
var ErrUpgraded = errors.New("the server returned 101 Switching Protocols without being asked")

// WithoutUpgrades returns a transport that fails with ErrUpgraded on 101.
// net/http would return the raw connection as the body, and no context or
// timeout ends a read of it. A nil next means the default transport.
func WithoutUpgrades(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return withoutUpgrades{next}
}

type withoutUpgrades struct{ next http.RoundTripper }

func (t withoutUpgrades) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	_ = resp.Body.Close()
	return nil, ErrUpgraded
}

// Bounded returns a transport for servers that the operator chose. It fails with ErrUpgraded on 101, and
// limits the body of a response to 1 MiB. A nil next means the default transport.
func Bounded(next http.RoundTripper) http.RoundTripper {
	return bounded{WithoutUpgrades(next), maxResponse}
}

type bounded struct {
	next    http.RoundTripper
	maxBody int64
}

// RoundTrip sends a request. The bytes of the response count toward the budget of the request's context.
func (t bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{budget.Of(req.Context()).ChargeJSON(resp.Body, t.maxBody), resp.Body}
	return resp, nil
}

// Policy is the set of exceptions that the operator allows.
type Policy struct {
	// AllowCIDRs are private, loopback and other special addresses that may be dialed.
	// If it has 64:ff9b::/96 (NAT64), the IPv4 address inside must be allowed, too.
	AllowCIDRs []netip.Prefix
	AllowHTTP  bool // accept http:// URLs, too
}

// Guard applies a policy to URLs, addresses and connections.
type Guard struct {
	allow     []netip.Prefix
	allowHTTP bool
	base      *ssrf.Guardian
	resolver  *net.Resolver // nil for the system's
}

// New returns a guard.
func New(p Policy) *Guard {
	g := &Guard{
		allowHTTP: p.AllowHTTP,
		base:      ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureHost)),
	}
	for _, prefix := range p.AllowCIDRs {
		g.allow = append(g.allow, unmap(prefix))
	}
	return g
}
