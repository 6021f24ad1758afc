package webhooks

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// TestReplayWithNewIDsEndsAfterClockWasSetBack: its new deliveries seem older than
// the replay, and it must not replay them.
func TestReplayWithNewIDsEndsAfterClockWasSetBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		arrived := func() {
			write(t, d, func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "UPDATE deliveries SET status = 'succeeded', due_at = NULL, finished_at = $1", b.Now().UnixMicro())
				return err
			})
		}
		const total = 5
		b.arrive(total)
		arrived()
		vis := visibility.Filter{Tenant: b.endpoint.Tenant}
		p := &Replay{EndpointID: b.endpoint.ID, Mode: ReplayAll, NewIDs: true, Since: b.Now().Add(-time.Hour)}
		if err := b.PlanReplay(t.Context(), vis, p); err != nil {
			t.Fatal(err)
		}
		write(t, d, func(tx *db.Tx) error {
			if err := b.StartReplay(t.Context(), tx, system, vis, p); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "UPDATE replays SET id = $2 WHERE id = $1", p.ID, ids.Floor(ids.Replay, time.Now().Add(time.Hour)))
			return err
		})
		for range 2 * total {
			if _, err := b.feedReplay(t.Context(), b.endpoint, 2); err != nil {
				t.Fatal(err)
			}
			arrived()
		}
		found, err := b.ListReplays(t.Context(), d, vis, b.endpoint.ID, db.Page{Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		if p := found.Rows[0]; p.State != ReplayCompleted || p.Done != total {
			t.Errorf("it is %s with %d of %d", p.State, p.Done, p.Total)
		}
		var have int64
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM deliveries WHERE endpoint_id = $1", b.endpoint.ID).Scan(&have); err != nil || have != 2*total {
			t.Errorf("there are %d deliveries (%v)", have, err)
		}
	})
}

func TestAttemptsStayOrderedAfterClockWasSetBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		delivery := b.arrive(1)[0]
		statuses := []int64{500, 501, 502}
		write(t, d, func(tx *db.Tx) error {
			var rows [][]any
			for i, status := range statuses {
				at := time.Now().Add(-time.Duration(i) * time.Hour)
				rows = append(rows, (&Attempt{ID: ids.Floor(ids.Attempt, at), DeliveryID: delivery, Number: int64(i + 1), StartedAt: at, Status: status, RequestHeaders: []byte("{}"), ResponseHeaders: []byte("{}")}).row())
			}
			_, err := insertAttempts.Write(t.Context(), tx, rows)
			return err
		})
		list, err := b.ListAttempts(t.Context(), d, delivery)
		if err != nil || len(list) != len(statuses) {
			t.Fatalf("%d attempts (%v)", len(list), err)
		}
		for i, a := range list {
			if a.Status != statuses[i] || a.Number != int64(i+1) {
				t.Errorf("attempt %d is %d, with %d", i+1, a.Number, a.Status)
			}
		}
	})
}
