package api_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestServesHTTPSWithHTTP2(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	var pool *x509.CertPool
	cfg.TLS.Cert, cfg.TLS.Key, pool = certificate(t)
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	for _, body := range []string{
		`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		content := new(bytes.Buffer)
		_, _ = content.ReadFrom(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || res.ProtoMajor != 2 || content.Len() == 0 {
			t.Errorf("%s %d: %s", res.Proto, res.StatusCode, content)
		}
	}
}

// certificate creates one for 127.0.0.1 and returns its files.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER), pool
}

// lockedBuffer is a log that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestSecretsNeverReachTheLog(t *testing.T) {
	old := slog.Default()
	defer slog.SetDefault(old)
	log := &lockedBuffer{}
	slog.SetDefault(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	made := s.Do(t, newKey(key, map[string]any{"name": "n", "scopes": []string{"*"}})).Want(t, 200, "")
	token := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
	for _, secret := range []string{key, made.Text("value"), token.Text("value")} {
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys/" + secret + "?key=" + secret, Key: secret})
		s.Do(t, harness.Request{Method: "GET", Path: "/nothing/" + secret})
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("[[sim:error=500]] " + secret)})
		if strings.Contains(log.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
	if n := strings.Count(log.String(), `"msg":"request"`); n < 10 {
		t.Errorf("only %d requests were logged: nothing was searched", n)
	}
}
