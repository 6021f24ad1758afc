package access

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/db"
)

// KeyLives reports whether a key is neither revoked nor expired: work that it
// began goes on only then.
func KeyLives(ctx context.Context, q db.Querier, keyID string, now time.Time) (bool, error) {
	var revoked, expires *int64
	err := q.QueryRow(ctx, "SELECT revoked_at, expires_at FROM keys WHERE id = $1", keyID).Scan(&revoked, &expires)
	if errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	return err == nil && revoked == nil && (expires == nil || now.UnixMicro() < *expires), err
}

// PrincipalOf is who a key is, for work that it began, or nil when it is no
// longer good.
func PrincipalOf(ctx context.Context, q db.Querier, keyID string, now time.Time) (*Principal, error) {
	var k Key
	err := scanKeyColumns(q.QueryRow(ctx, "SELECT "+keyColumns+`, s.last_four
		FROM keys k JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL WHERE k.id = $1`, keyID), &k, &k.LastFour)
	if errors.Is(err, db.ErrNotFound) || err == nil && (k.RevokedAt != nil || k.ExpiresAt != nil && !now.Before(*k.ExpiresAt)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := k.principal()
	return &p, err
}
