package spend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// tightPercent is how much of a budget must be spent for it to be tight.
const tightPercent = 80

// TightBudget is a budget that is exhausted or nearly so.
type TightBudget struct {
	Owner  Account // a key or a project, also of a limit
	Name   string
	Limit  *accounts.Limit // nil for the monthly budget
	Window accounts.Window
	Spent  credits.Micro
	Budget credits.Micro
	// RefusedAt is when the budget refused its first request in the period, or nil.
	RefusedAt *time.Time
}

// Exhausted reports whether requests are refused.
func (b TightBudget) Exhausted() bool { return b.RefusedAt != nil || b.Spent >= b.Budget }

const (
	// tightScan is how many keys and projects are searched for tight budgets, the newest first.
	tightScan = 5000
	// tightLimitScan is how many of them are searched for tight limits.
	tightLimitScan = 500
)

// budgetOwner is a table of keys or projects with budgets.
type budgetOwner struct {
	level  Level
	table  string
	usable string // a condition, with the time in microseconds
	order  string
	id     string // the account's, for a row o
}

var budgetOwners = []budgetOwner{
	{Project, "projects", "archived_at IS NULL AND created_at <= $3", "created_at", "o.workspace_id || '/' || o.id"},
	{Key, "keys", "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3)", "id", "o.id"},
}

// TightBudgets returns up to most budgets of projects, keys and their limits of which at least 80% are spent:
// exhausted ones first. It reads a bounded number of rows.
func TightBudgets(ctx context.Context, q db.Querier, workspaceID string, at time.Time, most int) ([]TightBudget, error) {
	var out []TightBudget
	for _, o := range budgetOwners {
		monthly, err := o.monthly(ctx, q, workspaceID, at)
		if err != nil {
			return nil, err
		}
		limits, err := o.limits(ctx, q, workspaceID, at)
		if err != nil {
			return nil, err
		}
		out = append(append(out, monthly...), limits...)
	}
	slices.SortStableFunc(out, func(a, b TightBudget) int {
		switch {
		case a.Exhausted() == b.Exhausted():
			return 0
		case a.Exhausted():
			return -1
		}
		return 1
	})
	return out[:min(len(out), most)], nil
}

// newest selects the newest rows of the owners.
func (o budgetOwner) newest(bound int) string {
	return fmt.Sprintf(`(SELECT workspace_id, id, name, monthly_budget, temporary_raise, limits FROM %s
		WHERE workspace_id = $1 AND environment = $2 AND %s ORDER BY %s DESC LIMIT %d) AS o`, o.table, o.usable, o.order, bound)
}

func (o budgetOwner) monthly(ctx context.Context, q db.Querier, workspaceID string, at time.Time) ([]TightBudget, error) {
	period := PeriodOf(at)
	rows, err := q.Query(ctx, `SELECT o.id, o.name, o.monthly_budget, o.temporary_raise, s.settled,
		(SELECT min(fired_at) FROM budget_alerts a WHERE a.level = s.level AND a.account_id = s.account_id AND a.period = s.period AND a.percent = 100 AND a.budget >= o.monthly_budget)
		FROM `+o.newest(tightScan)+` JOIN spend s ON s.level = $4 AND s.account_id = `+o.id+` AND s.period = $5
		WHERE o.monthly_budget > 0 AND s.settled >= o.monthly_budget / 100 * 80 ORDER BY s.settled DESC, o.id LIMIT 100`,
		workspaceID, string(accounts.Live), at.UnixMicro(), string(o.level), string(period))
	var out []TightBudget
	err = db.Each(rows, err, func(r db.Row) error {
		b := TightBudget{Owner: Account{Level: o.level}, Window: accounts.WindowMonth}
		var raise *accounts.Raise
		if err := db.Scan(r, &b.Owner.ID, &b.Name, &b.Budget, &raise, &b.Spent, &b.RefusedAt); err != nil {
			return err
		}
		raised := *raise.Apply(&b.Budget, at)
		if raised > b.Budget && b.RefusedAt != nil && b.Spent < raised {
			b.RefusedAt = nil // it refused before the raise
		}
		if b.Budget = raised; reached(b.Spent, b.Budget, tightPercent) {
			out = append(out, b)
		}
		return nil
	})
	return out, db.Wrap(err, "read tight budgets")
}

