package spend

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// hurried is a bank where something happens before each lease is lowered.
type hurried struct {
	bank
	first func()
}

func (b hurried) keep(ctx context.Context, l line, amount credits.Micro) error {
	b.first()
	return b.bank.keep(ctx, l, amount)
}

// TestWhatIsSettledWhileALeaseIsLoweredIsNotLost: a call ends between the
// moment in which its node decides how much to keep and the one in which the
// store hears of it. Whatever the store thinks then, nothing stays set aside.
func TestWhatIsSettledWhileALeaseIsLoweredIsNotLost(t *testing.T) {
	t.Parallel()
	for name, knows := range map[string]bool{"and the node knows it": true, "and the node hears of it afterwards": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				books := NewBooks(d)
				g := books.Ledger(join(t, d))
				limit, now := 1000*credits.Credit, time.Now()
				account := Account{Key, "key_1"}
				caps := []Cap{{account, &limit}}
				r, err := g.Reserve(t.Context(), caps, 10*credits.Credit, now)
				if err != nil {
					t.Fatal(err)
				}
				g.bank = hurried{g.bank, func() {
					if r == nil {
						return
					}
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						return books.Settle(t.Context(), tx, []charge{r.charge(r.Amount)})
					})
					if err != nil {
						t.Error(err)
					}
					if knows {
						r.Settled(r.Amount)
						r = nil
					}
				}}
				if err := g.Recalled(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				if !knows {
					done := r
					r = nil
					done.Settled(done.Amount)
				}
				// All that is left is there for the next call at once.
				next, err := g.Reserve(t.Context(), caps, 990*credits.Credit, now)
				if err != nil {
					t.Fatal(err)
				}
				next.Release()
				if err := g.Recalled(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				if b, err := Read(t.Context(), d, account, PeriodOf(now)); err != nil || b.Spent != 10*credits.Credit || b.Reserved != 0 {
					t.Errorf("%s are spent and %s set aside at rest (%v)", b.Spent, b.Reserved, err)
				}
			})
		})
	}
}
