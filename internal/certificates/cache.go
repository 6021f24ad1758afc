package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/db"
)

// Cache holds the certificates that this process serves. It outlives managers: a
// node that is evicted keeps serving the certificates it has.
type Cache struct {
	current    atomic.Pointer[snapshot]
	selfSigned func() (*tls.Certificate, error)
}

// snapshot never changes.
type snapshot struct {
	domains []string
	loaded  map[string]loaded
}

type loaded struct {
	certificate *tls.Certificate
	issuedAt    time.Time
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	c := &Cache{selfSigned: sync.OnceValues(newSelfSigned)}
	c.current.Store(&snapshot{})
	return c
}

// Get returns the certificate for the name that a client has sent. Clients that
// send none, such as health checks by address, get the first domain's. Until there
// is one, clients get a self-signed certificate, so that load balancers that don't
// verify it see a ready server and pass on challenges.
func (c *Cache) Get(name string) (*tls.Certificate, error) {
	s := c.current.Load()
	name = normalize(name)
	if !slices.Contains(s.domains, name) && len(s.domains) > 0 {
		name = s.domains[0]
	}
	if found, ok := s.loaded[name]; ok {
		return found.certificate, nil
	}
	return c.selfSigned()
}

// Has reports whether a domain is one of the configured ones.
func (c *Cache) Has(domain string) bool {
	return slices.Contains(c.current.Load().domains, normalize(domain))
}

// Load loads the certificates that other nodes, or this one, have stored since the
// last call.
func (m *Manager) Load(ctx context.Context) error {
	before := m.Cache.current.Load()
	next := &snapshot{domains: *m.domains.Load(), loaded: maps.Clone(before.loaded)}
	if next.loaded == nil {
		next.loaded = map[string]loaded{}
	}
	rows, err := db.List(ctx, m.DB, func(r db.Row) (c certificateRow, err error) {
		err = db.Scan(r, &c.domain, &c.issuedAt)
		return c, err
	}, "SELECT domain, issued_at FROM acme_certificates WHERE directory = $1 AND sealed IS NOT NULL", m.Directory)
	if err != nil {
		return err
	}
	var failed error
	for _, row := range rows {
		if !slices.Contains(next.domains, row.domain) || next.loaded[row.domain].issuedAt.Equal(row.issuedAt) {
			continue
		}
		certificate, err := m.open(ctx, row.domain)
		if err != nil {
			failed = err // the others can be served
			continue
		}
		next.loaded[row.domain] = loaded{certificate, row.issuedAt}
		slog.Info("loaded the TLS certificate", "domain", row.domain, "valid_until", certificate.Leaf.NotAfter)
	}
	m.Cache.current.Store(next)
	return failed
}

type certificateRow struct {
	domain   string
	issuedAt time.Time
}

// newSelfSigned returns a certificate that no client trusts.
func newSelfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Turnpike has no certificate yet"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
