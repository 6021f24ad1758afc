package spend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/keyring"
)

// budgeted is a workspace with a project and a key that have budgets.
type budgeted struct {
	*fixture
	key     *access.Key
	project *accounts.Project
}

func newBudgeted(t *testing.T, d *db.DB, workspace, project, key credits.Micro) *budgeted {
	t.Helper()
	o := &budgeted{fixture: newFixture(t, d, workspace)}
	ring, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	o.project = &accounts.Project{Tenant: o.workspace.In(accounts.Live), ID: "p", MonthlyBudget: &project}
	o.key = &access.Key{Tenant: o.workspace.In(accounts.Live), Name: "k", Scopes: []string{"*"}, MonthlyBudget: &key}
	o.write(func(ctx context.Context, tx *db.Tx) error {
		if err := accounts.CreateProject(ctx, tx, o.project, o.now); err != nil {
			return err
		}
		_, err := access.NewKeys(ring, func() time.Time { return o.now }).Create(ctx, tx, access.Caller{Actor: audit.Operator}, o.key)
		return err
	})
	return o
}

// spent returns an entry that charges the amount to all three budgets.
func (o *budgeted) spent(amount credits.Micro) audit.Settlement {
	e := o.entry(nil, amount)
	e.KeyID = o.key.ID
	return audit.Settlement{Entry: e}
}

// published returns the alerts of the workspace: the level of the budget, and the threshold or "exceeded".
func (o *budgeted) published() []string {
	o.t.Helper()
	var out []string
	rows, err := o.d.Query(o.t.Context(), "SELECT type, body FROM events WHERE workspace_id = $1 AND type LIKE 'budget.%' ORDER BY id", o.workspace.ID)
	err = db.Each(rows, err, func(r db.Row) error {
		var typ, body string
		if err := r.Scan(&typ, &body); err != nil {
			return err
		}
		var e struct{ Data events.BudgetThreshold }
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			return err
		}
		what := fmt.Sprint(e.Data.Threshold)
		if events.Type(typ) == events.BudgetWasExceeded {
			what = "exceeded"
		}
		out = append(out, e.Data.LimitSource+" "+what)
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func (o *budgeted) want(alerts ...string) {
	o.t.Helper()
	o.post()
	slices.Sort(alerts)
	if got := o.published(); !slices.Equal(got, alerts) {
		o.t.Fatalf("got alerts %q, want %q", got, alerts)
	}
}

func TestEachThresholdFiresOncePerPeriodOnTwoNodes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 400*credits.Credit, 200*credits.Credit, 100*credits.Credit)
		clock := func() time.Time { return o.now }
		nodes := []*Settler{o.settler, NewSettler(o.ledger, events.NewPublisher(clock), clock)}
		const each = 50
		var working sync.WaitGroup
		for i := range 2 * each { // 100 credits
			working.Go(func() {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					return nodes[i%2].Settle(t.Context(), tx, []audit.Settlement{o.spent(credits.Credit)})
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		working.Wait()
		o.want("key 50", "key 80", "key 95", "key exceeded", "project 50")
		// A restarted node remembers nothing.
		o.settler = NewSettler(o.ledger, events.NewPublisher(clock), clock)
		o.settleEntries(o.spent(90 * credits.Credit)) // 190
		o.want("key 50", "key 80", "key 95", "key exceeded", "project 50", "project 80", "project 95")
		// The next month starts over, and charges of this month no longer alert anyone.
		late := o.spent(1000 * credits.Credit)
		o.now = PeriodOf(o.now).End().Add(time.Hour)
		o.settleEntries(late)
		o.settleEntries(o.spent(60 * credits.Credit))
		o.want("key 50", "key 50", "key 80", "key 95", "key exceeded", "project 50", "project 80", "project 95")
	})
}

func TestRefusedRequestAlertsOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 400*credits.Credit, 200*credits.Credit, 100*credits.Credit)
		o.settleEntries(o.spent(40 * credits.Credit))
		refuse := func(spent, amount credits.Micro) {
			s := o.spent(0)
			s.Entry.Status, s.Entry.Hold = 402, (&Refusal{Account: Account{Key, o.key.ID}, Limit: 100 * credits.Credit, Spent: spent}).For(amount)
			o.settleEntries(s)
		}
		refuse(40*credits.Credit, 60*credits.Credit) // others will be served
		refuse(40*credits.Credit, 61*credits.Credit) // too large, with most of the budget left
		o.want()
		o.settleEntries(o.spent(52 * credits.Credit)) // 92
		refuse(92*credits.Credit, 11*credits.Credit)
		o.want("key 50", "key 80")
		for range 3 {
			refuse(92*credits.Credit, 10*credits.Credit)
		}
		o.want("key 50", "key 80", "key exceeded")
		o.settleEntries(o.spent(8 * credits.Credit)) // 100
		o.want("key 50", "key 80", "key exceeded", "key 95", "project 50")
	})
}

