package certificates

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/db"
)

const (
	pemKey         = "PRIVATE KEY"
	pemCertificate = "CERTIFICATE"
)

// account returns the key of the account at the directory, which all nodes share.
// The first node creates it.
func (m *Manager) account(ctx context.Context) (*ecdsa.PrivateKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.accountKey != nil {
		return m.accountKey, nil
	}
	fresh, err := newSealedKey()
	if err != nil {
		return nil, err
	}
	at := location("account", m.Directory)
	var sealed string
	err = m.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO acme_accounts (directory, sealed_key, created_at) VALUES ($1, $2, $3) ON CONFLICT (directory) DO NOTHING",
			m.Directory, m.Ring.Seal(fresh, at), m.now().UnixMicro()); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT sealed_key FROM acme_accounts WHERE directory = $1", m.Directory).Scan(&sealed)
	})
	if err != nil {
		return nil, fmt.Errorf("load the key of the ACME account: %w", err)
	}
	plain, err := m.Ring.Open(sealed, at)
	if err != nil {
		return nil, fmt.Errorf("load the key of the ACME account: %w", err)
	}
	key, err := x509.ParseECPrivateKey(plain)
	if err != nil {
		return nil, fmt.Errorf("load the key of the ACME account: %w", err)
	}
	m.accountKey = key
	return key, nil
}

func newSealedKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return x509.MarshalECPrivateKey(key)
}

// issued is a certificate that the directory has just issued.
type issued struct {
	key  *ecdsa.PrivateKey
	der  [][]byte
	leaf *x509.Certificate
}

// newIssued checks that the directory has issued what was ordered.
func newIssued(key *ecdsa.PrivateKey, der [][]byte, domain string) (*issued, error) {
	if len(der) == 0 {
		return nil, errors.New("the directory returned no certificate")
	}
	leaf, err := x509.ParseCertificate(der[0])
	if err != nil {
		return nil, fmt.Errorf("the directory returned an invalid certificate: %w", err)
	}
	if err := leaf.VerifyHostname(domain); err != nil {
		return nil, fmt.Errorf("the directory returned a certificate for another name: %w", err)
	}
	if public, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the directory returned a certificate for another key")
	}
	return &issued{key, der, leaf}, nil
}

// encode returns the key and the chain in PEM.
func (c *issued) encode() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	blocks := []*pem.Block{{Type: pemKey, Bytes: key}}
	for _, der := range c.der {
		blocks = append(blocks, &pem.Block{Type: pemCertificate, Bytes: der})
	}
	for _, b := range blocks {
		if err := pem.Encode(&out, b); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// open reads a certificate from the database.
func (m *Manager) open(ctx context.Context, domain string) (*tls.Certificate, error) {
	sealed, err := db.Value[string](m.DB.QueryRow(ctx, "SELECT sealed FROM acme_certificates WHERE directory = $1 AND domain = $2", m.Directory, domain))
	if err != nil {
		return nil, err
	}
	plain, err := m.Ring.Open(sealed, location("certificate", m.Directory, domain))
	if err != nil {
		return nil, fmt.Errorf("open the certificate of %s: %w", domain, err)
	}
	pair, err := tls.X509KeyPair(plain, plain)
	if err != nil {
		return nil, fmt.Errorf("open the certificate of %s: %w", domain, err)
	}
	return &pair, nil
}

// claim is the right of this node to order a certificate.
type claim struct {
	domain string
	until  time.Time
}

// claim reserves the order of a certificate for this node. It returns nil if none is
// due or another node has it.
func (m *Manager) claim(ctx context.Context, domain string) (*claim, error) {
	now := m.now()
	c := &claim{domain, now.Add(claimDuration)}
	var rows int64
	err := m.DB.Write(ctx, func(tx *db.Tx) (err error) {
		rows, err = tx.Exec(ctx, `INSERT INTO acme_certificates (directory, domain, claimed_by, claimed_until) VALUES ($1, $2, $3, $4)
			ON CONFLICT (directory, domain) DO UPDATE SET claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until
			WHERE (acme_certificates.renew_at IS NULL OR acme_certificates.renew_at <= $5)
			AND (acme_certificates.retry_at IS NULL OR acme_certificates.retry_at <= $5)
			AND (acme_certificates.claimed_until IS NULL OR acme_certificates.claimed_until <= $5
				OR NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = acme_certificates.claimed_by))`,
			m.Directory, domain, m.Node, c.until.UnixMicro(), now.UnixMicro())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim the certificate of %s: %w", domain, err)
	}
	if rows == 0 {
		return nil, nil
	}
	return c, nil
}

// isDue reports whether a certificate should be ordered, without a write. Another
// node may be ordering it.
func (m *Manager) isDue(ctx context.Context, domain string) (bool, error) {
	waiting, err := db.Value[int64](m.DB.QueryRow(ctx, `SELECT count(*) FROM acme_certificates WHERE directory = $1 AND domain = $2
		AND (renew_at > $3 OR retry_at > $3)`, m.Directory, domain, m.now().UnixMicro()))
	return waiting == 0, err
}

// errClaimLost means that another node has taken over an order.
var errClaimLost = errors.New("another node has taken over the order, because this one could not reach the database in time")

// finish ends a claim and sets columns of its row.
func (m *Manager) finish(ctx context.Context, c *claim, set string, values ...any) error {
	args := append([]any{m.Directory, c.domain, m.Node, c.until.UnixMicro()}, values...)
	return m.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Exec(ctx, `UPDATE acme_certificates SET claimed_by = NULL, claimed_until = NULL`+set+`
			WHERE directory = $1 AND domain = $2 AND claimed_by = $3 AND claimed_until = $4`, args...)
		if err == nil && rows == 0 {
			err = errClaimLost
		}
		tx.Signal(signalTopic, c.domain)
		return err
	})
}

