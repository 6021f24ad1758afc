package safehttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

const (
	// maxIdle bounds the idle connections to all hosts together: each costs a
	// file descriptor and, with TLS, some ten kilobytes.
	maxIdle = 256
	// pingEvery finds HTTP/2 connections that died silently. Without it they
	// swallow request after request, as one connection serves all of a host.
	pingEvery = 15 * time.Second
)

// ClientOptions tune a client. The zero value works.
type ClientOptions struct {
	MaxIdlePerHost         int            // idle connections kept for one host; 0 is 2
	IdleTimeout            time.Duration  // how long an idle connection is kept; 0 is 90 s
	ConnectTimeout         time.Duration  // for the lookup of the name and the connection; 0 is 10 s
	TLSTimeout             time.Duration  // for the TLS handshake; 0 is 10 s
	RootCAs                *x509.CertPool // nil is the system's
	MaxResponseHeaderBytes int64          // 0 is 64 KiB
}

// Client makes a client with its own pool of connections. It follows no
// redirect but returns it, uses no proxy, and asks for no compression. It has
// no timeout for the whole request: that is the context's.
func (g *Guard) Client(o ClientOptions) *http.Client {
	dialer := &net.Dialer{
		Timeout:        cmp.Or(o.ConnectTimeout, 10*time.Second),
		ControlContext: g.control,
		Resolver:       g.resolver,
	}
	pool := &http.Transport{
		Proxy:                  nil, // a proxy would dial for us, unchecked
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    cmp.Or(o.TLSTimeout, 10*time.Second),
		ForceAttemptHTTP2:      true, // a DialContext turns it off otherwise
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingEvery},
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    cmp.Or(o.MaxIdlePerHost, http.DefaultMaxIdleConnsPerHost),
		IdleConnTimeout:        cmp.Or(o.IdleTimeout, 90*time.Second),
		MaxResponseHeaderBytes: cmp.Or(o.MaxResponseHeaderBytes, 64<<10),
		DisableCompression:     true, // the answer is recorded as it came
	}
	return &http.Client{
		Transport:     &transport{guard: g, pool: pool},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// control sees the very address that is about to be dialled, after all name
// lookups, so a name whose address changes cannot get past it.
func (g *Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return &Refused{}
	}
	return g.CheckAddr(to.Addr())
}

// transport checks each request's URL and remembers how far a failed one came.
type transport struct {
	guard *Guard
	pool  *http.Transport
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
	resp, err := refuseUpgrade(t.pool.RoundTrip(req))
	if refusedName(err) {
		slog.Debug("a name leads to an address that is not allowed", "host", req.URL.Hostname(), "err", err)
	}
	if err != nil {
		return nil, &failure{host: req.URL.Hostname(), stage: trace.reached(), after: time.Since(start), err: err}
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client's method of that name work.
func (t *transport) CloseIdleConnections() { t.pool.CloseIdleConnections() }
