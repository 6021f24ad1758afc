package access

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/db"
)

// IsKeyActive reports whether a key is neither revoked nor expired, so that work it started may continue.
func IsKeyActive(ctx context.Context, q db.Querier, keyID string, now time.Time) (bool, error) {
	p, err := PrincipalOf(ctx, q, keyID, now)
	return p != nil, err
}

// PrincipalOf returns the principal of a key for work that it started, or nil if the key is revoked or
// expired.
func PrincipalOf(ctx context.Context, q db.Querier, keyID string, now time.Time) (*Principal, error) {
	var k Key
	err := scanKeyColumns(q.QueryRow(ctx, "SELECT "+keyColumns+`, s.last_four
		FROM keys k JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL WHERE k.id = $1`, keyID), &k, &k.LastFour)
	if errors.Is(err, db.ErrNotFound) || err == nil && k.RevokedAt != nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, ends, err := k.principal(ctx, q)
	if err != nil || ends != nil && !now.Before(*ends) {
		return nil, err
	}
	return &p, nil
}
