package spend

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestAnAlertThatWasArmedAgainFires, also when that was done at the moment at
// which the one before was written.
func TestAnAlertThatWasArmedAgainFires(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		more := 1000 * credits.Credit
		o.write(func(ctx context.Context, tx *db.Tx) error {
			tx.OnCommit(func() { // whoever waits for this commit may be quicker than we
				o.workspace.MonthlyCredits = &more
				o.write(func(ctx context.Context, tx *db.Tx) error { return SetBilling(ctx, tx, o.workspace, time.Now()) })
			})
			return o.settler.Settle(ctx, tx, []audit.Settlement{{Entry: o.entry(nil, 90*credits.Credit)}})
		})
		if n := o.alerts(); n != 1 {
			t.Fatalf("%d alerts before the limit was raised", n)
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 900*credits.Credit)})
		if n := o.alerts(); n != 2 {
			t.Errorf("%d alerts with 10 of 1000 left", n)
		}
	})
}

// TestNoLowCreditAlertForPastMonth: nobody can do anything about it, and its limit
// may have been another.
func TestNoLowCreditAlertForPastMonth(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		for _, ago := range []int{1, 12, -1} {
			e := o.entry(nil, 90*credits.Credit)
			e.CreatedAt = time.Date(o.now.Year(), o.now.Month()-time.Month(ago), 15, 0, 0, 0, 0, time.UTC)
			o.settleEntries(audit.Settlement{Entry: e})
			if n := o.alerts(); n != 0 {
				t.Fatalf("%d alerts of %s", n, PeriodOf(e.CreatedAt))
			}
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 90*credits.Credit)})
		if n := o.alerts(); n != 1 {
			t.Errorf("%d alerts of this month", n)
		}
	})
}
