package spend

import (
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestSumsStopAtTheLargestAmount: whatever callers make up, a sum neither
// fails nor starts anew below zero, and still refuses.
func TestSumsStopAtTheLargestAmount(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newOffice(t, d, credits.Max)
		many := make([]audit.Booking, 20)
		for i := range many {
			e := o.entry(nil, credits.Max)
			tokens := int64(1) << 62
			e.InputTokens, e.OutputTokens = &tokens, &tokens
			many[i].Entry = e
		}
		for range 3 {
			o.book(many...)
			o.book(many[0])
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
		if _, err := o.ledger.Reserve(t.Context(), []Cap{{o.account(), o.workspace.MonthlyCredits}}, 1, o.now); err == nil || Passing(err) {
			t.Errorf("more can be spent: %v", err)
		}
		o.book(audit.Booking{Entry: o.entry(nil, 0), Old: many[0].Entry}) // one is corrected
		if b := o.balance(); b.Spent != 0 {
			t.Errorf("%s are spent after the correction", b.Spent)
		}
	})
}

// TestARecoveredChargeFiresTheAlert, as any other does.
func TestARecoveredChargeFiresTheAlert(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newOffice(t, d, 100*credits.Credit)
		e := o.entry(nil, 79*credits.Credit)
		e.UsageSource = audit.UsageRecovered
		o.book(audit.Booking{Entry: e})
		if o.alerts() != 0 {
			t.Error("an alert with 21 % left")
		}
		o.book(audit.Booking{Entry: o.entry(nil, 2*credits.Credit)})
		if o.alerts() != 1 {
			t.Error("no alert with 19 % left")
		}
	})
}

// TestTheAlertGoesByTheLimitThatThereIs, and not by one that is remembered.
func TestTheAlertGoesByTheLimitThatThereIs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newOffice(t, d, 100*credits.Credit)
		o.book(audit.Booking{Entry: o.entry(nil, credits.Credit)})
		remembered := *o.workspace
		more := 1000 * credits.Credit
		o.workspace.MonthlyCredits = &more
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return SetBilling(t.Context(), tx, o.workspace, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		o.keeper.mu.Lock()
		o.keeper.known[o.workspace.ID] = &remembered // as on a node that has not heard yet
		o.keeper.mu.Unlock()
		o.book(audit.Booking{Entry: o.entry(nil, 90*credits.Credit)})
		if n := o.alerts(); n != 0 {
			t.Errorf("%d alerts with 909 of 1000 left", n)
		}
	})
}

// TestNoNumberOfAmountsStartsASumAnew: twenty of the largest happen to come out
// above zero again, and twelve do not.
func TestNoNumberOfAmountsStartsASumAnew(t *testing.T) {
	t.Parallel()
	lines := map[line]balance{}
	most := balance{credits.Max, -credits.Max}
	for n := range 40 {
		add(lines, line{}, most)
		if got := lines[line{}]; got != most {
			t.Fatalf("%d of them are %+v", n+1, got)
		}
	}
}

// TestARefusalThatDoesNotPass: a run's calls are made one by one, so that nothing
// is set aside of its budget, and a budget of nothing refuses also what is free.
func TestARefusalThatDoesNotPass(t *testing.T) {
	t.Parallel()
	for _, r := range []Refusal{{Account: Account{Level: Run}, Limit: 5, Spent: 1}, {Account: Account{Level: Key}}} {
		if r.Of(0).Passing {
			t.Errorf("it passes that %s", &r)
		}
	}
	if r := (Refusal{Account: Account{Level: Key}, Limit: 5, Spent: 1, Reserved: 4}); !r.Of(4).Passing || r.Of(5).Passing {
		t.Errorf("of what is set aside: %+v, %+v", r.Of(4), r.Of(5))
	}
}
