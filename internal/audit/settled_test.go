package audit

import (
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/visibility"
)

// TestSettledIsOnTheDisk: who counts what a call has cost may do so when it can
// no longer become what was reserved.
func TestSettledIsOnTheDisk(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		for range 20 {
			r := l.Open(live(&hold{}))
			if err := r.Durable(5 * time.Second); err != nil {
				t.Fatal(err)
			}
			r.Settle(costing(4 * credits.Credit))
			if err := r.Settled(5 * time.Second); err != nil {
				t.Fatal(err)
			}
			e, err := Get(t.Context(), d, visibility.Filter{WorkspaceID: "ws", Environment: "live"}, r.entry.RequestID)
			if err != nil || !e.Settled || e.Credits != 4*credits.Credit {
				t.Fatalf("it is %+v in the log, %v", e, err)
			}
		}
	})
}
