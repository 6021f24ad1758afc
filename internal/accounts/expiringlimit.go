package accounts

import (
	"context"
	"fmt"
	"time"

	"turnpike/internal/db"
)

// ExpiringLimit limits how many unexpired records may exist. One row counts
// them, exactly on any number of nodes and at a cost independent of their
// number. Transactions that add to the same row wait for each other, so add as
// late as possible.
type ExpiringLimit struct {
	ID  string // such as scoped_tokens/ws_…/live
	Max int64  // 0 for no limit: nothing is counted
	// Granularity rounds expiry times up: a record counts until the next multiple.
	Granularity time.Duration
}

// LimitReachedError is returned when a limit is reached.
type LimitReachedError struct {
	Max   int64
	Until time.Time // when the next record expires
}

func (e *LimitReachedError) Error() string {
	return fmt.Sprintf("the limit of %d is reached until %s", e.Max, e.Until.Format(time.RFC3339))
}

// Add counts a record, or returns a *LimitReachedError.
func (l ExpiringLimit) Add(ctx context.Context, tx *db.Tx, expires, now time.Time) error {
	if l.Max <= 0 {
		return nil
	}
	until := l.roundUp(expires)
	counts, err := db.Value[map[int64]int64](tx.QueryRow(ctx, `INSERT INTO expiring_counts (id, counts, ends_at) VALUES ($1, '{}', $2)
		ON CONFLICT (id) DO UPDATE SET ends_at = CASE WHEN excluded.ends_at > expiring_counts.ends_at THEN excluded.ends_at ELSE expiring_counts.ends_at END
		RETURNING counts`, l.ID, until))
	if err != nil {
		return fmt.Errorf("count %s: %w", l.ID, err)
	}
	total, next := dropExpired(counts, now)
	if total >= l.Max {
		return &LimitReachedError{Max: l.Max, Until: time.UnixMicro(next)}
	}
	counts[until]++
	return l.store(ctx, tx, counts)
}

// Remove stops counting a record that was deleted before it expired.
func (l ExpiringLimit) Remove(ctx context.Context, tx *db.Tx, expires, now time.Time) error {
	if l.Max <= 0 {
		return nil
	}
	counts, err := db.Value[map[int64]int64](tx.QueryRow(ctx, "SELECT counts FROM expiring_counts WHERE id = $1"+tx.Lock("expiring_counts"), l.ID))
	if err != nil {
		return db.Wrap(db.IgnoreNotFound(err), "count "+l.ID)
	}
	dropExpired(counts, now)
	until := l.roundUp(expires)
	if counts[until] == 0 { // it was created before there was a limit
		return nil
	}
	counts[until]--
	return l.store(ctx, tx, counts)
}

// roundUp returns when a record stops counting, in Unix microseconds.
func (l ExpiringLimit) roundUp(t time.Time) int64 {
	g := l.Granularity.Microseconds()
	return (t.UnixMicro() + g - 1) / g * g
}

// dropExpired deletes expired counts. It returns the sum of the others, and when the next expires.
func dropExpired(counts map[int64]int64, now time.Time) (total, next int64) {
	for until, n := range counts {
		if until <= now.UnixMicro() || n == 0 {
			delete(counts, until)
			continue
		}
		total += n
		if next == 0 || until < next {
			next = until
		}
	}
	return total, next
}

func (l ExpiringLimit) store(ctx context.Context, tx *db.Tx, counts map[int64]int64) error {
	_, err := tx.Exec(ctx, "UPDATE expiring_counts SET counts = $2 WHERE id = $1", l.ID, db.JSON(counts))
	return db.Wrap(err, "count "+l.ID)
}

// PurgeCounts deletes at most limit counts whose records have all expired.
func PurgeCounts(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, "WITH expired AS (SELECT id FROM expiring_counts WHERE ends_at <= $1 LIMIT $2"+tx.Claim("expiring_counts")+`)
		DELETE FROM expiring_counts WHERE id IN (SELECT id FROM expired)`, now.UnixMicro(), limit)
}