// release ends a claim without a result.
func (m *Manager) release(ctx context.Context, c *claim) error { return m.finish(ctx, c, "") }

// storeCertificate seals a new certificate and ends the claim. During an outage of
// the database it retries until ctx ends, because orders are limited.
func (m *Manager) storeCertificate(ctx context.Context, c *claim, got *issued) error {
	plain, err := got.encode()
	if err != nil {
		return err
	}
	sealed := m.Ring.Seal(plain, location("certificate", m.Directory, c.domain))
	for retried := false; ; retried = true {
		now := m.now()
		err := m.finish(ctx, c, ", sealed = $5, issued_at = $6, expires_at = $7, renew_at = $8, failures = 0, failed_at = NULL, error = NULL, retry_at = NULL",
			sealed, now.UnixMicro(), got.leaf.NotAfter.UnixMicro(), renewAt(got.leaf, now).UnixMicro())
		switch {
		case retried && errors.Is(err, errClaimLost): // the commit whose response was lost
			return nil
		case !errors.Is(err, db.ErrUnavailable):
			return err
		}
		select {
		case <-time.After(storeRetry):
		case <-ctx.Done():
			return err
		}
	}
}

// renewAt returns when to renew a certificate: after two thirds of its lifetime. A
// wrong clock must not make a node order one certificate after the other.
func renewAt(leaf *x509.Certificate, now time.Time) time.Time {
	at := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 3)
	if earliest := now.Add(minRenewal); at.Before(earliest) {
		return earliest
	}
	return at
}

// storeFailure records why an order failed, ends the claim, and returns when the
// next one is due.
func (m *Manager) storeFailure(ctx context.Context, c *claim, cause error) (retryAt time.Time, err error) {
	failures, err := db.Value[int64](m.DB.QueryRow(ctx, "SELECT failures FROM acme_certificates WHERE directory = $1 AND domain = $2", m.Directory, c.domain))
	if err != nil {
		return retryAt, err
	}
	now := m.now()
	retryAt = now.Add(backoff(int(failures), cause))
	return retryAt, m.finish(ctx, c, ", failures = $5, failed_at = $6, error = $7, retry_at = $8", failures+1, now.UnixMicro(), describe(cause), retryAt.UnixMicro())
}

// RetryFailed makes failed orders due now, because an operator may have fixed the cause.
func (m *Manager) RetryFailed(ctx context.Context) error {
	err := m.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE acme_certificates SET retry_at = NULL WHERE directory = $1 AND retry_at IS NOT NULL", m.Directory)
		tx.Signal(signalTopic, "")
		return err
	})
	return db.Wrap(err, "retry failed orders of TLS certificates")
}

// storeChallenge lets every node respond to a challenge, and deletes old ones.
func (m *Manager) storeChallenge(ctx context.Context, domain, kind, token string) error {
	now := m.now()
	err := m.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM acme_challenges WHERE expires_at <= $1", now.UnixMicro()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, db.Insert("acme_challenges", "directory, domain, kind, token, expires_at")+db.Upsert("directory, domain, kind", "token", "expires_at"),
			m.Directory, domain, kind, token, now.Add(claimDuration).UnixMicro())
		return err
	})
	return db.Wrap(err, "store the challenge")
}

func (m *Manager) deleteChallenge(ctx context.Context, domain, kind string) error {
	return m.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM acme_challenges WHERE directory = $1 AND domain = $2 AND kind = $3", m.Directory, domain, kind)
		return err
	})
}

// Status describes the certificate of a domain.
type Status struct {
	Domain    string
	ExpiresAt time.Time // zero if there is no certificate yet
	FailedAt  time.Time // zero unless the last order failed
	Error     string    // of the last order
	RetryAt   time.Time
}

// List describes the certificates of the domains, in their order.
func List(ctx context.Context, q db.Querier, directory string, domains []string) ([]Status, error) {
	rows, err := db.List(ctx, q, db.Scanner(func(s *Status) []any { return []any{&s.Domain, &s.ExpiresAt, &s.FailedAt, &s.Error, &s.RetryAt} }),
		"SELECT domain, expires_at, failed_at, error, retry_at FROM acme_certificates WHERE directory = $1", directory)
	if err != nil {
		return nil, err
	}
	out := make([]Status, len(domains))
	for i, domain := range domains {
		out[i].Domain = domain
		for _, row := range rows {
			if row.Domain == domain {
				out[i] = *row
			}
		}
	}
	return out, nil
}
