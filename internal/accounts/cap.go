package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/db"
)

// Cap bounds how many things that end by themselves may exist at once. It
// counts them in one row, exactly on any number of nodes: who adds to the same
// row waits for the transaction before, so add as late as possible in yours.
// Its cost doesn't depend on how many there are.
type Cap struct {
	ID  string // what is counted and whose, such as scoped_tokens/ws_…/live
	Max int64  // 0 is no cap: nothing is counted
	// Slice is how exactly ends are counted: a thing counts until the end of the
	// slice of time in which it ends.
	Slice time.Duration
}

// CapReached is the error of a cap that has no room.
type CapReached struct {
	Max   int64
	Until time.Time // when the next of them ends
}

// Error says what happened, for logs.
func (e *CapReached) Error() string {
	return fmt.Sprintf("the cap of %d is reached until %s", e.Max, e.Until.Format(time.RFC3339))
}

// Add counts one more thing, which ends at a time, or returns a *CapReached.
func (c Cap) Add(ctx context.Context, tx *db.Tx, ends, now time.Time) error {
	if c.Max <= 0 {
		return nil
	}
	until := c.sliceEnd(ends)
	var text string
	err := tx.QueryRow(ctx, `INSERT INTO expiring_counts (id, counts, ends_at) VALUES ($1, '{}', $2)
		ON CONFLICT (id) DO UPDATE SET ends_at = CASE WHEN excluded.ends_at > expiring_counts.ends_at THEN excluded.ends_at ELSE expiring_counts.ends_at END
		RETURNING counts`, c.ID, until).Scan(&text)
	if err != nil {
		return fmt.Errorf("count %s: %w", c.ID, err)
	}
	counts, total, next, err := currentCounts(text, now)
	if err != nil {
		return fmt.Errorf("count %s: %w", c.ID, err)
	}
	if total >= c.Max {
		return &CapReached{Max: c.Max, Until: time.UnixMicro(next)}
	}
	counts[until]++
	return c.store(ctx, tx, counts)
}

// Remove stops counting a thing that ended before its time.
func (c Cap) Remove(ctx context.Context, tx *db.Tx, ends, now time.Time) error {
	if c.Max <= 0 {
		return nil
	}
	var text string
	err := tx.QueryRow(ctx, "SELECT counts FROM expiring_counts WHERE id = $1"+tx.Lock("expiring_counts"), c.ID).Scan(&text)
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("count %s: %w", c.ID, err)
	}
	counts, _, _, err := currentCounts(text, now)
	if err != nil {
		return fmt.Errorf("count %s: %w", c.ID, err)
	}
	until := c.sliceEnd(ends)
	if counts[until] == 0 { // it was there before there was a cap
		return nil
	}
	counts[until]--
	return c.store(ctx, tx, counts)
}

// sliceEnd is the end of the slice that a time is in, in microseconds.
func (c Cap) sliceEnd(t time.Time) int64 {
	slice := c.Slice.Microseconds()
	return (t.UnixMicro() + slice - 1) / slice * slice
}

// currentCounts reads stored counts without those that have ended.
func currentCounts(text string, now time.Time) (counts map[int64]int64, total, next int64, err error) {
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		return nil, 0, 0, err
	}
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
	return counts, total, next, nil
}

func (c Cap) store(ctx context.Context, tx *db.Tx, counts map[int64]int64) error {
	text, err := json.Marshal(counts)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE expiring_counts SET counts = $2 WHERE id = $1", c.ID, string(text)); err != nil {
		return fmt.Errorf("count %s: %w", c.ID, err)
	}
	return nil
}

// PurgeCounts deletes at most limit counts of things that have all ended.
func PurgeCounts(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM expiring_counts WHERE id IN
		(SELECT id FROM expiring_counts WHERE ends_at <= $1 LIMIT $2`+tx.Claim("expiring_counts")+")", now.UnixMicro(), limit)
}