// TestOversizedRequestDoesNotSilenceTheEndOfABudget: it is refused long before the budget is used up.
func TestOversizedRequestDoesNotSilenceTheEndOfABudget(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 400*credits.Credit, 400*credits.Credit, 100*credits.Credit)
		o.settleEntries(o.spent(40 * credits.Credit))
		s := o.spent(0)
		s.Entry.Status, s.Entry.Hold = 402, (&Refusal{Account: Account{Key, o.key.ID}, Limit: 100 * credits.Credit, Spent: 40 * credits.Credit}).For(61*credits.Credit)
		o.settleEntries(s)
		o.want()
		o.settleEntries(o.spent(60 * credits.Credit))
		o.want("key 50", "key 80", "key 95", "key exceeded")
	})
}

// TestChargeAtTheEndOfAPeriodAlerts: charges are posted a second later.
func TestChargeAtTheEndOfAPeriodAlerts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 70*credits.Credit, 100*credits.Credit, 100*credits.Credit)
		end := PeriodOf(o.now).End()
		o.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE projects SET temporary_raise = $1", db.JSON(accounts.Raise{Budget: 200 * credits.Credit, Until: end}))
			return err
		})
		o.settleEntries(o.spent(40 * credits.Credit))
		o.want("workspace 50")
		last, later := o.spent(20*credits.Credit), o.spent(25*credits.Credit)
		for _, s := range []audit.Settlement{last, later} {
			s.Entry.CreatedAt = end.Add(-time.Second)
		}
		o.now = end.Add(time.Second)
		o.settleEntries(last) // 60 of 100, and of 200 under the raise
		o.want("key 50", "workspace 50", "workspace 80")
		o.settleEntries(o.spent(credits.Credit)) // of the next period
		o.want("key 50", "workspace 50", "workspace 80")
		o.now = end.Add(lateAlerts)
		o.settleEntries(later)
		o.want("key 50", "workspace 50", "workspace 80")
		if n := o.alerts(); n != 0 {
			t.Errorf("got %d alerts of low credits, want none", n)
		}
	})
}

