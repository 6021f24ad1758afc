package webhooks

import (
	"context"
	"slices"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// keep runs the purges.
func (b *fixture) keep() {
	b.t.Helper()
	before, err := b.DropBefore(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range []db.Partitioned{Attempts, Deliveries} {
		if err := p.Drop(b.t.Context(), b.DB, before); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, p := range b.Purges() {
		write(b.t, b.DB, func(tx *db.Tx) error {
			_, err := p.Run(b.t.Context(), tx, 1000)
			return err
		})
	}
}

// TestUnfinishedDeliveriesExpireVisibly: a server that was off for months discards its
// late deliveries, and shows them as long as expired held ones.
func TestUnfinishedDeliveriesExpireVisibly(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		for _, p := range []db.Partitioned{Attempts, Deliveries} {
			if err := p.Prepare(t.Context(), d, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		done, pending, retrying := b.arrive(2), b.arrive(2), b.arrive(2)
		write(t, d, func(tx *db.Tx) error {
			for _, id := range done {
				if _, err := tx.Exec(t.Context(), "UPDATE deliveries SET status = 'succeeded', due_at = NULL, finished_at = $2 WHERE id = $1", id, b.Now().UnixMicro()); err != nil {
					return err
				}
			}
			for _, id := range retrying {
				if _, err := tx.Exec(t.Context(), "UPDATE deliveries SET status = 'retrying', due_at = $2 WHERE id = $1", id, b.Now().Add(time.Hour).UnixMicro()); err != nil {
					return err
				}
			}
			return nil
		})
		other := newFixture(t, d)
		other.pause()
		held := other.arrive(2)
		turn := func(to time.Duration) {
			at := func() time.Time { return time.Now().Add(to) }
			b.Now, other.Now = at, at
		}

		turn(36 * day)
		b.keep()
		b.are("before their time", slices.Concat(done, pending, retrying), map[State]int{Succeeded: 2, Pending: 2, Retrying: 2})
		other.are("after its time", held, map[State]int{Discarded: 2})

		turn(100 * day)
		b.keep()
		b.are("after their time", slices.Concat(pending, retrying), map[State]int{Discarded: 4})
		b.are("after their time", done, map[State]int{})
		other.are("after its time", held, map[State]int{})
		found, err := scanDelivery(d.QueryRow(t.Context(), "SELECT "+deliveryColumns+" FROM deliveries WHERE id = $1", pending[0]))
		if err != nil || found.Reason != DiscardedExpired || found.FinishedAt == nil || found.DueAt != nil {
			t.Errorf("late delivery: got %+v (%v)", found, err)
		}

		turn(107*day - time.Minute)
		b.keep()
		b.are("within the week", slices.Concat(pending, retrying), map[State]int{Discarded: 4})
		turn(107*day + time.Minute)
		b.keep()
		b.are("in the end", slices.Concat(pending, retrying), map[State]int{})
	})
}

// TestResumedDeliveriesDoNotExpire at the same time.
func TestResumedDeliveriesDoNotExpire(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		b.pause()
		held := b.arrive(1)
		b.Now = func() time.Time { return time.Now().Add(heldLife + time.Hour) }
		expired := make(chan error, 1)
		b.change(func(tx *db.Tx, e *Endpoint) error {
			if err := b.Resume(t.Context(), tx, system, e, false); err != nil {
				return err
			}
			go func() {
				expired <- d.Write(context.WithoutCancel(t.Context()), func(tx *db.Tx) error {
					_, err := b.expireHeld(context.WithoutCancel(t.Context()), tx, 1000)
					return err
				})
			}()
			dbtest.AwaitBlocked(t, d, tx)
			return nil
		})
		if err := <-expired; err != nil {
			t.Fatal(err)
		}
		b.are("resumed", held, map[State]int{Pending: 1})
	})
}
