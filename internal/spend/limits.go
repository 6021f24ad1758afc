package spend

import (
	"context"
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Budgets are the budgets of a key or a project.
type Budgets struct {
	Owner   Account
	Monthly *credits.Micro
	Raise   *accounts.Raise
	Limits  []accounts.Limit
}

// KeyBudgets returns the budgets of a key.
func KeyBudgets(k *access.Key) Budgets {
	return Budgets{Account{Key, k.ID}, k.MonthlyBudget, k.Raise, k.Limits}
}

func projectBudgets(p *accounts.Project) Budgets {
	return Budgets{Account{Project, ProjectID(p.WorkspaceID, p.ID)}, p.MonthlyBudget, p.Raise, p.Limits}
}

// follow refuses new budgets below what is already spent, in the transaction that stores them. Otherwise it
// reclaims the leases under the old ones, and publishes the alerts that are due.
func (b Budgets) follow(ctx context.Context, tx *db.Tx, before Budgets, at time.Time) error {
	if err := b.checkMonth(ctx, tx, before, at); err != nil {
		return err
	}
	if err := BudgetChanged(ctx, tx, b.Owner, at); err != nil {
		return err
	}
	spent, err := SpentUnderLimits(ctx, tx, []Budgets{b}, at)
	if err != nil {
		return err
	}
	for i, l := range b.Limits {
		if l.Budget == nil {
			continue
		}
		unchanged := func(o accounts.Limit) bool {
			return o.ID == l.ID && o.Window == l.Window && !hasChanged(o.Budget, l.Budget)
		}
		if !slices.ContainsFunc(before.Limits, unchanged) {
			if err := checkSpent(accounts.LimitParam(i, "budget"), *l.Budget, spent[l.ID]); err != nil {
				return err
			}
		}
		if err := BudgetChanged(ctx, tx, LimitAccount(b.Owner.Level, b.Owner.ID, l.ID), at); err != nil {
			return err
		}
	}
	return nil
}

// checkMonth checks the budgets of the month that have changed.
func (b Budgets) checkMonth(ctx context.Context, tx *db.Tx, before Budgets, at time.Time) error {
	raised := b.Raise.IsActive(at) && !b.Raise.Equal(before.Raise)
	changed := hasChanged(before.Monthly, b.Monthly)
	if !raised && !changed {
		return nil
	}
	spent, err := ReadBalance(ctx, tx, b.Owner, PeriodOf(at))
	if err == nil && raised {
		err = checkSpent("temporary_raise.budget", b.Raise.Budget, spent.Spent)
	}
	if err == nil && changed {
		err = checkSpent("monthly_budget", *b.Monthly, spent.Spent)
	}
	return err
}

// hasChanged reports whether there is a budget that is another than before.
func hasChanged(before, budget *credits.Micro) bool {
	return budget != nil && (before == nil || *before != *budget)
}

// checkSpent refuses a new budget below what is already spent. A budget of 0 blocks the owner on purpose.
func checkSpent(param string, budget, spent credits.Micro) error {
	if budget == 0 || spent <= budget {
		return nil
	}
	return fault.Invalid(param, "%s cannot be %s, because %s credits are already spent. Set at least %s.", param, budget, spent, spent)
}

// SpentUnderLimits returns the spending under each limit of the owners in its current period, by the limit's ID.
func SpentUnderLimits(ctx context.Context, q db.Querier, owners []Budgets, at time.Time) (map[string]credits.Micro, error) {
	type group struct {
		level  Level
		window accounts.Window
	}
	names := map[group][]string{}
	limits := map[Account]string{}
	for _, b := range owners {
		for _, l := range b.Limits {
			if l.Budget != nil {
				a := LimitAccount(b.Owner.Level, b.Owner.ID, l.ID)
				limits[a] = l.ID
				g := group{a.Level, l.Window}
				names[g] = append(names[g], a.ID)
			}
		}
	}
	out := make(map[string]credits.Micro, len(limits))
	for g, ids := range names {
		spent, err := Spent(ctx, q, g.level, ids, PeriodIn(g.window, at))
		if err != nil {
			return nil, err
		}
		for id, amount := range spent {
			out[limits[Account{g.level, id}]] = amount
		}
	}
	return out, nil
}
