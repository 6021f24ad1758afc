package operators

import (
	"context"
	"errors"
	"fmt"

	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// KnowsSecret reports whether a credential with the value is stored. It doesn't write or lock.
func (s Credentials) KnowsSecret(ctx context.Context, q db.Querier, value string) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM admin_credentials WHERE hash = $1)", s.hash(value)))
}

// RevokeExposed revokes the credential of a leaked value. It returns nil if it was revoked before.
func (s Credentials) RevokeExposed(ctx context.Context, tx *db.Tx, by audit.Actor, value string) (*Credential, error) {
	now := s.Now()
	c, err := scanCredential(tx.QueryRow(ctx, "UPDATE admin_credentials SET revoked_at = $2 WHERE hash = $1 AND revoked_at IS NULL RETURNING "+credentialColumns, s.hash(value), now.UnixMicro()))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("revoke leaked admin credential: %w", err)
	}
	return c, log(ctx, tx, by, entry{"admin_credential.revoked", c.ID, map[string]any{"name": c.Name}, now})
}
