package spend

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/visibility"
)

// TestChangedProjectIsLoggedAndItsLeasesAreReclaimed also checks that changing
// a test project leaves the live project with the same ID alone.
func TestChangedProjectIsLoggedAndItsLeasesAreReclaimed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		var mu sync.Mutex
		var recalled []string
		d.OnSignal(SignalReclaim, func(what string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(what, "shop") { // the workspace's signal may arrive late
				recalled = append(recalled, what)
			}
		})
		budget := 7 * credits.Credit
		for _, env := range []accounts.Environment{accounts.Test, accounts.Live} {
			o.write(func(ctx context.Context, tx *db.Tx) error {
				p := &accounts.Project{Tenant: o.workspace.In(env), ID: "shop"}
				if err := accounts.CreateProject(ctx, tx, p, o.now); err != nil {
					return err
				}
				p.Name, p.MonthlyBudget = "The shop", &budget
				return ChangeProject(ctx, tx, p, ProjectChange{By: audit.Operator, Action: "project.updated", At: o.now})
			})
			p, err := accounts.GetProject(t.Context(), d, o.workspace.In(env), "shop")
			if err != nil || p.Name != "The shop" || p.MonthlyBudget == nil || *p.MonthlyBudget != budget {
				t.Errorf("the project is %+v (%v)", p, err)
			}
			found, err := audit.FindActions(t.Context(), d, visibility.Filter{Tenant: o.workspace.In(env)}, audit.ActionFilter{}, db.Page{Limit: 10})
			if err != nil || len(found.Rows) != 1 || found.Rows[0].Action != "project.updated" || found.Rows[0].Target != "shop" || found.Rows[0].Environment != env {
				t.Errorf("the log has %+v (%v)", found, err)
			}
		}
		want := []string{accountMonth{Account{Project, ProjectID(o.workspace.ID, "shop")}, PeriodOf(o.now)}.String()}
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			mu.Lock()
			got := slices.Clone(recalled)
			mu.Unlock()
			if len(got) > 0 || time.Since(begun) > 10*time.Second {
				if !slices.Equal(got, want) {
					t.Errorf("called back is %q, want %q", got, want)
				}
				return
			}
		}
	})
}
