package dashboard_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// writeCertificate creates a certificate for this machine and returns its pool.
func writeCertificate(t *testing.T, cfg *config.Config) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	write := func(name, kind string, raw []byte) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cfg.TLS.Cert, cfg.TLS.Key = write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private)
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return pool
}

// cookieOf returns a cookie that the response sets.
func cookieOf(t testing.TB, a *response, name string) *http.Cookie {
	t.Helper()
	for _, line := range a.header.Values("Set-Cookie") {
		if c, err := http.ParseSetCookie(line); err == nil && c.Name == name && c.MaxAge >= 0 {
			return c
		}
	}
	t.Fatalf("%s sets no %s: %v", a.path, name, a.header.Values("Set-Cookie"))
	return nil
}

func TestCookiesAreSecureOverTLS(t *testing.T) {
	t.Parallel()
	var roots *x509.CertPool
	cfg := harness.Config(t, "sqlite")
	roots = writeCertificate(t, &cfg)
	s := harness.Start(t, cfg, harness.NewClock())
	if !strings.HasPrefix(s.URL, "https://") {
		t.Fatal(s.URL)
	}
	b := newBrowser(t, s)
	b.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	b.workspace = s.Workspace(t, "acme")
	b.person = addMember(t, s, b.workspace, "ada@example.com", accounts.Owner)
	a := b.post(t, "/dashboard/login", credentials(b, password))
	a.redirectsTo(t, "/dashboard/")
	c := cookieOf(t, a, "__Host-turnpike")
	if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("the session's cookie is %s", c)
	}
	if a.header.Get("Strict-Transport-Security") == "" {
		t.Error("browsers are not told to stay with HTTPS")
	}
	b.signedIn(t, true)
	// A cookie without the __Host- prefix is ignored.
	eve := newBrowser(t, s)
	eve.client.Transport = b.client.Transport
	eve.setSessionCookie(t, b.token(t))
	eve.signedIn(t, false)
	secret, _ := b.setUpApp(t)
	s.Clock.Turn(time.Minute)
	for name, a := range map[string]*response{
		"__Host-turnpike-half":  b.post(t, "/dashboard/login", credentials(b, password)),
		"__Host-turnpike-flash": b.post(t, "/dashboard/account/name", map[string][]string{"name": {"Ada"}}),
	} {
		if c := cookieOf(t, a, name); !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
			t.Errorf("%s", c)
		}
	}
	b.post(t, "/dashboard/login/code", map[string][]string{"code": {code(t, s, secret)}}).redirectsTo(t, "/dashboard/")
}

func TestSignInOnlyAtThePublicURL(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	roots := writeCertificate(t, &cfg)
	cfg.PublicURL = "https://tp.example"
	s := harness.Start(t, cfg, harness.NewClock())
	s.URL = s.App.ListenURL()
	b := newBrowser(t, s)
	b.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	b.person = addMember(t, s, s.Workspace(t, "acme"), "ada@example.com", accounts.Owner)
	for _, host := range []string{"tp.example:8443", "evil.tp.example", "other.example", "203.0.113.7"} {
		b.host = host
		b.get(t, "/dashboard/login").rejects(t, http.StatusForbidden, "public_url")
		b.post(t, "/dashboard/login", credentials(b, password)).rejects(t, http.StatusForbidden, "https://tp.example")
		b.post(t, "/dashboard/login/passkey/start", nil).rejects(t, http.StatusForbidden, "public_url")
	}
	b.host = "tp.example"
	b.get(t, "/dashboard/login").shows(t, "passkey")
	if a := b.post(t, "/dashboard/login/passkey/start", nil).is(t, http.StatusOK); !strings.Contains(a.body, `"rpId":"tp.example"`) {
		t.Errorf("the challenge is %s, want the relying party tp.example", a.body)
	}
	b.post(t, "/dashboard/login", credentials(b, password)).redirectsTo(t, "/dashboard/")
	b.signedIn(t, true)
	b.host = "tp.example:8443"
	b.signedIn(t, false)
}

func TestEveryResponseHasSecurityHeaders(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{true, false} {
		cfg := harness.Config(t, "sqlite")
		transport := &http.Transport{ForceAttemptHTTP2: true}
		if secure {
			transport.TLSClientConfig = &tls.Config{RootCAs: writeCertificate(t, &cfg)}
		}
		t.Cleanup(transport.CloseIdleConnections)
		s := harness.Start(t, cfg, harness.NewClock())
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		for path, status := range map[string]int{"/v1/models": 200, "/v1/nothing": 404, "/docs": 200, "/openapi.json": 200, "/files/x/y/z": 403, "/healthz": 200,
			"/nothing": 404, "/leaks/github": 405, "/dashboard/login": 200, "/dashboard/nothing": 404, "/dashboard": 303, "/": 303} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(path, "/v1/") {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != status {
				t.Errorf("GET %s answered %d, want %d", path, res.StatusCode, status)
			}
			if got := res.Header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("GET %s has X-Content-Type-Options %q, want nosniff", path, got)
			}
			if got := res.Header.Get("Strict-Transport-Security") != ""; got != secure {
				t.Errorf("GET %s by %s has Strict-Transport-Security: %t, want %t", path, req.URL.Scheme, got, secure)
			}
		}
	}
}

// The limit counts TCP connections.
func TestUnauthenticatedConnectionsAreCappedOverTLS(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	roots := writeCertificate(t, &cfg)
	cfg.Limits.UnauthenticatedConnections = 1
	s := harness.Start(t, cfg, harness.NewClock())
	address := strings.TrimPrefix(s.URL, "https://")
	connect := func() error {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots})
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return err
	}
	b := newBrowser(t, s)
	transport := b.client.Transport.(*http.Transport)
	transport.TLSClientConfig, transport.ForceAttemptHTTP2 = &tls.Config{RootCAs: roots}, true
	b.person = addMember(t, s, s.Workspace(t, "acme"), "ada@example.com", accounts.Owner)
	b.get(t, "/dashboard/login").is(t, http.StatusOK)
	if connect() == nil {
		t.Error("a second connection is accepted beside an unauthenticated one")
	}
	b.post(t, "/dashboard/login", credentials(b, password)).redirectsTo(t, "/dashboard/")
	b.signedIn(t, true) // the session applies on the same HTTP/2 connection
	if err := connect(); err != nil {
		t.Errorf("a second connection is refused beside one with a session: %v", err)
	}
	if connect() == nil {
		t.Error("a third connection is accepted beside an unauthenticated one")
	}
}

func TestCookiesWorkOnLocalhostWithoutTLS(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := newBrowser(t, s)
		b.person = addMember(t, s, s.Workspace(t, "acme"), "ada@example.com", accounts.Owner)
		a := b.post(t, "/dashboard/login", credentials(b, password))
		c := cookieOf(t, a, "turnpike")
		if c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("the session's cookie is %s", c)
		}
		if a.header.Get("Strict-Transport-Security") != "" {
			t.Error("localhost is told to stay with HTTPS, which it does not have")
		}
	})
}
