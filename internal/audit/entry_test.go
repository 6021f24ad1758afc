package audit

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

func TestSettledEntryIsReplacedOnlyByAMoreAccurateOne(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		store := func(e Entry) *Entry {
			t.Helper()
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := insertRequests.Write(t.Context(), tx, [][]any{e.appendRow(nil, "node_x")})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}}, e.RequestID)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		intent := Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}, CreatedAt: time.Now()}
		settled := intent
		settled.Settled, settled.Status = true, 200
		if got := store(settled); got.Status != 200 {
			t.Fatalf("stored as %+v", got)
		}
		if got := store(intent); !got.Settled || got.Status != 200 {
			t.Errorf("an intent that came late changed a settled entry: %+v", got)
		}
		refused := settled
		refused.Status, refused.ErrorCode = 503, "storage_unavailable"
		if got := store(refused); got.Status != 503 {
			t.Errorf("a call that was refused after all is logged as %d", got.Status)
		}
		// The commit of the refused call was in doubt, and has created a job after all.
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := Amend(t.Context(), tx, intent.RequestID, func(e *Entry) { e.Model, e.Credits = "m", 7 })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := store(refused); got.Status != 503 || got.Model != "m" || got.Credits != 7 {
			t.Errorf("a refusal that was written twice changed the entry of a job: %+v", got)
		}
	})
}

// TestRecordCanBeQueuedTwice covers an outage: a request is settled and then
// refused while its first write is pending.
func TestRecordCanBeQueuedTwice(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		r := l.Open(Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}, CreatedAt: time.Now(), Settled: true, Status: 503})
		err := d.Write(t.Context(), func(tx *db.Tx) error { return l.writeOnce(t.Context(), tx, []*Record{r, r}) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}}, r.entry.RequestID); err != nil {
			t.Error(err)
		}
	})
}
