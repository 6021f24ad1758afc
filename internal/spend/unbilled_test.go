package spend

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
)

// unbilled settles an entry of a provider with unbilled credits, and posts it.
func (o *fixture) unbilled(provider string, amount credits.Micro) *audit.Entry {
	o.t.Helper()
	e := o.entry(o.reserve(credits.Credit), credits.Credit)
	e.Provider, e.UnbilledCredits = provider, amount
	o.settleEntries(audit.Settlement{Entry: e})
	o.post()
	return e
}

// stopped returns why the workspace is stopped, or nil, and how many events were published.
func (o *fixture) stopped() (stop *accounts.UnbilledStop, published int) {
	o.t.Helper()
	w, err := accounts.GetWorkspace(o.t.Context(), o.d, o.workspace.ID)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := o.d.QueryRow(o.t.Context(), "SELECT count(*) FROM events WHERE type = $1", string(events.BillingUnbilledLimit)).Scan(&published); err != nil {
		o.t.Fatal(err)
	}
	return w.UnbilledStop, published
}

func (o *fixture) changeUnbilled(c UnbilledChange) *UnbilledState {
	o.t.Helper()
	c.By, c.At = audit.Operator, o.now
	var state *UnbilledState
	o.write(func(ctx context.Context, tx *db.Tx) (err error) {
		state, err = ChangeUnbilled(ctx, tx, o.workspace.ID, c)
		return err
	})
	return state
}

// N1: unbilled credits of all nodes count toward one limit, which stops the workspace once.
func TestUnbilledCreditsStopTheWorkspace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 4000*credits.Credit) // 5% are 200
		o.unbilled("a", 120*credits.Credit)
		other := *o
		clock := func() time.Time { return o.now }
		other.settler = NewSettler(o.ledger, events.NewPublisher(clock), clock) // of another node, or after a restart
		other.unbilled("a", 80*credits.Credit)
		if stop, n := o.stopped(); stop != nil || n != 0 {
			t.Fatalf("at the limit: got %+v, %d events", stop, n)
		}
		e := other.unbilled("a", 1)
		want := accounts.UnbilledStop{Period: string(PeriodOf(o.now)), Limit: 200 * credits.Credit, Unbilled: 200*credits.Credit + 1}
		if stop, n := o.stopped(); stop == nil || *stop != want || n != 1 {
			t.Fatalf("beyond the limit: got %+v, %d events, want %+v", stop, n, want)
		}
		var body string
		if err := d.QueryRow(t.Context(), "SELECT body FROM events WHERE type = $1", string(events.BillingUnbilledLimit)).Scan(&body); err != nil {
			t.Fatal(err)
		}
		var event struct{ Data events.UnbilledLimitReached }
		if err := json.Unmarshal([]byte(body), &event); err != nil || event.Data != (events.UnbilledLimitReached{Unbilled: want.Unbilled, Limit: want.Limit, Period: want.Period, ResetsAt: PeriodOf(o.now).End().Unix()}) {
			t.Errorf("got %s, %v", body, err)
		}
		// The same entry again, because its first commit was in doubt, counts once.
		o.settleEntries(audit.Settlement{Entry: e, Previous: e})
		o.unbilled("a", credits.Credit)
		if state := o.changeUnbilled(UnbilledChange{}); state.Unbilled != 201*credits.Credit+1 || state.Limit != 200*credits.Credit || state.Stop == nil {
			t.Errorf("got %+v", state)
		}
		if _, n := o.stopped(); n != 1 {
			t.Errorf("got %d events, want 1", n)
		}
		if state := o.changeUnbilled(UnbilledChange{Reset: true, Percent: new(int64(10))}); state.Unbilled != 0 || state.Limit != 400*credits.Credit || state.Stop != nil {
			t.Errorf("after the reset: got %+v", state)
		}
		o.unbilled("a", 400*credits.Credit)
		if stop, n := o.stopped(); stop != nil || n != 1 {
			t.Errorf("at the new limit: got %+v, %d events", stop, n)
		}
		o.unbilled("a", credits.Credit)
		if stop, n := o.stopped(); stop == nil || n != 2 {
			t.Errorf("beyond the new limit: got %+v, %d events", stop, n)
		}
		o.now = PeriodOf(o.now).End()
		if state := o.changeUnbilled(UnbilledChange{}); state.Unbilled != 0 || state.Stop != nil {
			t.Errorf("in the next month: got %+v", state)
		}
	})
}

func TestUnbilledLimitWithoutABudgetFollowsTheCharges(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 10_000*credits.Credit)
		o.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE workspaces SET monthly_credits = NULL WHERE id = $1", o.workspace.ID)
			return err
		})
		limit := func() credits.Micro { return o.changeUnbilled(UnbilledChange{}).Limit }
		if got := limit(); got != minUnbilledLimit {
			t.Errorf("without charges: got %s", got)
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(5000*credits.Credit), 5000*credits.Credit)})
		o.post()
		if got := limit(); got != 250*credits.Credit {
			t.Errorf("got %s, want 250", got)
		}
	})
}

func TestExemptAndTestCreditsDontStopTheWorkspace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 1000*credits.Credit)
		o.settler.ExemptUnbilled(func(provider string) bool { return provider == "free" })
		o.unbilled("free", 5000*credits.Credit)
		e := o.entry(nil, 0)
		e.Environment, e.UnbilledCredits = accounts.Test, 5000*credits.Credit
		o.settleEntries(audit.Settlement{Entry: e})
		o.post()
		if stop, n := o.stopped(); stop != nil || n != 0 {
			t.Fatalf("got %+v, %d events", stop, n)
		}
		o.unbilled("paid", 101*credits.Credit)
		if stop, _ := o.stopped(); stop == nil {
			t.Error("the other provider's credits don't count")
		}
	})
}
