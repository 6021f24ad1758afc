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

// many is more than one batch holds or discards, so that an order is not done
// when the next one comes.
const many = 2*tidyBatch + 10

// switchboard is an endpoint whose lane nobody works but the test.
type switchboard struct {
	*Service
	t        *testing.T
	endpoint *Endpoint
}

func newSwitchboard(t *testing.T, d *db.DB) *switchboard {
	t.Helper()
	b := &switchboard{Service: newService(t, d), t: t}
	w := &accounts.Workspace{Name: ids.New("w ")}
	write(t, d, func(tx *db.Tx) error {
		if err := accounts.CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
			return err
		}
		b.endpoint = &Endpoint{WorkspaceID: w.ID, Environment: accounts.Test, URL: "https://example.com/", Events: []string{"*"}}
		_, err := b.Create(t.Context(), tx, system, b.endpoint)
		return err
	})
	return b
}

// change does something to the endpoint as it is.
func (b *switchboard) change(do func(tx *db.Tx, e *Endpoint) error) {
	b.t.Helper()
	write(b.t, b.db, func(tx *db.Tx) error {
		e, err := b.GetLocked(b.t.Context(), tx, visibility.Filter{WorkspaceID: b.endpoint.WorkspaceID, Environment: string(b.endpoint.Environment)}, b.endpoint.ID)
		if err != nil {
			return err
		}
		return do(tx, e)
	})
}

func (b *switchboard) pause() {
	b.t.Helper()
	b.change(func(tx *db.Tx, e *Endpoint) error { return b.Pause(b.t.Context(), tx, system, e) })
}

func (b *switchboard) resume(discard bool) {
	b.t.Helper()
	b.change(func(tx *db.Tx, e *Endpoint) error { return b.Resume(b.t.Context(), tx, system, e, discard) })
}

// arrive makes the deliveries of n events, as the fan-out does.
func (b *switchboard) arrive(n int) (made []string) {
	b.t.Helper()
	b.change(func(tx *db.Tx, e *Endpoint) error {
		made = nil
		var rows [][]any
		for range n {
			d := newDelivery(e, ids.New(ids.Event), events.BillingCreditsLow, time.Now(), time.Now())
			made, rows = append(made, d.ID), append(rows, d.row())
		}
		_, err := insertDeliveries.Write(b.t.Context(), tx, rows)
		return err
	})
	return made
}

// tidyAll does what is left for the lane.
func (b *switchboard) tidyAll() {
	b.t.Helper()
	for more := true; more; {
		var err error
		if more, err = b.tidyNow(b.t.Context(), b.endpoint.ID); err != nil {
			b.t.Fatal(err)
		}
	}
}

// are counts deliveries by their states.
func (b *switchboard) are(when string, list []string, want map[State]int) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), "SELECT "+deliveryColumns+" FROM deliveries WHERE endpoint_id = $1 ORDER BY id", b.endpoint.ID)
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

// TestWhatWasToBeDiscardedIsNotDelivered: an order that takes a while is carried
// out, whatever is ordered next, and concerns nothing that came after it.
func TestWhatWasToBeDiscardedIsNotDelivered(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newSwitchboard(t, d)
		b.pause()
		old := b.arrive(many)
		b.are("at a paused endpoint", old, map[State]int{Held: many})
		b.resume(true)
		waiting := b.arrive(3)
		b.are("after the first batch", old, map[State]int{Held: many - tidyBatch, Discarded: tidyBatch})

		b.pause()
		waiting = append(waiting, b.arrive(3)...)
		b.tidyAll()
		b.are("when it is done", old, map[State]int{Discarded: many})
		b.are("paused again", waiting, map[State]int{Held: 6})

		b.resume(false)
		b.are("resumed", waiting, map[State]int{Pending: 6})
		b.are("resumed", old, map[State]int{Discarded: many})
	})
}

func TestWhatWasToBeDiscardedIsNotDeliveredByAQuickResume(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newSwitchboard(t, d)
		b.pause()
		old := b.arrive(many)
		b.resume(true)
		b.pause()
		waiting := b.arrive(3)
		b.resume(false)
		b.tidyAll()
		b.are("resumed at once", old, map[State]int{Discarded: many})
		b.are("resumed at once", waiting, map[State]int{Pending: 3})
	})
}

// TestDiscardIsOfAllThatWaits: also of what the pause had no time to hold.
func TestDiscardIsOfAllThatWaits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newSwitchboard(t, d)
		waiting := b.arrive(many)
		b.pause()
		b.are("after the first batch", waiting, map[State]int{Held: tidyBatch, Pending: many - tidyBatch})
		b.resume(true)
		later := b.arrive(3)
		b.tidyAll()
		b.are("resumed at once", waiting, map[State]int{Discarded: many})
		b.are("resumed at once", later, map[State]int{Pending: 3})

		b.pause()
		later = append(later, b.arrive(many)...)
		b.resume(true)
		b.pause()
		later = append(later, b.arrive(3)...)
		b.resume(true)
		b.tidyAll()
		b.are("discarded twice", later, map[State]int{Discarded: many + 6})
	})
}
