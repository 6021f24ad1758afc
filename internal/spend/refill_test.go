package spend

import (
	"errors"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestNextChunkIsAcquiredBeforeItIsNeeded checks that no request waits for the
// ledger once there is a lease, as long as credits are left.
func TestNextChunkIsAcquiredBeforeItIsNeeded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ledger := NewLedger(d)
		g := ledger.LeaseCache(join(t, d))
		refills := 0
		g.background = func(f func()) { refills++; f() }
		limit, now := 1000*credits.Credit, time.Now()
		caps := []Cap{{Account{Key, "key_1"}, &limit}}
		for n := range 1000 {
			before := refills
			if _, err := g.Reserve(t.Context(), caps, credits.Credit, now); err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			g.mu.Lock()
			le := g.leases[accountMonth{caps[0].Account, PeriodOf(now)}]
			free := le.granted - le.reserved
			g.mu.Unlock()
			b, err := ReadBalance(t.Context(), d, caps[0].Account, PeriodOf(now))
			if err != nil {
				t.Fatal(err)
			}
			if b.Reserved > limit {
				t.Fatalf("call %d: %s are leased of %s", n, b.Reserved, limit)
			}
			// The last chunks hold one request each.
			if free == 0 && b.Reserved < limit-16*credits.Credit && refills == before {
				t.Errorf("call %d has used up the lease, and the next would wait", n)
			}
		}
		if refills < 10 {
			t.Errorf("%d chunks were taken ahead", refills)
		}
		var refusal *Refusal
		if _, err := g.Reserve(t.Context(), caps, credits.Credit, now); !errors.As(err, &refusal) {
			t.Errorf("one too many: %v", err)
		}
	})
}
