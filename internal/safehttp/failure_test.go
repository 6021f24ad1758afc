package safehttp

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// listen starts a server of raw connections and returns its address.
func listen(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn.(*net.TCPConn))
		}
	}()
	return l.Addr().String()
}

// request reads the head of a request, so that the client has sent it.
func request(conn net.Conn) error {
	_, err := http.ReadRequest(bufio.NewReader(conn))
	return err
}

// closedPort returns a port of 127.0.0.1 without a listener. It is the local
// end of a connection, so nothing can listen on it during the test.
func closedPort(t *testing.T) string {
	t.Helper()
	conn, err := net.Dial("tcp", listen(t, hang))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

// hang keeps a connection open silently until the client gives up.
func hang(conn *net.TCPConn) {
	io.Copy(io.Discard, conn)
	conn.Close()
}

func TestFailuresAreClassifiedAndExplained(t *testing.T) {
	t.Parallel()
	const short = 100 * time.Millisecond
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()

	for name, c := range map[string]struct {
		url     string
		names   names
		options ClientOptions
		ctx     context.Context // nil for the test's context
		silent  bool            // the DNS server doesn't respond
		class   string
		explain string // a prefix of the explanation
	}{
		"unknown name": {
			url: "https://example.invalid/", names: fixed(),
			class: "dns", explain: "the name example.invalid does not resolve to a public address",
		},
		"name server is silent": {
			url: "https://example.com/", silent: true, options: ClientOptions{ConnectTimeout: short},
			class: "timeout", explain: "the name could not be looked up within ",
		},
		"refused address": {
			url: "https://example.com/", names: fixed("10.0.0.5"),
			class: "dns", explain: "the name example.com does not resolve to a public address",
		},
		"nobody listens": {
			url:   "https://" + closedPort(t) + "/",
			class: "connect", explain: "the server refused the connection",
		},
		"handshake without end": {
			url: "https://" + listen(t, hang) + "/", options: ClientOptions{TLSTimeout: short},
			class: "timeout", explain: "no TLS handshake within ",
		},
		"closed in the handshake": {
			url: "https://" + listen(t, func(conn *net.TCPConn) {
				conn.Read(make([]byte, 1))
				conn.Close()
			}) + "/",
			class: "reset", explain: "the server closed the connection during the TLS handshake",
		},
		"plain HTTP on the port": {
			url: "https://" + listen(t, func(conn *net.TCPConn) {
				io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
				hang(conn)
			}) + "/",
			class: "tls", explain: "the server does not speak TLS on this port",
		},
		"reset after the request": {
			url: "http://" + listen(t, func(conn *net.TCPConn) {
				request(conn)
				conn.SetLinger(0) // RST, not FIN
				conn.Close()
			}) + "/",
			class: "reset", explain: "the server closed the connection before it responded",
		},
		"closed after the request": {
			url: "http://" + listen(t, func(conn *net.TCPConn) {
				request(conn)
				conn.Close()
			}) + "/",
			class: "reset", explain: "the server closed the connection before it responded",
		},
		"closed within the headers": {
			url: "http://" + listen(t, func(conn *net.TCPConn) {
				request(conn)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
				conn.Close()
			}) + "/",
			class: "reset", explain: "the server closed the connection before it responded",
		},
		"no HTTP": {
			url: "http://" + listen(t, func(conn *net.TCPConn) {
				request(conn)
				io.WriteString(conn, "hello\r\n\r\n")
				hang(conn)
			}) + "/",
			class: "protocol", explain: "the response is not valid HTTP",
		},
		"headers without end": {
			url: "http://" + listen(t, func(conn *net.TCPConn) {
				request(conn)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 10<<10)+"\r\n\r\n")
				hang(conn)
			}) + "/",
			options: ClientOptions{MaxResponseHeaderBytes: 1 << 10},
			class:   "protocol", explain: "the response headers are too large",
		},
		"another protocol": {
			url: "http://" + listen(t, func(conn *net.TCPConn) {
				request(conn)
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: secret\r\n\r\n")
				hang(conn)
			}) + "/",
			class: "protocol", explain: "the server returned 101 Switching Protocols without being asked",
		},
		"redirect to nowhere": {
			url: "http://" + listen(t, func(conn *net.TCPConn) {
				request(conn)
				io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: http://[secret\r\nContent-Length: 0\r\n\r\n")
				hang(conn)
			}) + "/",
			class: "protocol", explain: "the response is a redirect to an invalid URL",
		},
		"cancelled": {
			url: "http://" + listen(t, hang) + "/", ctx: cancelled,
			class: "cancelled", explain: "the request was canceled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := New(loopbackAllowed)
			if c.names != nil || c.silent {
				g.resolver = resolver(t, c.names)
			}
			ctx := t.Context()
			if c.ctx != nil {
				ctx = c.ctx
			}
			_, err := post(t, ctx, client(t, g, nil, c.options), c.url)
			if Class(err) != c.class || !strings.HasPrefix(Explain(err), c.explain) {
				t.Errorf("Class %q and Explain %q, want %q and %q; the error is %v", Class(err), Explain(err), c.class, c.explain, err)
			}
			if strings.Contains(Explain(err), "secret") {
				t.Errorf("Explain repeats the server's words: %q", Explain(err))
			}
		})
	}
}

func TestBadCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	current := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	expired := certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	early := certificate(t, now.Add(time.Hour), now.Add(2*time.Hour))
	for name, c := range map[string]struct {
		cert    tls.Certificate
		host    string
		trusted bool
		explain string // empty if it is accepted
	}{
		"good":          {current, "example.com", true, ""},
		"another name":  {current, "example.org", true, "the certificate is not valid for this name"},
		"no name":       {current, "127.0.0.1", true, "the certificate is not valid for this name"},
		"own authority": {current, "example.com", false, "the certificate is not signed by a known authority"},
		"expired":       {expired, "example.com", true, "the certificate has expired or is not valid yet"},
		"too early":     {early, "example.com", true, "the certificate has expired or is not valid yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receive(t, nil, func(s *httptest.Server) { s.TLS = &tls.Config{Certificates: []tls.Certificate{c.cert}} })
			g := New(loopbackAllowed)
			g.resolver = resolver(t, fixed("127.0.0.1"))
			roots := x509.NewCertPool()
			if c.trusted {
				roots.AddCert(c.cert.Leaf)
			}
			_, err := post(t, t.Context(), client(t, g, nil, ClientOptions{RootCAs: roots}), r.at(c.host))
			if c.explain == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if Class(err) != "tls" || Explain(err) != c.explain {
				t.Errorf("Class %q and Explain %q; the error is %v", Class(err), Explain(err), err)
			}
			if n := r.requests.Load(); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

// certificate returns a self-signed certificate for example.com.
func certificate(t *testing.T, from, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until, DNSNames: []string{"example.com"},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestMissingClientCertificateIsATLSFailure(t *testing.T) {
	t.Parallel()
	r := receive(t, nil, func(s *httptest.Server) {
		// In TLS 1.3 the rejection may arrive after the handshake.
		s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	})
	_, err := post(t, t.Context(), client(t, New(loopbackAllowed), r, ClientOptions{}), r.URL)
	if Class(err) != "tls" || Explain(err) != "the server refused the TLS handshake" {
		t.Errorf("Class %q and Explain %q; the error is %v", Class(err), Explain(err), err)
	}
}

func TestSilentServerIsATimeout(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		over := make(chan struct{})
		r := receive(t, func(http.ResponseWriter, *http.Request) { <-over }, func(s *httptest.Server) { s.EnableHTTP2 = http2 })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := post(t, ctx, client(t, New(loopbackAllowed), r, ClientOptions{}), r.URL)
		close(over)
		// On a machine too slow to connect in time, the class is still timeout.
		if Class(err) != "timeout" || r.requests.Load() > 0 && !strings.HasPrefix(Explain(err), "no response within ") {
			t.Errorf("Class %q and Explain %q; the error is %v", Class(err), Explain(err), err)
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v is no timeout to others", err)
		}
	}
}

func TestCanceledRequestIsClassified(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		r := receive(t, func(http.ResponseWriter, *http.Request) {
			cancel()
			<-over
		}, func(s *httptest.Server) { s.EnableHTTP2 = http2 })
		_, err := post(t, ctx, client(t, New(loopbackAllowed), r, ClientOptions{}), r.URL)
		close(over)
		if Class(err) != "cancelled" || Explain(err) != "the request was canceled" {
			t.Errorf("Class %q and Explain %q; the error is %v", Class(err), Explain(err), err)
		}
	}
}

func TestHTTP2FailuresAreClassified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h              http.HandlerFunc
		class, explain string
	}{
		"stream reset": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"reset", "the server closed the connection before it responded",
		},
		"headers a little too large": {
			func(w http.ResponseWriter, _ *http.Request) { fill(w.Header(), 66<<10) },
			"protocol", "the response headers are too large",
		},
		"headers far too large": { // the connection breaks
			func(w http.ResponseWriter, _ *http.Request) { fill(w.Header(), 1<<20) },
			"protocol", "the response is not valid HTTP/2, or its headers are far too large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receive(t, c.h, func(s *httptest.Server) { s.EnableHTTP2 = true })
			_, err := post(t, t.Context(), client(t, New(loopbackAllowed), r, ClientOptions{}), r.URL)
			if Class(err) != c.class || Explain(err) != c.explain {
				t.Errorf("Class %q and Explain %q; the error is %v", Class(err), Explain(err), err)
			}
		})
	}
}

// fill adds that many bytes to a header.
func fill(h http.Header, bytes int) {
	for i := range bytes >> 10 {
		h.Set(fmt.Sprint("X-", i), strings.Repeat("x", 1<<10))
	}
}

