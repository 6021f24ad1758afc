package spend

import (
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestSumsSaturate checks that no number made up by clients makes a sum fail or
// wrap below zero, and that budgets still refuse.
func TestSumsSaturate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, credits.Max)
		many := make([]audit.Settlement, 20)
		for i := range many {
			e := o.entry(nil, credits.Max)
			tokens := int64(1) << 62
			e.InputTokens, e.OutputTokens = &tokens, &tokens
			many[i].Entry = e
		}
		for range 3 {
			o.settleEntries(many...)
			o.settleEntries(many[0])
		}
		if b := o.balance(); b.Spent != credits.Max {
			t.Errorf("%s are spent", b.Spent)
		}
		if u := o.used("live"); u.Requests != 63 || u.Credits != credits.Max || u.OutputTokens != int64(credits.Max) {
			t.Errorf("usage is %+v", u)
		}
		if _, err := ReadBilling(t.Context(), d, o.workspace.ID, o.now); err != nil {
			t.Error(err)
		}
		if _, err := o.cache.Reserve(t.Context(), []Cap{{o.account(), o.workspace.MonthlyCredits}}, 1, o.now); err == nil || Transient(err) {
			t.Errorf("more can be spent: %v", err)
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 0), Previous: many[0].Entry}) // corrects one of them
		if b := o.balance(); b.Spent != 0 {
			t.Errorf("%s are spent after the correction", b.Spent)
		}
	})
}

// TestRecoveredChargePublishesTheAlert checks that recovered charges publish
// the alert like any other.
func TestRecoveredChargePublishesTheAlert(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		e := o.entry(nil, 79*credits.Credit)
		e.UsageSource = audit.UsageRecovered
		o.settleEntries(audit.Settlement{Entry: e})
		if o.alerts() != 0 {
			t.Error("an alert with 21 % left")
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 2*credits.Credit)})
		if o.alerts() != 1 {
			t.Error("no alert with 19 % left")
		}
	})
}

// TestAlertUsesTheStoredLimitNotTheCachedOne covers a node whose cached limit
// is outdated.
func TestAlertUsesTheStoredLimitNotTheCachedOne(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, credits.Credit)})
		remembered := *o.workspace
		more := 1000 * credits.Credit
		o.workspace.MonthlyCredits = &more
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return SetBilling(t.Context(), tx, o.workspace, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		o.settler.mu.Lock()
		o.settler.known[o.workspace.ID] = &remembered // like a node that missed the change
		o.settler.mu.Unlock()
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 90*credits.Credit)})
		if n := o.alerts(); n != 0 {
			t.Errorf("%d alerts with 909 of 1000 left", n)
		}
	})
}

// TestSumNeverOverflows adds twelve of the largest amounts, which wrap below
// zero, and twenty, which wrap above zero again.
func TestSumNeverOverflows(t *testing.T) {
	t.Parallel()
	lines := map[accountMonth]balance{}
	most := balance{credits.Max, -credits.Max}
	for n := range 40 {
		add(lines, accountMonth{}, most)
		if got := lines[accountMonth{}]; got != most {
			t.Fatalf("%d of them are %+v", n+1, got)
		}
	}
}

// TestRefusalOfARunOrAZeroBudgetIsNotTransient covers two cases. A run's
// requests are sequential, so nothing else is reserved in its budget. A budget
// of zero refuses even free requests.
func TestRefusalOfARunOrAZeroBudgetIsNotTransient(t *testing.T) {
	t.Parallel()
	for _, r := range []Refusal{{Account: Account{Level: Run}, Limit: 5, Spent: 1}, {Account: Account{Level: Key}}} {
		if r.For(0).Transient {
			t.Errorf("it passes that %s", &r)
		}
	}
	if r := (Refusal{Account: Account{Level: Key}, Limit: 5, Spent: 1, Reserved: 4}); !r.For(4).Transient || r.For(5).Transient {
		t.Errorf("of what is reserved: %+v, %+v", r.For(4), r.For(5))
	}
}
