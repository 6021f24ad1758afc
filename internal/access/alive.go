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