// The caller reads the body after the client has returned.
func TestBrokenBodiesAreClassified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, class, explain string }{
		"cut off":        {"Content-Length: 10\r\n\r\nabc", "reset", "the server closed the connection"},
		"chunks cut off": {"Transfer-Encoding: chunked\r\n\r\na\r\nabc", "reset", "the server closed the connection"},
		"bad chunk":      {"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc", "protocol", "the response is not valid HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := listen(t, func(conn *net.TCPConn) {
				request(conn)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+c.answer)
				conn.CloseWrite()
				hang(conn)
			})
			resp, err := post(t, t.Context(), client(t, New(loopbackAllowed), nil, ClientOptions{}), "http://"+addr)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.ReadAll(resp.Body)
			if Class(err) != c.class || Explain(err) != c.explain {
				t.Errorf("Class %q and Explain %q; the error is %v", Class(err), Explain(err), err)
			}
		})
	}
}

// Errors that can't be caused on loopback, as the standard library reports
// them.
func TestWrappedErrorsAreClassified(t *testing.T) {
	t.Parallel()
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	failed := func(s stage, err error) error {
		return &url.Error{Op: "Post", URL: "https://example.com/?token=secret", Err: &failure{host: "example.com", stage: s, after: 10*time.Second + 40*time.Millisecond, err: err}}
	}
	refused := &AddrError{netip.MustParseAddr("10.0.0.5")}
	for _, c := range []struct {
		err            error
		class, explain string
	}{
		{nil, "", ""},
		{refused, "refused_address", "the address 10.0.0.5 is private and not allowed"},
		{fmt.Errorf("deliver: %w", failed(connecting, &net.OpError{Op: "dial", Err: refused})), "dns", "the name example.com does not resolve to a public address"},
		{failed(connecting, &AddrError{}), "refused_address", "the address is not valid and not allowed"},
		{failed(connecting, context.DeadlineExceeded), "timeout", "no connection within 10 s"},
		{failed(connecting, dial(syscall.ETIMEDOUT)), "timeout", "no connection within 10 s"},
		{failed(starting, context.DeadlineExceeded), "timeout", "no connection within 10 s"},
		{failed(resolving, &net.DNSError{Name: "example.com", IsTimeout: true}), "timeout", "the name could not be looked up within 10 s"},
		{failed(handshaking, context.DeadlineExceeded), "timeout", "no TLS handshake within 10 s"},
		{failed(responding, context.DeadlineExceeded), "timeout", "no response within 10 s"},
		{context.DeadlineExceeded, "timeout", "no response in time"}, // reading the body
		{os.ErrDeadlineExceeded, "timeout", "no response in time"},
		{failed(resolving, &net.DNSError{Name: "example.com.", Err: "server misbehaving", IsTemporary: true}), "dns", "the name example.com could not be looked up"},
		{failed(connecting, dial(syscall.EHOSTUNREACH)), "connect", "there is no route to the server"},
		{failed(connecting, dial(syscall.ENETUNREACH)), "connect", "there is no route to the server"},
		{failed(connecting, dial(syscall.EADDRNOTAVAIL)), "connect", "no connection could be made"},
		{failed(handshaking, x509.SystemRootsError{}), "tls", "no certificate can be checked: this server has no list of authorities"},
		{failed(handshaking, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.TooManyIntermediates}}), "tls", "the certificate is not valid"},
		{failed(handshaking, errors.New("tls: bad")), "tls", "the TLS handshake failed"},
		{failed(responding, &net.OpError{Op: "remote error", Err: tls.AlertError(116)}), "tls", "the server refused the TLS handshake"},
		{failed(responding, errors.New("http: server closed idle connection")), "reset", "the server closed the connection before it responded"},
		{failed(responding, errors.New("http2: client connection lost")), "reset", "the server closed the connection before it responded"},
		{failed(responding, errors.New("http2: server sent GOAWAY and closed the connection; LastStreamID=1")), "reset", "the server closed the connection before it responded"},
		{failed(responding, errors.New("stream error: stream ID 1; FRAME_SIZE_ERROR; received from peer")), "protocol", "the response headers are too large"}, // as Node.js does
		{ErrUpgraded, "protocol", "the server returned 101 Switching Protocols without being asked"},
		{failed(starting, errors.New("net/http: invalid header field value")), "other", "the request failed"},
		{errors.New("anything"), "other", "the request failed"},
	} {
		if Class(c.err) != c.class || Explain(c.err) != c.explain {
			t.Errorf("Class %q and Explain %q, want %q and %q; the error is %v", Class(c.err), Explain(c.err), c.class, c.explain, c.err)
		}
	}
}

func TestDurationsAreFormatted(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		250 * time.Millisecond:   "250 ms",
		1500 * time.Millisecond:  "1.5 s",
		9999 * time.Millisecond:  "10 s",
		10004 * time.Millisecond: "10 s",
		2 * time.Minute:          "120 s",
	} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%s) = %q, want %q", d, got, want)
		}
	}
}
