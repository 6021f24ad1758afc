package spend

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/endusers"
)

func TestBudgetsOfLimitsAndUsersAlertOncePerWindow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newBudgeted(t, d, 1000*credits.Credit, 1000*credits.Credit, 1000*credits.Credit)
		daily, ever := 100*credits.Credit, 50*credits.Credit
		o.project.Limits = []accounts.Limit{{Budget: &daily, Window: accounts.WindowDay}}
		var users [2]*endusers.User
		o.write(func(ctx context.Context, tx *db.Tx) (err error) {
			for i, name := range []string{"alice", "bob"} {
				if users[i], err = endusers.Ensure(ctx, tx, endusers.Use{Tenant: o.workspace.In(accounts.Live), Name: name, Limits: accounts.UserLimits{Budget: &ever, Window: accounts.WindowLifetime}, At: o.now}); err != nil {
					return err
				}
			}
			return o.storeProject(ctx, tx, o.project)
		})
		limit := LimitAccount(Project, ProjectID(o.workspace.ID, o.project.ID), o.project.Limits[0].ID)
		spend := func(amount credits.Micro, u *endusers.User) audit.Settlement {
			s := o.spent(amount)
			s.Entry.Accounts = encodeAccounts([]hold{{key: accountPeriod{limit, PeriodIn(accounts.WindowDay, o.now)}}, {key: accountPeriod{Account{EndUser, u.ID}, lifetime}}})
			return s
		}
		o.settleEntries(spend(40*credits.Credit, users[0]), spend(20*credits.Credit, users[1]))
		o.want("project 50", "user 50", "user 80")
		o.settleEntries(spend(10*credits.Credit, users[0]))
		o.want("project 50", "user 50", "user 80", "user 95", "user exceeded")
		// The next day starts over, but not the lifetime.
		o.now = o.now.Add(24 * time.Hour)
		o.settleEntries(spend(85*credits.Credit, users[1]))
		o.want("project 50", "user 50", "user 80", "user 95", "user exceeded", "project 50", "project 80", "user 50", "user 80", "user 95", "user exceeded")
		// A budget in another window has its own alerts. Those of the old window end.
		monthly := 10 * credits.Credit
		o.write(func(ctx context.Context, tx *db.Tx) error {
			change := accounts.Change[endusers.User]{By: audit.Operator, At: o.now, Apply: func(u *endusers.User) error {
				u.Override = accounts.UserLimits{Budget: &monthly, Window: accounts.WindowMonth}
				return nil
			}}
			_, err := endusers.Change(ctx, tx, endusers.UserChange{Tenant: users[0].Tenant, ID: users[0].ID, Change: change})
			return err
		})
		o.settleEntries(spend(credits.Credit, users[0]))
		o.want("project 50", "user 50", "user 80", "user 95", "user exceeded", "project 50", "project 80", "user 50", "user 80", "user 95", "user exceeded")
	})
}