// TestLifetimeAlertsAreNotRepeated after others are purged.
func TestLifetimeAlertsAreNotRepeated(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 0, 100*credits.Credit, 0)
		ever := 100 * credits.Credit
		o.project.Limits = []accounts.Limit{{Budget: &ever, Window: accounts.WindowLifetime}}
		o.write(func(ctx context.Context, tx *db.Tx) error {
			return o.storeProject(ctx, tx, o.project)
		})
		spend := func(amount credits.Micro) {
			s := o.spent(amount)
			limit := LimitAccount(Project, ProjectID(o.workspace.ID, o.project.ID), o.project.Limits[0].ID)
			s.Entry.Accounts = encodeAccounts([]hold{{key: accountPeriod{limit, lifetime}}, {key: accountPeriod{Account{Project, ProjectID(o.workspace.ID, o.project.ID)}, PeriodOf(o.now)}}})
			o.settleEntries(s)
		}
		spend(50 * credits.Credit)
		o.want("project 50", "project 50")
		o.now = o.now.Add(alertsKept + time.Hour)
		o.write(func(ctx context.Context, tx *db.Tx) error {
			if n, err := PurgeAlerts(ctx, tx, o.now, 10); err != nil || n != 1 {
				t.Errorf("got %d alerts purged, want that of the month (%v)", n, err)
			}
			return nil
		})
		o.settler = NewSettler(o.ledger, events.NewPublisher(func() time.Time { return o.now }), func() time.Time { return o.now })
		spend(credits.Credit)
		o.want("project 50", "project 50")
	})
}

func TestChangedBudgetAndThresholdsAlert(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 1000*credits.Credit, 0, 1000*credits.Credit)
		// A budget of 0 blocks on purpose.
		o.settleEntries(o.spent(100 * credits.Credit))
		o.want()
		change := func(budget credits.Micro, thresholds accounts.AlertThresholds) {
			t.Helper()
			o.project.MonthlyBudget, o.project.AlertThresholds = &budget, thresholds
			o.write(func(ctx context.Context, tx *db.Tx) error {
				return o.storeProject(ctx, tx, o.project)
			})
		}
		// No charge may follow, so the change itself alerts.
		change(120*credits.Credit, nil)
		o.want("project 50", "project 80")
		change(120*credits.Credit, accounts.AlertThresholds{})
		o.settleEntries(o.spent(15 * credits.Credit))
		o.want("project 50", "project 80")
		change(1000*credits.Credit, accounts.AlertThresholds{20, 10})
		o.want("project 50", "project 80", "project 10")
		change(120*credits.Credit, nil) // again: its alerts were published
		o.want("project 50", "project 80", "project 10", "project 95")
	})
}

func TestThresholdsAreChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []accounts.AlertThresholds{{0}, {100}, {-5}, {50, 50}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}} {
		if err := bad.Check(); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// TestAlertBelongsToItsProject checks who may see the event.
func TestAlertBelongsToItsProject(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 1000*credits.Credit, 100*credits.Credit, 1000*credits.Credit)
		o.settleEntries(o.spent(50 * credits.Credit))
		project, err := db.Value[string](d.QueryRow(t.Context(), "SELECT project FROM events WHERE workspace_id = $1", o.workspace.ID))
		if err != nil || project != "p" {
			t.Errorf("got project %q, want p (%v)", project, err)
		}
	})
}

// TestThresholdsFollowATemporaryRaise: while a raise applies, thresholds are percentages of the raised budget.
func TestThresholdsFollowATemporaryRaise(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 10_000*credits.Credit, 100*credits.Credit, 200*credits.Credit)
		until := o.now.Add(time.Hour)
		o.project.Raise = &accounts.Raise{Budget: 200 * credits.Credit, Until: until}
		o.write(func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE keys SET temporary_raise = $2 WHERE id = $1", o.key.ID, db.JSON(accounts.Raise{Budget: 400 * credits.Credit, Until: until})); err != nil {
				return err
			}
			return o.storeProject(ctx, tx, o.project)
		})
		o.settleEntries(o.spent(90 * credits.Credit))
		o.want()
		o.settleEntries(o.spent(20 * credits.Credit)) // 110 of 200 and 400
		o.want("project 50")
		// The raise ends by itself, and the budgets from before alert as if they had always applied.
		o.now = until
		o.settleEntries(o.spent(credits.Credit))
		o.want("project 50", "project 50", "project 80", "project 95", "project exceeded", "key 50")
		o.settleEntries(o.spent(credits.Credit))
		o.want("project 50", "project 50", "project 80", "project 95", "project exceeded", "key 50")
	})
}
