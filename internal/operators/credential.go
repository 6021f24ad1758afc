package operators

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

// Credential is a credential of the admin API. Only the command line creates one.
type Credential struct {
	ID         string
	Name       string
	LastFour   string
	CreatedAt  time.Time
	ExpiresAt  *time.Time
	LastUsedAt *time.Time
	RevokedAt  *time.Time
	Scopes     []Scope
	AllowedIPs []netip.Prefix // empty allows all
	RateLimit  int64          // requests per minute
}

// Credentials manages the credentials of the admin API.
type Credentials struct {
	Ring *keyring.Ring
	Now  func() time.Time
}

const credentialColumns = "id, name, last_four, created_at, expires_at, last_used_at, revoked_at, scopes, allowed_ips, rate_limit"

var scanCredential = db.Scanner(func(c *Credential) []any {
	return []any{&c.ID, &c.Name, &c.LastFour, &c.CreatedAt, &c.ExpiresAt, &c.LastUsedAt, &c.RevokedAt, &c.Scopes, &c.AllowedIPs, &c.RateLimit}
})

// Create stores a credential and returns its value, which can't be read again.
func (s Credentials) Create(ctx context.Context, tx *db.Tx, c *Credential) (value string, err error) {
	if err := errors.Join(accounts.CheckName("name", c.Name), c.checkLimits()); err != nil {
		return "", err
	}
	value = keyring.NewSecret(keyring.AdminKey)
	c.ID, c.LastFour, c.CreatedAt = ids.New(ids.AdminCredential), value[len(value)-4:], s.Now()
	_, err = tx.Exec(ctx, db.Insert("admin_credentials", "id, name, hash, last_four, created_at, expires_at, scopes, allowed_ips, rate_limit"),
		c.ID, c.Name, s.hash(value), c.LastFour, c.CreatedAt.UnixMicro(), db.Micros(c.ExpiresAt), db.JSON(c.Scopes), db.JSON(append([]netip.Prefix{}, c.AllowedIPs...)), c.RateLimit)
	if err != nil {
		return "", fmt.Errorf("store admin credential: %w", err)
	}
	return value, log(ctx, tx, audit.Operator, entry{"admin_credential.created", c.ID, map[string]any{"name": c.Name, "scopes": c.Scopes, "allowed_ips": c.AllowedIPs, "rate_limit": c.RateLimit, "expires_at": c.ExpiresAt}, c.CreatedAt})
}

func (s Credentials) hash(value string) string {
	sum := s.Ring.Hash(value)
	return hex.EncodeToString(sum[:])
}

// List returns all credentials that aren't revoked.
func (s Credentials) List(ctx context.Context, q db.Querier) ([]*Credential, error) {
	return db.List(ctx, q, scanCredential, "SELECT "+credentialColumns+" FROM admin_credentials WHERE revoked_at IS NULL ORDER BY id")
}

// Revoke ends a credential immediately, on every node.
func (s Credentials) Revoke(ctx context.Context, tx *db.Tx, id string) error {
	n, err := tx.Exec(ctx, "UPDATE admin_credentials SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL", id, s.Now().UnixMicro())
	if err != nil {
		return fmt.Errorf("revoke admin credential: %w", err)
	}
	if n == 0 {
		return fault.NoSuch("admin credential", id)
	}
	return log(ctx, tx, audit.Operator, entry{"admin_credential.revoked", id, map[string]any{}, s.Now()})
}

// usedInterval is how often the last use of a credential is stored.
const usedInterval = time.Minute

// Authenticate returns the credential with a value. It reads the database each time, so a revoked one is rejected
// immediately.
func (s Credentials) Authenticate(ctx context.Context, d *db.DB, value string) (*Credential, error) {
	if kind, ok := access.ParseSecret(value); !ok || kind != keyring.AdminKey {
		return nil, errUnauthenticated()
	}
	c, err := scanCredential(d.QueryRow(ctx, "SELECT "+credentialColumns+" FROM admin_credentials WHERE hash = $1 AND revoked_at IS NULL", s.hash(value)))
	if errors.Is(err, db.ErrNotFound) {
		return nil, errUnauthenticated()
	}
	if err != nil {
		return nil, fmt.Errorf("look up admin credential: %w", err)
	}
	now := s.Now()
	if c.ExpiresAt != nil && !now.Before(*c.ExpiresAt) {
		return nil, errUnauthenticated()
	}
	if c.LastUsedAt == nil || now.Sub(*c.LastUsedAt) >= usedInterval {
		err = d.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE admin_credentials SET last_used_at = $2 WHERE id = $1", c.ID, now.UnixMicro())
			return err
		})
	}
	return c, err
}

func errUnauthenticated() error {
	return fault.New(fault.Authentication, "Missing or invalid admin credential. Send one as: Authorization: Bearer tp_admin_…. To create one on the server, run: turnpike admin-keys create")
}
