package people

import (
	"context"
	"time"

	"turnpike/internal/db"
)

// invitationRetention is how long expired invitations are listed.
const invitationRetention = 30 * 24 * time.Hour

// Purge deletes at most limit expired rows and returns how many it deleted.
func (p *People) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	now := p.now()
	seen, created := sessionCutoffs(now)
	var total int64
	for _, t := range []struct {
		table, key, expires string
		before              int64
	}{
		{"sessions", "id", "seen_at", seen},
		{"sessions", "id", "created_at", created},
		{"half_logins", "token_hash", "expires_at", now.UnixMicro()},
		{"ceremonies", "token_hash", "expires_at", now.UnixMicro()},
		{"one_time_links", "token_hash", "expires_at", now.UnixMicro()},
		{"login_failures", "subject", "blocked_until", now.Add(-failureWindow).UnixMicro()},
		{"sign_in_sources", "hash", "seen_at", now.Add(-DeviceLifetime).UnixMicro()},
		{"invitations", "id", "expires_at", now.Add(-invitationRetention).UnixMicro()},
	} {
		query := "DELETE FROM " + t.table + " WHERE " + t.key + " IN (SELECT " + t.key + " FROM " + t.table + " WHERE " + t.expires + " <= $1"
		if t.table == "login_failures" {
			query += " AND first_at <= $1" // blocked_until is 0 below the free attempts
		}
		n, err := tx.Exec(ctx, query+" ORDER BY "+t.expires+" LIMIT $2)", t.before, limit-total)
		if total += n; err != nil || total == limit {
			return total, err
		}
	}
	return total, nil
}
