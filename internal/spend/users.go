package spend

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/events"
	"turnpike/internal/fault"
)

// followUser follows an admin's change of an end user. A new budget can't be lower than the spending so far.
func followUser(ctx context.Context, tx *db.Tx, c accounts.Changed[endusers.User]) error {
	u, before := c.After, c.Before
	if u.Environment != accounts.Live || u.Override.Equal(before.Override) {
		return nil
	}
	w, err := accounts.GetWorkspace(ctx, tx, u.WorkspaceID)
	if err != nil {
		return err
	}
	account := Account{EndUser, u.ID}
	limits, old := u.Limits(w.Users.Default), before.Limits(w.Users.Default)
	if u.Override.Budget != nil && (limits.Window != old.Window || hasChanged(old.Budget, limits.Budget)) {
		spent, err := ReadBalance(ctx, tx, account, PeriodIn(limits.Window, c.At))
		if err != nil {
			return err
		}
		if err := checkSpent("budget", *limits.Budget, spent.Spent); err != nil {
			return err
		}
	}
	return BudgetChanged(ctx, tx, account, c.At)
}

// SpentByUsers returns the spending of end users in the current period of their
// windows, by Turnpike's ID. Test users have none.
func SpentByUsers(ctx context.Context, q db.Querier, list []*endusers.User, byDefault accounts.UserLimits, at time.Time) (map[string]credits.Micro, error) {
	windows := map[accounts.Window][]string{}
	for _, u := range list {
		w := u.Limits(byDefault).Window
		windows[w] = append(windows[w], u.ID)
	}
	out := make(map[string]credits.Micro, len(list))
	for w, ids := range windows {
		spent, err := Spent(ctx, q, EndUser, ids, PeriodIn(w, at))
		if err != nil {
			return nil, err
		}
		for id, amount := range spent {
			out[id] = amount
		}
	}
	return out, nil
}

// userBudgets reads the budgets of end users in one statement, and their
// workspaces. Deleted users have no limit. Events name a user only by its ID, so
// that they stay pseudonymous when it is deleted.
func userBudgets(ctx context.Context, tx *db.Tx, ids []string) (map[string]*alertBudget, error) {
	users, err := endusers.ByID(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*alertBudget, len(ids))
	workspaces := map[string]*accounts.Workspace{}
	for _, id := range ids {
		u := users[id]
		if u == nil {
			out[id] = &alertBudget{}
			continue
		}
		w := workspaces[u.WorkspaceID]
		if w == nil {
			if w, err = accounts.GetWorkspace(ctx, tx, u.WorkspaceID); fault.Is(err, fault.NotFound) {
				out[id] = &alertBudget{}
				continue
			}
			if err != nil {
				return nil, err
			}
			workspaces[w.ID] = w
		}
		limits := u.Limits(w.Users.Default)
		out[id] = &alertBudget{origin: events.Origin{Tenant: u.Tenant}, source: EndUser, id: u.ID, name: u.ID, limit: limits.Budget, window: limits.Window,
			thresholds: w.Users.AlertThresholds.Or(w.AlertThresholds).Or(accounts.DefaultAlertThresholds)}
	}
	return out, nil
}

func userBudget(ctx context.Context, tx *db.Tx, id string, lock bool) (*alertBudget, error) {
	if lock {
		if err := endusers.Lock(ctx, tx, id); err != nil {
			return nil, err
		}
	}
	found, err := userBudgets(ctx, tx, []string{id})
	return found[id], err
}
