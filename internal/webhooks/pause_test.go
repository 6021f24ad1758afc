package webhooks

import (
	"maps"
	"slices"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// many is more than one batch, so that a change isn't complete when the next one comes.
const many = 2*statusBatch + 10

// fixture is an endpoint whose lane only the test runs.
type fixture struct {
	*Service
	t        *testing.T
	endpoint *Endpoint
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	b := &fixture{Service: newService(t, d), t: t}
	w := &accounts.Workspace{Name: ids.New("w ")}
	write(t, d, func(tx *db.Tx) error {
		if err := accounts.CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
			return err
		}
		b.endpoint = &Endpoint{Tenant: w.In(accounts.Test), URL: "https://example.com/", Events: []string{"*"}}
		_, err := b.Create(t.Context(), tx, system, b.endpoint)
		return err
	})
	return b
}

// change applies a change to the current endpoint.
func (b *fixture) change(do func(tx *db.Tx, e *Endpoint) error) {
	b.t.Helper()
	write(b.t, b.DB, func(tx *db.Tx) error {
		e, err := b.GetLocked(b.t.Context(), tx, visibility.Filter{Tenant: b.endpoint.Tenant}, b.endpoint.ID)
		if err != nil {
			return err
		}
		return do(tx, e)
	})
}

func (b *fixture) pause() {
	b.t.Helper()
	b.change(func(tx *db.Tx, e *Endpoint) error { return b.Pause(b.t.Context(), tx, system, e) })
}

func (b *fixture) resume(discard bool) {
	b.t.Helper()
	b.change(func(tx *db.Tx, e *Endpoint) error { return b.Resume(b.t.Context(), tx, system, e, discard) })
}

// arrive stores the deliveries of n events, as the fan-out does.
func (b *fixture) arrive(n int) (made []string) {
	b.t.Helper()
	b.change(func(tx *db.Tx, e *Endpoint) error {
		made = nil
		var rows [][]any
		for range n {
			d := b.newDelivery(e, ids.New(ids.Event), events.BillingCreditsLow, time.Now(), time.Now())
			made, rows = append(made, d.ID), append(rows, d.row())
		}
		_, err := insertDeliveries.Write(b.t.Context(), tx, rows)
		return err
	})
	return made
}

// runChores does what is left for the lane.
func (b *fixture) runChores() {
	b.t.Helper()
	for more := true; more; {
		var err error
		if more, err = b.applyStatusInLane(b.t.Context(), b.endpoint.ID); err != nil {
			b.t.Fatal(err)
		}
	}
}

// are counts deliveries by state.
func (b *fixture) are(when string, list []string, want map[State]int) {
	b.t.Helper()
	rows, err := b.DB.Query(b.t.Context(), "SELECT "+deliveryColumns+" FROM deliveries WHERE endpoint_id = $1 ORDER BY id", b.endpoint.ID)
	all, err := db.All(rows, err, scanDelivery)
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(list)
	got := map[State]int{}
	for _, d := range all {
		if _, ours := slices.BinarySearch(list, d.ID); ours {
			got[d.State]++
		}
	}
	if !maps.Equal(got, want) {
		b.t.Errorf("%s there are %v, expected %v", when, got, want)
	}
}

// TestDiscardedDeliveriesAreNotDelivered: a discard of several batches is completed,
// whatever happens next, and doesn't concern later deliveries.
func TestDiscardedDeliveriesAreNotDelivered(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		b.pause()
		old := b.arrive(many)
		b.are("at a paused endpoint", old, map[State]int{Held: many})
		b.resume(true)
		waiting := b.arrive(3)
		b.are("after the first batch", old, map[State]int{Held: many - statusBatch, Discarded: statusBatch})

		b.pause()
		waiting = append(waiting, b.arrive(3)...)
		b.runChores()
		b.are("when it is done", old, map[State]int{Discarded: many})
		b.are("paused again", waiting, map[State]int{Held: 6})

		b.resume(false)
		b.are("resumed", waiting, map[State]int{Pending: 6})
		b.are("resumed", old, map[State]int{Discarded: many})
	})
}

func TestPauseAndResumeDoNotUndoDiscard(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		b.pause()
		old := b.arrive(many)
		b.resume(true)
		b.pause()
		waiting := b.arrive(3)
		b.resume(false)
		b.runChores()
		b.are("resumed at once", old, map[State]int{Discarded: many})
		b.are("resumed at once", waiting, map[State]int{Pending: 3})
	})
}

// TestDiscardCoversAllHeldDeliveries, also those that the pause hasn't held yet.
func TestDiscardCoversAllHeldDeliveries(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		waiting := b.arrive(many)
		b.pause()
		b.are("after the first batch", waiting, map[State]int{Held: statusBatch, Pending: many - statusBatch})
		b.resume(true)
		later := b.arrive(3)
		b.runChores()
		b.are("resumed at once", waiting, map[State]int{Discarded: many})
		b.are("resumed at once", later, map[State]int{Pending: 3})

		b.pause()
		later = append(later, b.arrive(many)...)
		b.resume(true)
		b.pause()
		later = append(later, b.arrive(3)...)
		b.resume(true)
		b.runChores()
		b.are("discarded twice", later, map[State]int{Discarded: many + 6})
	})
}

// TestDeliveredDuringPauseStaysSucceeded: holding or discarding deliveries waits for
// an attempt that is being recorded, and then re-reads them.
func TestDeliveredDuringPauseStaysSucceeded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			return // it has one writer
		}
		for name, change := range map[string]func(b *fixture, tx *db.Tx) error{
			"held": func(b *fixture, tx *db.Tx) error {
				_, err := change{from: areDue, args: []any{b.endpoint.ID}, write: holdDeliveries}.apply(t.Context(), tx, 10)
				return err
			},
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
				go func() {
					ended <- d.Write(t.Context(), func(tx *db.Tx) error { return change(b, tx) })
				}()
				dbtest.AwaitBlocked(t, d, tx)
				return nil
			})
			if err := <-ended; err != nil {
				t.Error(err)
			}
			b.are("what was to be "+name, list, map[State]int{Succeeded: 1})
		}
	})
}
