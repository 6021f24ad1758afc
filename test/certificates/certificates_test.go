// Package certificates_test gets certificates from Pebble, the ACME test server of
// Let's Encrypt.
package certificates_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/acme"

	"turnpike/internal/certificates"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
	"turnpike/internal/nodes"
	"turnpike/test/harness"
)

const domain = "turnpike.example.com"

// node is a manager with listeners for challenges.
type node struct {
	*certificates.Manager
	cache    *certificates.Cache
	tlsAddr  string
	httpAddr string
}

type world struct {
	db    *db.DB
	dir   *directory
	clock *harness.Clock
	ring  *keyring.Ring
}

// each runs a test on both engines, each with its own directory.
func each(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ring, err := keyring.New(bytes.Repeat([]byte{7}, keyring.Size))
		if err != nil {
			t.Fatal(err)
		}
		fn(t, &world{d, newDirectory(t, false), harness.NewClock(), ring})
	})
}

func (w *world) node(t *testing.T, change ...func(*certificates.Options)) *node {
	t.Helper()
	member, err := nodes.Join(t.Context(), w.db, w.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	o := certificates.Options{DB: w.db, Ring: w.ring, Node: member.ID, Cache: certificates.NewCache(), Directory: w.dir.URL, Email: "ops@example.com",
		Roots: w.dir.pool, HTTP: true, Version: "test", Now: w.clock.Now}
	for _, fn := range change {
		fn(&o)
	}
	n := &node{Manager: certificates.New(o, []string{domain}), cache: o.Cache}
	plain := httptest.NewServer(http.HandlerFunc(n.ServeChallenge))
	t.Cleanup(plain.Close)
	n.httpAddr = plain.Listener.Addr().String()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"http/1.1", acme.ALPNProto},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if certificates.IsChallenge(hello) {
				return n.ChallengeCertificate(hello.Context(), hello.ServerName)
			}
			return n.cache.Get(hello.ServerName)
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	n.tlsAddr = ln.Addr().String()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.(*tls.Conn).Handshake()
				conn.Close()
			}()
		}
	}()
	return n
}

func (n *node) orderDue(t *testing.T) {
	t.Helper()
	if err := n.OrderDue(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// served returns the certificate that a client gets, or nil if it doesn't trust it.
func (w *world) served(t *testing.T, n *node) *x509.Certificate {
	t.Helper()
	if err := n.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return served(n.tlsAddr, w.dir.roots)
}

func served(address string, roots *x509.CertPool) *x509.Certificate {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", address, &tls.Config{RootCAs: roots, ServerName: domain})
	if err != nil {
		return nil
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

func (w *world) status(t *testing.T) certificates.Status {
	t.Helper()
	list, err := certificates.List(t.Context(), w.db, w.dir.URL, []string{domain})
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

func (w *world) expectOrders(t *testing.T, when string, want int64) {
	t.Helper()
	if got := w.dir.orders.Load(); got != want {
		t.Errorf("%s: got %d orders, want %d", when, got, want)
	}
}

func TestOneNodeOrdersAndTheOtherRespondsToTheChallenge(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tls-alpn-01", "http-01"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w *world) {
				a, b := w.node(t), w.node(t)
				want := int64(1)
				if kind == "http-01" {
					w.dir.http.set(b.httpAddr)
					want = 2 // the first one tries tls-alpn-01 at a closed port
				} else {
					w.dir.tls.set(b.tlsAddr)
				}
				if w.served(t, a) != nil {
					t.Error("clients trust the certificate of a server that has none")
				}
				gate := w.dir.hold()
				done := make(chan error, 1)
				go func() { done <- a.OrderDue(t.Context()) }()
				<-gate.reached
				b.orderDue(t) // while the other node orders
				if len(gate.reached) > 0 {
					t.Error("two nodes order the same certificate")
				}
				close(gate.open)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				w.expectOrders(t, "for one certificate", want)
				ofA, ofB := w.served(t, a), w.served(t, b)
				if ofA == nil || ofB == nil || !ofA.Equal(ofB) {
					t.Fatalf("the nodes serve %v and %v; the last error is %q", ofA, ofB, w.status(t).Error)
				}
				if s := w.status(t); !s.ExpiresAt.Equal(ofA.NotAfter) || s.Error != "" {
					t.Errorf("got the status %+v, want %s", s, ofA.NotAfter)
				}
				w.expectNoKeyInDatabase(t, a)
				b.orderDue(t)
				w.expectOrders(t, "with a valid certificate", want)
			})
		})
	}
}

// expectNoKeyInDatabase looks for the private key in the database, in every encoding.
func (w *world) expectNoKeyInDatabase(t *testing.T, n *node) {
	t.Helper()
	certificate, err := n.cache.Get(domain)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := db.List(t.Context(), w.db, db.Value[string], "SELECT sealed FROM acme_certificates UNION ALL SELECT sealed_key FROM acme_accounts")
	if err != nil || len(stored) != 2 {
		t.Fatalf("got %d stored keys: %v", len(stored), err)
	}
	secret := key[36:68] // the private part of a P-256 key in PKCS #8
	for _, value := range stored {
		raw, err := base64.RawStdEncoding.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{value, string(raw)} {
			for _, leak := range []string{"PRIVATE KEY", string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
				if strings.Contains(text, leak) {
					t.Errorf("the database contains a readable key")
				}
			}
		}
	}
	challenges, err := db.List(t.Context(), w.db, db.Value[string], "SELECT token FROM acme_challenges")
	if err != nil || len(challenges) > 0 {
		t.Errorf("challenges %v are left over: %v", challenges, err)
	}
}

