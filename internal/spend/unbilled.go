package spend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
)

// Unbilled is the level of what a workspace has used and wasn't charged for, because it cost more than was
// reserved. It has no leases: the limit stops later requests, and doesn't end those in progress.
const Unbilled Level = "unbilled"

// minUnbilledLimit keeps small workspaces from being stopped by roundings.
const minUnbilledLimit = 100 * credits.Credit

// ExemptUnbilled sets which providers' unbilled credits don't count.
func (s *Settler) ExemptUnbilled(exempt func(provider string) bool) { s.exempt.Store(&exempt) }

// addUnbilled counts what an entry couldn't be charged for. It is posted with the charges.
func (s *Settler) addUnbilled(t *totals, b audit.Settlement) {
	e := b.Entry
	amount := e.UnbilledCredits
	if b.Previous != nil {
		amount -= b.Previous.UnbilledCredits
	}
	if exempt := s.exempt.Load(); amount == 0 || e.Environment != accounts.Live || exempt != nil && (*exempt)(e.Provider) {
		return
	}
	to := t.at(accountPeriod{Account{Unbilled, e.WorkspaceID}, PeriodOf(e.CreatedAt)})
	to.Settled = sum(to.Settled, amount)
}

// unbilledLimit returns the limit of a workspace that was charged so much.
func unbilledLimit(w *accounts.Workspace, charged credits.Micro) credits.Micro {
	base := charged
	if w.MonthlyCredits != nil {
		base = *w.MonthlyCredits
	}
	percent := credits.Micro(w.UnbilledLimitPercent)
	return max(minUnbilledLimit, base/100*percent+base%100*percent/100)
}

// stopUnbilled stops the workspaces whose unbilled credits of this month are beyond their limit, and publishes
// the event. after has the balances of all accounts in t.
func (s *Settler) stopUnbilled(ctx context.Context, tx *db.Tx, t *totals, after map[accountPeriod]balance) error {
	var list []accountPeriod
	for key := range t.accounts {
		if key.Level == Unbilled && key.Period == PeriodOf(s.now()) {
			list = append(list, key)
		}
	}
	slices.SortFunc(list, compare)
	for _, key := range list {
		w, err := accounts.GetWorkspaceLocked(ctx, tx, key.ID)
		if err != nil {
			if db.IgnoreNotFound(err) == nil {
				continue // it was deleted
			}
			return fmt.Errorf("read workspace: %w", err)
		}
		charged, err := ReadBalance(ctx, tx, Account{Workspace, key.ID}, key.Period)
		if err != nil {
			return err
		}
		stop := &accounts.UnbilledStop{Period: string(key.Period), Limit: unbilledLimit(w, charged.Spent), Unbilled: after[key].Settled}
		if stop.Unbilled <= stop.Limit || w.UnbilledStop != nil && w.UnbilledStop.Period == stop.Period {
			continue
		}
		if err := storeUnbilledStop(ctx, tx, w.ID, stop); err != nil {
			return err
		}
		end := key.Period.End()
		_, err = s.publisher.Publish(ctx, tx, events.Origin{Tenant: w.In(accounts.Live)},
			events.UnbilledLimitReached{Unbilled: stop.Unbilled, Limit: stop.Limit, Period: stop.Period, ResetsAt: *events.Unix(&end)})
		if err != nil {
			return err
		}
	}
	return nil
}

func storeUnbilledStop(ctx context.Context, tx *db.Tx, workspaceID string, stop *accounts.UnbilledStop) error {
	var stored any
	if stop != nil {
		text, err := json.Marshal(stop)
		if err != nil {
			return err
		}
		stored = string(text)
	}
	_, err := tx.Exec(ctx, "UPDATE workspaces SET unbilled_stop = $2 WHERE id = $1", workspaceID, stored)
	tx.Signal(accounts.SignalWorkspace, workspaceID)
	return db.Wrap(err, "stop workspace")
}

// UnbilledState is what a workspace has used this month without a charge, and its limit.
type UnbilledState struct {
	Unbilled     credits.Micro          `json:"unbilled"`
	Limit        credits.Micro          `json:"limit"`
	LimitPercent int64                  `json:"unbilled_limit_percent"`
	Stop         *accounts.UnbilledStop `json:"stopped"` // nil if requests are served
}

// UnbilledChange is an operator's change to the limit.
type UnbilledChange struct {
	By      audit.Actor
	Percent *int64 // nil keeps the limit
	Reset   bool   // starts to count again from zero, and serves requests again
	At      time.Time
}

// ChangeUnbilled changes the limit of a workspace's unbilled credits and returns its state. Only operators may call it:
// the limit protects them.
func ChangeUnbilled(ctx context.Context, tx *db.Tx, workspaceID string, c UnbilledChange) (*UnbilledState, error) {
	period := PeriodOf(c.At)
	if c.Reset { // the ledger first, as in stopUnbilled
		if _, err := tx.Exec(ctx, "UPDATE spend SET settled = 0 WHERE level = $1 AND account_id = $2 AND period = $3", string(Unbilled), workspaceID, string(period)); err != nil {
			return nil, db.Wrap(err, "reset unbilled credits")
		}
		if err := storeUnbilledStop(ctx, tx, workspaceID, nil); err != nil {
			return nil, err
		}
	}
	if c.Percent != nil {
		change := accounts.Change[accounts.Workspace]{By: c.By, At: c.At, Apply: func(w *accounts.Workspace) error {
			w.UnbilledLimitPercent = *c.Percent
			return nil
		}}
		if _, err := accounts.ChangeWorkspace(ctx, tx, workspaceID, change); err != nil {
			return nil, err
		}
	}
	b, err := ReadBilling(ctx, tx, workspaceID, c.At)
	if err != nil {
		return nil, err
	}
	unbilled, err := ReadBalance(ctx, tx, Account{Unbilled, workspaceID}, period)
	if err != nil {
		return nil, err
	}
	state := &UnbilledState{Unbilled: unbilled.Spent, Limit: unbilledLimit(b.Workspace, b.Spent), LimitPercent: b.Workspace.UnbilledLimitPercent}
	if stop := b.Workspace.UnbilledStop; stop != nil && stop.Period == string(period) {
		state.Stop = stop
	}
	if !c.Reset {
		return state, nil
	}
	return state, c.By.Log(ctx, tx, audit.Action{Tenant: b.Workspace.In(accounts.Live), Action: "billing.unbilled_reset", Target: workspaceID},
		map[string]any{"unbilled_limit_percent": state.LimitPercent}, c.At)
}
