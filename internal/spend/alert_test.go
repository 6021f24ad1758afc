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

// TestRearmedAlertFires also covers an alert that is rearmed while the previous
// one is being written.
func TestRearmedAlertFires(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		more := 1000 * credits.Credit
		o.write(func(ctx context.Context, tx *db.Tx) error {
			tx.OnCommit(func() { // waiters of this commit may run before this handler
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

// TestNoLowCreditAlertForPastMonth checks that charges for a past month publish
// no alert. No one can act on it, and the limit may have changed.
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
