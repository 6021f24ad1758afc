//go:build clients

package sdk_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// TestOthersLibrariesAcceptWhatTheServerDelivers delivers over HTTP and TLS and
// verifies the deliveries with third-party libraries. They reject a header with another
// name or signature, and a changed body. A receiver with an untrusted certificate must
// not get events.
//
// It changes the environment, so it can't run in parallel.
func TestOthersLibrariesAcceptWhatTheServerDelivers(t *testing.T) {
	trusted, stranger := newAuthority(t), newAuthority(t)
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		t.Skip("SSL_CERT_FILE is not heard here: deliveries over TLS are not checked")
	}
	t.Setenv("SSL_CERT_FILE", trusted.file)

	s := startProgram(t)
	plain := s.postbox(t, func(b *httptest.Server) { b.Start() })
	http1 := s.postbox(t, func(b *httptest.Server) {
		b.TLS = &tls.Config{Certificates: []tls.Certificate{trusted.certificate(t)}}
		b.StartTLS()
	})
	http2 := s.postbox(t, func(b *httptest.Server) {
		b.EnableHTTP2 = true
		b.TLS = &tls.Config{Certificates: []tls.Certificate{trusted.certificate(t)}}
		b.StartTLS()
	})
	unknown := s.postbox(t, func(b *httptest.Server) {
		b.TLS = &tls.Config{Certificates: []tls.Certificate{stranger.certificate(t)}}
		b.StartTLS()
	})

	for box, proto := range map[*postbox]string{plain: "HTTP/1.1", http1: "HTTP/1.1", http2: "HTTP/2.0"} {
		for _, kind := range events.Types {
			s.send(t, box, kind)
		}
		for _, m := range box.wait(t, len(events.Types)) {
			if m.proto != proto || (m.tls == nil) != (box == plain) {
				t.Errorf("it came by %s, expected %s", m.proto, proto)
			}
			for name, accepted := range receivers {
				if err := accepted(m.body, m.header, box.secret); err != nil {
					t.Errorf("%s refuses a delivery over %s: %v\n%v\n%s", name, proto, err, m.header, m.body)
				}
			}
		}
	}

	// In a secret's grace period, each library accepts the old secret. Libraries that
	// know the new headers accept either.
	old := http2.secret
	s.call(t, "POST", "/v1/webhooks/"+http2.id+"/rotate_secret", `{"grace_period_seconds":60}`, http2)
	s.send(t, http2, events.BillingCreditsLow)
	got := http2.wait(t, len(events.Types)+1)
	m := got[len(got)-1]
	for name, accepted := range receivers {
		if err := accepted(m.body, m.header, old); err != nil {
			t.Errorf("%s refuses the old secret: %v", name, err)
		}
		if err := accepted(m.body, m.header, http2.secret); (err == nil) != (name != "stripe-go") {
			t.Errorf("%s and the new secret: %v", name, err)
		}
	}

	id := s.send(t, unknown, events.BillingCreditsLow)
	var d struct {
		Status   string
		Attempts []struct {
			Error struct{ Class, Message string }
		}
	}
	s.eventually(t, func() bool {
		s.call(t, "GET", "/v1/deliveries/"+id, "", &d)
		return d.Status == "retrying"
	})
	if e := d.Attempts[0].Error; e.Class != "tls" || unknown.count() != 0 {
		t.Errorf("a certificate of nobody known: %+v, and %d deliveries came", e, unknown.count())
	}
}

func TestMain(m *testing.M) { program.Main(m) }

// running is the real program with a workspace.
type running struct {
	*program.Server
	key string
}

func startProgram(t *testing.T) *running {
	t.Helper()
	binary, err := program.Self()
	if err != nil {
		t.Fatal(err)
	}
	at := program.Place{Dir: t.TempDir()}
	server, err := binary.Serve(at, "--webhooks-allow-http", "--webhooks-allow-cidrs=127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Kill()
		if t.Failed() {
			t.Logf("the server's last words:\n%s", server.Log())
		}
	})
	out, errOut, err := binary.Run(at, "keys", "create", "--env", "test", "--json")
	if err != nil {
		t.Fatalf("keys create: %v\n%s", err, errOut)
	}
	var key struct{ Value string }
	if err := json.Unmarshal([]byte(out), &key); err != nil {
		t.Fatal(err)
	}
	return &running{server, key.Value}
}

// call sends a request that must succeed.
func (s *running) call(t *testing.T, method, path, body string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v\n%s", method, path, res.Status, err, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatal(err)
	}
}

// send sends a sample event of the type and returns the delivery's ID.
func (s *running) send(t *testing.T, to *postbox, kind events.Type) string {
	t.Helper()
	var d struct{ ID string }
	s.call(t, "POST", "/v1/webhooks/"+to.id+"/test", `{"type":"`+string(kind)+`"}`, &d)
	return d.ID
}

func (s *running) eventually(t *testing.T, holds func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline := time.After(30 * time.Second); !holds(); {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatal("it did not happen within 30 s")
		}
	}
}

// message is a received delivery.
type message struct {
	proto  string
	tls    *tls.ConnectionState
	header http.Header
	body   []byte
}

// postbox is an endpoint that stores deliveries.
type postbox struct {
	id, secret string

	mu   sync.Mutex
	got  []message
	came chan struct{}
}

// UnmarshalJSON reads ID and secret from the API's response.
func (b *postbox) UnmarshalJSON(answer []byte) error {
	var shown struct{ ID, Secret string }
	err := json.Unmarshal(answer, &shown)
	b.id, b.secret = shown.ID, shown.Secret
	return err
}

func (s *running) postbox(t *testing.T, start func(*httptest.Server)) *postbox {
	t.Helper()
	b := &postbox{came: make(chan struct{}, 100)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.got = append(b.got, message{r.Proto, r.TLS, r.Header, body})
		b.mu.Unlock()
		b.came <- struct{}{}
		w.WriteHeader(http.StatusNoContent)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the test rejects a handshake on purpose
	start(server)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.call(t, "POST", "/v1/webhooks", `{"url":"`+server.URL+`/hooks","events":["*"]}`, b)
	return b
}

func (b *postbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// wait returns the messages when there are n.
func (b *postbox) wait(t *testing.T, n int) []message {
	t.Helper()
	for deadline := time.After(30 * time.Second); b.count() < n; {
		select {
		case <-b.came:
		case <-deadline:
			t.Fatalf("%d of %d deliveries came within 30 s", b.count(), n)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]message(nil), b.got...)
}

// authority is a certificate authority.
type authority struct {
	file string // its certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(t, template)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = cert, key
	var text bytes.Buffer
	if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// certificate issues a certificate for this machine.
func (a *authority) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	der, key := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sign issues a certificate with a new key. The first one is self-signed.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer); err != nil {
		t.Fatal(err)
	}
	return der, key
}
