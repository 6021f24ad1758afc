package spend

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Budgets are the changed budgets of a key or a project.
type Budgets struct {
	Owner  Account
	Raise  *accounts.Raise
	Limits []accounts.Limit
}

// Change refuses budgets below what is already spent, in the transaction that stores them. Otherwise it
// reclaims the leases under the old ones, and publishes the alerts that are due.
func (b Budgets) Change(ctx context.Context, tx *db.Tx, at time.Time) error {
	if b.Raise.IsActive(at) {
		spent, err := ReadBalance(ctx, tx, b.Owner, PeriodOf(at))
		if err != nil {
			return err
		}
		if err := checkSpent("temporary_raise.budget", b.Raise.Budget, spent.Spent); err != nil {
			return err
		}
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
		if err := checkSpent(accounts.LimitParam(i, "budget"), *l.Budget, spent[l.ID]); err != nil {
			return err
		}
		if err := BudgetChanged(ctx, tx, LimitAccount(b.Owner.Level, b.Owner.ID, l.ID), at); err != nil {
			return err
		}
	}
	return nil
}

func checkSpent(param string, budget, spent credits.Micro) error {
	if spent <= budget {
		return nil
	}
	return fault.Invalid(param, "%s credits are already spent, so %s cannot be %s. Set at least %s.", spent, param, budget, spent)
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