func TestRenewalAfterTwoThirdsOfTheLifetime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a, b := w.node(t), w.node(t)
		w.dir.tls.set(a.tlsAddr)
		a.orderDue(t)
		first := w.served(t, a)
		if first == nil {
			t.Fatalf("no certificate: %+v", w.status(t))
		}
		w.clock.Turn(59 * 24 * time.Hour)
		b.orderDue(t)
		w.expectOrders(t, "after 59 of 90 days", 1)
		w.clock.Turn(2 * 24 * time.Hour)
		b.orderDue(t)
		w.expectOrders(t, "after 61 of 90 days", 2)
		for name, n := range map[string]*node{"the node that renewed": b, "the other node": a} {
			if got := w.served(t, n); got == nil || got.Equal(first) {
				t.Errorf("%s serves %v, want a new certificate", name, got)
			}
		}
		// By the clock of this test, the new certificate is old already.
		a.orderDue(t)
		w.expectOrders(t, "immediately after a renewal", 2)
	})
}

func TestFailedOrderSaysWhyAndBacksOff(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a, b := w.node(t), w.node(t)
		a.orderDue(t) // no challenge gets through
		s := w.status(t)
		if !strings.Contains(s.Error, "tls-alpn-01: ") || !strings.Contains(s.Error, "http-01: ") || strings.Contains(s.Error, "\n") || s.FailedAt.IsZero() {
			t.Errorf("the failure doesn't name both challenges: %+v", s)
		}
		w.expectOrders(t, "one for each challenge", 2)
		b.orderDue(t)
		a.orderDue(t)
		w.expectOrders(t, "before retry_at", 2)
		before := s.RetryAt
		w.clock.Turn(s.RetryAt.Sub(w.db.At(w.clock.Now())))
		b.orderDue(t)
		w.expectOrders(t, "at retry_at", 4)
		if s = w.status(t); s.RetryAt.Sub(before) < 10*time.Minute {
			t.Errorf("the second retry is %s after the first, want longer than two minutes", s.RetryAt.Sub(before))
		}
		w.dir.http.set(b.httpAddr) // the operator opens the port and reloads
		if err := a.RetryFailed(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.orderDue(t)
		if s = w.status(t); w.served(t, b) == nil || s.Error != "" || !s.FailedAt.IsZero() {
			t.Errorf("no certificate after the problem was fixed: %+v", s)
		}
	})
}

func TestRateLimitedOrderWaitsAsLongAsTheDirectoryAsks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a := w.node(t)
		limited := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "7200")
			rw.Header().Set("Content-Type", "application/problem+json")
			rw.WriteHeader(http.StatusTooManyRequests)
			_, _ = rw.Write([]byte(`{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates"}`))
		})
		w.dir.answer.Store(&limited)
		a.orderDue(t)
		w.expectOrders(t, "at the limit", 1)
		s := w.status(t)
		if wait := s.RetryAt.Sub(s.FailedAt); wait != 2*time.Hour || !strings.Contains(s.Error, "too many certificates") {
			t.Errorf("got a wait of %s after %q, want 2h", wait, s.Error)
		}
	})
}

func TestClaimEndsWithItsNodeOrItsTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a, b := w.node(t), w.node(t)
		w.dir.tls.set(b.tlsAddr)
		claim := func(node string) {
			t.Helper()
			err := w.db.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO acme_certificates (directory, domain, claimed_by, claimed_until) VALUES ($1, $2, $3, $4)
					ON CONFLICT (directory, domain) DO UPDATE SET claimed_by = $3, claimed_until = $4, renew_at = NULL`,
					w.dir.URL, domain, node, w.db.At(w.clock.Now()).Add(6*time.Minute).UnixMicro())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		claim(a.Node)
		b.orderDue(t)
		w.expectOrders(t, "while a live node has the claim", 0)
		w.clock.Turn(6 * time.Minute)
		b.orderDue(t)
		w.expectOrders(t, "after the claim", 1)
		claim("node_that_crashed")
		b.orderDue(t)
		w.expectOrders(t, "with the claim of a dead node", 2)
	})
}

func TestAddedDomainGetsItsCertificate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		n := w.node(t)
		w.dir.tls.set(n.tlsAddr)
		n.orderDue(t)
		const added = "other.example.com"
		n.Apply([]string{domain, added})
		n.orderDue(t)
		w.expectOrders(t, "with a second domain", 2)
		if err := n.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{domain: domain, added: added, "": domain, "OTHER.example.com.": added, "unknown.example.com": domain} {
			got, err := n.cache.Get(name)
			if err != nil || got.Leaf == nil || got.Leaf.VerifyHostname(want) != nil {
				t.Errorf("%q: got %v (%v), want the certificate of %s", name, got, err, want)
			}
		}
	})
}

func TestDirectoryThatNeedsAnAccountGetsItsBinding(t *testing.T) {
	t.Parallel()
	key, err := base64.RawURLEncoding.DecodeString(bindingKey)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dbtest.Open(t, dbtest.Address(t, "sqlite")), newDirectory(t, true), harness.NewClock(), nil}
	if w.ring, err = keyring.New(make([]byte, keyring.Size)); err != nil {
		t.Fatal(err)
	}
	w.node(t).orderDue(t)
	if s := w.status(t); !strings.Contains(s.Error, "externalAccountRequired") {
		t.Errorf("without a binding: got %q", s.Error)
	}
	w.clock.Turn(time.Hour)
	n := w.node(t, func(o *certificates.Options) { o.Binding = &acme.ExternalAccountBinding{KID: bindingID, Key: key} })
	w.dir.tls.set(n.tlsAddr)
	n.orderDue(t)
	if w.served(t, n) == nil {
		t.Errorf("with a binding: %+v", w.status(t))
	}
}
