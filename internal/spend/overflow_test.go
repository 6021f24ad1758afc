package spend

import (
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestSumsSaturate: whatever callers make up, a sum neither
// fails nor starts anew below zero, and still refuses.
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
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 0), Previous: many[0].Entry}) // one is corrected
		if b := o.balance(); b.Spent != 0 {
			t.Errorf("%s are spent after the correction", b.Spent)
		}
	})
}

// TestRecoveredChargePublishesTheAlert, as any other does.
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

// TestAlertUsesTheStoredLimitNotTheCachedOne, and not by one that is remembered.
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
		o.settler.known[o.workspace.ID] = &remembered // as on a node that has not heard yet
		o.settler.mu.Unlock()
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 90*credits.Credit)})
		if n := o.alerts(); n != 0 {
			t.Errorf("%d alerts with 909 of 1000 left", n)
		}
	})
}

// TestSumNeverOverflows: twenty of the largest happen to come out
// above zero again, and twelve do not.
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

// TestRefusalOfARunOrAZeroBudgetIsNotTransient: a run's calls are made one by one, so that nothing
// is reserved of its budget, and a budget of nothing refuses also what is free.
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
