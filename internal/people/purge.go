package people

import (
	"context"
	"time"

	"turnpike/internal/db"
)

// keepInvitations is how long a workspace sees what became of its invitations.
const keepInvitations = 30 * 24 * time.Hour

// Purge deletes what has ended, at most limit rows, and says how many there
// were. None of it works any more when it goes.
func (p *People) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	now := p.now()
	seen, created := earliest(now)
	var total int64
	for _, done := range []struct {
		table, key, ended string
		before            int64
	}{
		{"sessions", "id", "seen_at", seen},
		{"sessions", "id", "created_at", created},
		{"half_logins", "token_hash", "expires_at", now.UnixMicro()},
		{"ceremonies", "token_hash", "expires_at", now.UnixMicro()},
		{"one_time_links", "token_hash", "expires_at", now.UnixMicro()},
		{"login_failures", "subject", "blocked_until", now.Add(-window).UnixMicro()},
		{"sign_in_sources", "hash", "seen_at", now.Add(-DeviceLifetime).UnixMicro()},
		{"invitations", "id", "expires_at", now.Add(-keepInvitations).UnixMicro()},
	} {
		query := "DELETE FROM " + done.table + " WHERE " + done.key + " IN (SELECT " + done.key + " FROM " + done.table + " WHERE " + done.ended + " <= $1"
		if done.table == "login_failures" {
			query += " AND first_at <= $1" // below its free attempts nothing is blocked
		}
		n, err := tx.Exec(ctx, query+" ORDER BY "+done.ended+" LIMIT $2)", done.before, limit-total)
		if total += n; err != nil || total == limit {
			return total, err
		}
	}
	return total, nil
}
