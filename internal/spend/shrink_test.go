package spend

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// hookedSource runs a function before each shrink.
type hookedSource struct {
	leaseSource
	before func()
}

func (s hookedSource) shrink(ctx context.Context, key accountMonth, amount credits.Micro) error {
	s.before()
	return s.leaseSource.shrink(ctx, key, amount)
}

// TestChargeDuringAShrinkLeavesNothingReserved covers a request that ends after
// its node decided how much to keep and before the ledger changed.
func TestChargeDuringAShrinkLeavesNothingReserved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for name, knows := range map[string]bool{"the node knows": true, "the node learns of it afterwards": false} {
			t.Run(name, func(t *testing.T) {
				ledger := NewLedger(d)
				g := ledger.LeaseCache(join(t, d))
				limit, now := 1000*credits.Credit, time.Now()
				account := Account{Key, name}
				caps := []Cap{{account, &limit}}
				r, err := g.Reserve(t.Context(), caps, 10*credits.Credit, now)
				if err != nil {
					t.Fatal(err)
				}
				g.source = hookedSource{g.source, func() {
					if r == nil {
						return
					}
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						return ledger.Settle(t.Context(), tx, []charge{r.charge(r.Amount)})
					})
					if err != nil {
						t.Error(err)
					}
					if knows {
						r.Settled(r.Amount)
						r = nil
					}
				}}
				if err := g.ReleaseUnused(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				if !knows {
					done := r
					r = nil
					done.Settled(done.Amount)
				}
				// The next request can reserve everything that is left.
				next, err := g.Reserve(t.Context(), caps, 990*credits.Credit, now)
				if err != nil {
					t.Fatal(err)
				}
				next.Release()
				if err := g.ReleaseUnused(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				if b, err := ReadBalance(t.Context(), d, account, PeriodOf(now)); err != nil || b.Spent != 10*credits.Credit || b.Reserved != 0 {
					t.Errorf("got %+v (%v), want 10 spent and nothing reserved", b, err)
				}
			})
		}
	})
}
