package audit

import (
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/visibility"
)

// TestSettledReturnsWhenTheCostIsFinal checks that the entry is on disk: a
// crash can then no longer charge the reservation instead.
func TestSettledReturnsWhenTheCostIsFinal(t *testing.T) {
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
			e, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}}, r.entry.RequestID)
			if err != nil || !e.Settled || e.Credits != 4*credits.Credit {
				t.Fatalf("it is %+v in the log, %v", e, err)
			}
		}
	})
}