func (o budgetOwner) limits(ctx context.Context, q db.Querier, workspaceID string, at time.Time) ([]TightBudget, error) {
	rows, err := q.Query(ctx, `SELECT o.id, o.name, o.limits FROM `+o.newest(tightScan)+` WHERE o.limits IS NOT NULL LIMIT $4`,
		workspaceID, string(accounts.Live), at.UnixMicro(), int64(tightLimitScan))
	names, owners := map[string]string{}, []Budgets{}
	err = db.Each(rows, err, func(r db.Row) error {
		b := Budgets{Owner: Account{Level: o.level}}
		var name string
		err := db.Scan(r, &b.Owner.ID, &name, &b.Limits)
		names[b.Owner.ID] = name
		owners = append(owners, b)
		return err
	})
	if err != nil || len(owners) == 0 {
		return nil, db.Wrap(err, "read tight limits")
	}
	for i := range owners {
		if o.level == Project {
			owners[i].Owner.ID = ProjectID(workspaceID, owners[i].Owner.ID)
		}
	}
	spent, err := SpentUnderLimits(ctx, q, owners, at)
	if err != nil {
		return nil, err
	}
	var out []TightBudget
	var ids []string
	for _, b := range owners {
		id := strings.TrimPrefix(b.Owner.ID, workspaceID+"/")
		for _, l := range b.Limits {
			if l.Budget == nil || *l.Budget <= 0 || !reached(spent[l.ID], *l.Budget, tightPercent) {
				continue
			}
			limit := l
			out = append(out, TightBudget{Owner: Account{o.level, id}, Name: names[id], Limit: &limit, Window: l.Window, Spent: spent[l.ID], Budget: *l.Budget})
			ids = append(ids, LimitAccount(o.level, b.Owner.ID, l.ID).ID)
		}
	}
	return out, o.readRefusals(ctx, q, out, ids, at)
}

// readRefusals sets when limits refused their first request. ids are their accounts.
func (o budgetOwner) readRefusals(ctx context.Context, q db.Querier, list []TightBudget, ids []string, at time.Time) error {
	level := LimitAccount(o.level, "", "").Level
	query := db.InQuery{SQL: "SELECT account_id, period, budget, fired_at FROM budget_alerts WHERE level = $1 AND percent = 100 AND account_id IN", Args: []any{string(level)}}
	err := db.ByIDs(ctx, q, query, ids, func(r db.Row) error {
		var id string
		var period Period
		var budget credits.Micro
		var firedAt time.Time
		err := db.Scan(r, &id, &period, &budget, &firedAt)
		i := slices.Index(ids, id)
		if i >= 0 && period == PeriodIn(list[i].Window, at) && budget == list[i].Budget {
			list[i].RefusedAt = &firedAt
		}
		return err
	})
	return db.Wrap(err, "read refusals")
}

// userAlertScan is how many of the newest alerts are searched for those of a workspace's end users.
const userAlertScan = 2000

// RefusedUsers returns how many end users have reached their budget since a time, among the newest alerts of the
// server, and when the first of them did.
func RefusedUsers(ctx context.Context, q db.Querier, t accounts.Tenant, since time.Time) (n int64, first *time.Time, err error) {
	err = db.Scan(q.QueryRow(ctx, `SELECT count(DISTINCT a.account_id), min(a.fired_at) FROM
		(SELECT level, account_id, percent, fired_at FROM budget_alerts WHERE fired_at >= $3 ORDER BY fired_at DESC LIMIT $4) AS a
		JOIN end_users u ON u.id = a.account_id
		WHERE a.level = $5 AND a.percent = 100 AND u.workspace_id = $1 AND u.environment = $2`,
		t.WorkspaceID, t.Environment, since.UnixMicro(), int64(userAlertScan), string(EndUser)), &n, &first)
	return n, first, db.Wrap(err, "count users without budget")
}
