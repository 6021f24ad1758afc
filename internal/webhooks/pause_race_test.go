package webhooks

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestDeliveredDuringPauseStaysSucceeded: holding or discarding deliveries waits for
// an attempt that is being recorded, and then re-reads them.
func TestDeliveredDuringPauseStaysSucceeded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			return // it has one writer
		}
		for name, change := range map[string]func(b *fixture, tx *db.Tx) error{
			"held":     func(b *fixture, tx *db.Tx) error { _, err := b.hold(t.Context(), tx, b.endpoint); return err },
			"given up": func(b *fixture, tx *db.Tx) error { _, err := b.expireLate(t.Context(), tx, 10); return err },
		} {
			b := newFixture(t, d)
			list := b.arrive(1)
			b.Now = func() time.Time { return time.Now().Add(2 * keepRows) }
			ended := make(chan error, 1)
			write(t, d, func(tx *db.Tx) error {
				if _, err := tx.Exec(t.Context(), "UPDATE deliveries SET status = 'succeeded', due_at = NULL WHERE id = $1", list[0]); err != nil {
					return err
				}
				var holder int
				if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&holder); err != nil {
					return err
				}
				go func() {
					ended <- d.Write(t.Context(), func(tx *db.Tx) error { return change(b, tx) })
				}()
				for waits, until := 0, time.Now().Add(time.Minute); waits == 0; {
					if err := d.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", holder).Scan(&waits); err != nil || time.Now().After(until) {
						t.Errorf("the attempt did not finish (%v)", err)
						return err
					}
				}
				return nil
			})
			if err := <-ended; err != nil {
				t.Error(err)
			}
			b.are("what was to be "+name, list, map[State]int{Succeeded: 1})
		}
	})
}
