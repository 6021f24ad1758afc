package safehttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// receiver is a customer's server that counts its requests and connections.
type receiver struct {
	*httptest.Server
	requests atomic.Int32
	conns    atomic.Int32
}

// receive starts a receiver with TLS. Its certificate is for example.com and
// 127.0.0.1.
func receive(t *testing.T, h http.HandlerFunc, setup ...func(*httptest.Server)) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		if h != nil {
			h(w, req)
		}
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0) // the tests cause failed handshakes
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.conns.Add(1)
		}
	}
	for _, f := range setup {
		f(r.Server)
	}
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// at returns the receiver's URL under another name.
func (r *receiver) at(name string) string {
	_, port, _ := net.SplitHostPort(r.Listener.Addr().String())
	return "https://" + net.JoinHostPort(name, port) + "/hooks"
}

func (r *receiver) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(r.Certificate())
	return pool
}

// client returns a guard's client that trusts the receiver and closes its
// connections with the test.
func client(t *testing.T, g *Guard, r *receiver, o ClientOptions) *http.Client {
	t.Helper()
	if r != nil {
		o.RootCAs = r.roots()
	}
	c := g.Client(o)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func post(t *testing.T, ctx context.Context, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// mustPost reads the whole response, so that the connection can be reused.
func mustPost(t *testing.T, ctx context.Context, c *http.Client, url string) *http.Response {
	t.Helper()
	resp, err := post(t, ctx, c, url)
	if err != nil {
		t.Fatalf("POST %s: %v", url, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestAllowedServerIsReached(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	g := New(loopbackAllowed)
	g.resolver = resolver(t, fixed("127.0.0.1"))
	c := client(t, g, r, ClientOptions{})
	for _, name := range []string{"example.com", "127.0.0.1"} {
		if resp := mustPost(t, t.Context(), c, r.at(name)); resp.StatusCode != http.StatusOK {
			t.Errorf("POST to %s: %s", name, resp.Status)
		}
	}
}

func TestNameOfRefusedAddressIsNotDialed(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	for _, addr := range []string{"127.0.0.1", "10.0.0.5", "169.254.169.254", "168.63.129.16", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fd00:ec2::254"} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			g := New(Policy{})
			g.resolver = resolver(t, fixed(addr))
			ctx, trace := WithTrace(t.Context())
			_, err := post(t, ctx, client(t, g, r, ClientOptions{}), r.at("example.com"))
			var refused *AddrError
			if !errors.As(err, &refused) || refused.Addr != netip.MustParseAddr(addr).Unmap() {
				t.Fatalf("got %v, want a *AddrError for %s", err, addr)
			}
			// Otherwise anyone could find out which names the operator's
			// network has.
			g.resolver = resolver(t, fixed())
			_, unknown := post(t, t.Context(), client(t, g, r, ClientOptions{}), r.at("example.com"))
			if unknown == nil || Class(err) != Class(unknown) || Explain(err) != Explain(unknown) {
				t.Errorf("a refused name is %q, %q; want as for an unknown one: %q, %q", Class(err), Explain(err), Class(unknown), Explain(unknown))
			}
			if got := trace.Timings(); got.Address != "" || got.Connect != 0 {
				t.Errorf("the trace has the address %q and a connection that took %v", got.Address, got.Connect)
			}
			if !strings.Contains(err.Error(), refused.Addr.String()) {
				t.Errorf("the error, which is for the operator's log, lacks the address: %v", err)
			}
			if n := r.requests.Load(); n != 0 {
				t.Errorf("the server saw %d requests", n)
			}
		})
	}
}

// If a name has several addresses, the allowed ones are used.
func TestRefusedAddressesOfNameAreSkipped(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	g := New(Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	g.resolver = resolver(t, fixed("10.0.0.5", "fd00::1", "127.0.0.1"))
	ctx, trace := WithTrace(t.Context())
	mustPost(t, ctx, client(t, g, r, ClientOptions{}), r.at("example.com"))
	if got := trace.Timings().Address; got != r.Listener.Addr().String() {
		t.Errorf("it was served by %s, want %s", got, r.Listener.Addr())
	}
}

func TestRebindingNameIsRefused(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	var moved atomic.Bool
	g := New(Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	g.resolver = resolver(t, func(string) []netip.Addr {
		if moved.Load() {
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	c := client(t, g, r, ClientOptions{})
	mustPost(t, t.Context(), c, r.at("example.com"))
	moved.Store(true)
	c.CloseIdleConnections()
	_, err := post(t, t.Context(), c, r.at("example.com"))
	var refused *AddrError
	if !errors.As(err, &refused) || refused.Addr != netip.MustParseAddr("127.0.0.2") {
		t.Errorf("got %v, want a *AddrError for 127.0.0.2", err)
	}
}

// The client doesn't rely on an earlier CheckURL.
func TestRequestToRefusedURLIsNotSent(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	g := New(Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	g.resolver = resolver(t, fixed("127.0.0.1"))
	c := client(t, g, r, ClientOptions{})
	for url, want := range map[string]string{
		strings.Replace(r.at("example.com"), "https:", "http:", 1):        "url must begin with https://.",
		strings.Replace(r.at("example.com"), "://", "://user:secret@", 1): "url must not have a user name or password.",
		r.at("127.1"):                       "url must have a host name that does not end in a number, or an IPv4 address as four decimal numbers, such as 1.1.1.1.",
		r.at("10.0.0.5"):                    "the address 10.0.0.5 is private and not allowed",
		"https://[2606:4700::1111%25eth0]/": "url must have an IPv6 address without a zone in the brackets, such as [2606:4700::1111].",
	} {
		body := &closer{Reader: strings.NewReader("{}")}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Do(req)
		if !body.closed {
			t.Errorf("POST %s leaves the body open", url)
		}
		if Class(err) != "refused_address" || Explain(err) != want {
			t.Errorf("POST %s: %v (Class %q, Explain %q)", url, err, Class(err), Explain(err))
		}
	}
	if n := r.requests.Load(); n != 0 {
		t.Errorf("the server saw %d requests", n)
	}
}

// closer is a request body that records whether it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestRedirectsAreReturnedNotFollowed(t *testing.T) {
	t.Parallel()
	target := receive(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", target.URL)
			w.WriteHeader(status)
			io.WriteString(w, "moved")
		})
		resp, err := post(t, t.Context(), client(t, New(loopbackAllowed), r, ClientOptions{}), r.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || resp.Header.Get("Location") != target.URL || string(body) != "moved" {
			t.Errorf("a redirect came back as %s, Location %q, body %q (%v)", resp.Status, resp.Header.Get("Location"), body, err)
		}
	}
	if n := target.requests.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	r := receive(t, nil)
	g := New(loopbackAllowed)
	g.resolver = resolver(t, fixed("127.0.0.1"))
	c := client(t, g, r, ClientOptions{})
	mustPost(t, t.Context(), c, r.at("example.com"))
	if n := asked.Load(); n != 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

func TestHTTP2IsUsed(t *testing.T) {
	t.Parallel()
	r := receive(t, nil, func(s *httptest.Server) { s.EnableHTTP2 = true })
	c := client(t, New(loopbackAllowed), r, ClientOptions{})
	for _, reused := range []bool{false, true} {
		ctx, trace := WithTrace(t.Context())
		if resp := mustPost(t, ctx, c, r.URL); resp.ProtoMajor != 2 {
			t.Errorf("it was served by %s", resp.Proto)
		}
		if got := trace.Timings(); got.Reused != reused || got.Address != r.Listener.Addr().String() || got.FirstByte <= 0 {
			t.Errorf("timings %+v, want reused: %t", got, reused)
		}
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	r := receive(t, nil, func(s *httptest.Server) {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	})
	_, err := post(t, t.Context(), client(t, New(loopbackAllowed), r, ClientOptions{}), r.URL)
	if Class(err) != "tls" || Explain(err) != "the server does not offer TLS 1.2 or newer" {
		t.Errorf("got %v (Class %q, Explain %q)", err, Class(err), Explain(err))
	}
}

func TestResponsesAreNotDecompressed(t *testing.T) {
	t.Parallel()
	r := receive(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "asked for:"+req.Header.Get("Accept-Encoding"))
	})
	resp, err := post(t, t.Context(), client(t, New(loopbackAllowed), r, ClientOptions{}), r.URL)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "asked for:" || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %q (%v) with %v", body, err, resp.Header)
	}
}

func TestOnlyTCPIsDialed(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	if err := g.control(t.Context(), "tcp4", "1.1.1.1:443", nil); err != nil {
		t.Errorf("TCP to a public address: %v", err)
	}
	for network, address := range map[string]string{"udp4": "1.1.1.1:443", "unix": "/run/service.sock", "tcp": "example.com:443"} {
		var refused *AddrError
		if err := g.control(t.Context(), network, address, nil); !errors.As(err, &refused) {
			t.Errorf("%s to %s: %v, want a *AddrError", network, address, err)
		}
	}
}

func TestConnectionPoolHasLimitsAndPings(t *testing.T) {
	t.Parallel()
	pool := New(Policy{}).Client(ClientOptions{}).Transport.(*transport).pool
	if pool.MaxIdleConns != maxIdle || pool.MaxIdleConnsPerHost != 2 || pool.IdleConnTimeout != 90*time.Second {
		t.Errorf("by default %d idle connections, %d per host, for %s", pool.MaxIdleConns, pool.MaxIdleConnsPerHost, pool.IdleConnTimeout)
	}
	if pool.TLSHandshakeTimeout != 10*time.Second || pool.HTTP2 == nil || pool.HTTP2.SendPingTimeout != pingInterval || pool.HTTP2.PingTimeout != pingInterval {
		t.Errorf("by default a handshake may take %s, and HTTP/2 is kept alive by %+v", pool.TLSHandshakeTimeout, pool.HTTP2)
	}
	pool = New(Policy{}).Client(ClientOptions{MaxIdlePerHost: 7, IdleTimeout: time.Minute, TLSTimeout: time.Second}).Transport.(*transport).pool
	if pool.MaxIdleConnsPerHost != 7 || pool.IdleConnTimeout != time.Minute || pool.TLSHandshakeTimeout != time.Second {
		t.Errorf("as asked %d per host, for %s, and a handshake of %s", pool.MaxIdleConnsPerHost, pool.IdleConnTimeout, pool.TLSHandshakeTimeout)
	}
}
