// Package certificates gets TLS certificates from an ACME directory, such as Let's
// Encrypt, and shares them between all nodes.
//
// Each domain has a row in acme_certificates:
//
//	            claim                  order succeeds
//	due ─────────────────▶ claimed ─────────────────────▶ valid
//	 ▲                        │                             │
//	 │  retry_at              │ order fails                 │ renew_at
//	 ├───────── waiting ◀─────┘                             │
//	 └──────────────────────────────────────────────────────┘
//
// One statement checks that a domain is due and claims it, so one node orders. A
// claim ends with its time or with the node that made it. The tokens of challenges
// are rows too, so the directory may ask any node for the response. Account keys
// and the keys of certificates are sealed with the root key.
package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"

	"turnpike/internal/db"
	"turnpike/internal/keyring"
)

const (
	// checkInterval is how often a node looks for due domains and for new
	// certificates of other nodes. A signal tells it sooner.
	checkInterval = 30 * time.Second
	// signalTopic announces a new certificate.
	signalTopic = "certificates"
	// maxLookups limits the queries for challenges, because anyone can ask for one.
	maxLookups = 4
)

// ChallengePath is the prefix of the URLs of HTTP-01 challenges.
const ChallengePath = "/.well-known/acme-challenge/"

// Options configure a Manager.
type Options struct {
	DB    *db.DB
	Ring  *keyring.Ring
	Node  string
	Cache *Cache

	Directory string // URL
	Email     string // for the directory's operator; may be empty
	Binding   *acme.ExternalAccountBinding
	Roots     *x509.CertPool // of the directory's own certificate; nil means the system's
	HTTP      bool           // whether HTTP-01 challenges are served

	Version string
	Now     func() time.Time
}

// Manager gets and renews the certificates of the configured domains.
type Manager struct {
	Options
	domains atomic.Pointer[[]string]
	lookups chan struct{}
	refresh chan struct{} // wakes the loop that loads certificates
	order   chan struct{} // wakes the loop that orders them

	mu         sync.Mutex
	accountKey *ecdsa.PrivateKey // nil until it is needed
}

// New returns a manager for the domains.
func New(o Options, domains []string) *Manager {
	m := &Manager{Options: o, lookups: make(chan struct{}, maxLookups), refresh: make(chan struct{}, 1), order: make(chan struct{}, 1)}
	m.Apply(domains)
	o.DB.OnSignal(signalTopic, func(string) { m.wake() })
	return m
}

// Apply replaces the domains.
func (m *Manager) Apply(domains []string) {
	m.domains.Store(&domains)
	m.wake()
}

func (m *Manager) wake() {
	for _, loop := range []chan struct{}{m.refresh, m.order} {
		select {
		case loop <- struct{}{}:
		default:
		}
	}
}

func (m *Manager) now() time.Time { return m.DB.At(m.Now()) }

// Run loads new certificates and orders those that are due until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() {
		loop(ctx, m.refresh, func() {
			if err := m.Load(ctx); err != nil && ctx.Err() == nil {
				slog.Log(ctx, db.LogLevel(err), "failed to load TLS certificates; retrying", "retry_in", checkInterval, "error", err)
			}
		})
	})
	loops.Go(func() {
		loop(ctx, m.order, func() {
			if err := m.OrderDue(ctx); err != nil && ctx.Err() == nil {
				slog.Log(ctx, db.LogLevel(err), "failed to check for due TLS certificates; retrying", "retry_in", checkInterval, "error", err)
			}
		})
	})
	loops.Wait()
}

func loop(ctx context.Context, wake <-chan struct{}, step func()) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		step()
		select {
		case <-tick.C:
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// IsChallenge reports whether a handshake is a TLS-ALPN-01 challenge.
func IsChallenge(hello *tls.ClientHelloInfo) bool {
	return len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acme.ALPNProto
}

// errNoChallenge ends handshakes for challenges that no node has started.
var errNoChallenge = errors.New("no ACME challenge is in progress for this domain")

// ChallengeCertificate responds to a TLS-ALPN-01 challenge that any node has started.
func (m *Manager) ChallengeCertificate(ctx context.Context, domain string) (*tls.Certificate, error) {
	domain = normalize(domain)
	token, err := m.lookup(ctx, "SELECT token FROM acme_challenges WHERE directory = $1 AND kind = $2 AND domain = $3 AND expires_at > $4", kindALPN, domain)
	if err != nil {
		return nil, err
	}
	key, err := m.account(ctx)
	if err != nil {
		return nil, err
	}
	response, err := (&acme.Client{Key: key}).TLSALPN01ChallengeCert(token, domain)
	return &response, err
}

// ServeChallenge responds to an HTTP-01 challenge that any node has started.
func (m *Manager) ServeChallenge(w http.ResponseWriter, r *http.Request) {
	token, err := m.lookup(r.Context(), "SELECT token FROM acme_challenges WHERE directory = $1 AND kind = $2 AND token = $3 AND expires_at > $4",
		kindHTTP, strings.TrimPrefix(r.URL.Path, ChallengePath))
	if errors.Is(err, errNoChallenge) {
		http.NotFound(w, r)
		return
	}
	var response string
	if err == nil {
		response, err = m.httpResponse(r.Context(), token)
	}
	if err != nil {
		slog.Warn("failed to respond to an ACME challenge", "error", err)
		http.Error(w, "The challenge can't be read from the database. Retry the request.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(response))
}

func (m *Manager) httpResponse(ctx context.Context, token string) (string, error) {
	key, err := m.account(ctx)
	if err != nil {
		return "", err
	}
	return (&acme.Client{Key: key}).HTTP01ChallengeResponse(token)
}

// maxName is the length of the longest domain, and more than that of a token.
const maxName = 253

func (m *Manager) lookup(ctx context.Context, query, kind, name string) (token string, err error) {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, isStrange) {
		return "", errNoChallenge
	}
	select {
	case m.lookups <- struct{}{}:
		defer func() { <-m.lookups }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	token, err = db.Value[string](m.DB.QueryRow(ctx, query, m.Directory, kind, name, m.now().UnixMicro()))
	if errors.Is(err, db.ErrNotFound) {
		return "", errNoChallenge
	}
	return token, db.Wrap(err, "look up the ACME challenge")
}

// isStrange reports whether neither domains nor tokens contain a character.
func isStrange(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

func normalize(domain string) string { return strings.ToLower(strings.TrimSuffix(domain, ".")) }

// location binds a sealed value to its row.
func location(parts ...string) string { return fmt.Sprintf("acme/%q", parts) }
