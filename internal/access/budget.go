package access

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// KeyBudget is a key's budget and who hears about it.
type KeyBudget struct {
	accounts.Tenant
	KeyID           string
	Name            string
	Project         string
	MonthlyBudget   *credits.Micro
	Raise           *accounts.Raise
	Limits          []accounts.Limit
	AlertThresholds accounts.AlertThresholds
	AlertEmail      string
}

var scanKeyBudget = db.Scanner(func(k *KeyBudget) []any {
	return []any{&k.WorkspaceID, &k.Environment, &k.KeyID, &k.Name, &k.Project, &k.MonthlyBudget, &k.Raise, &k.Limits, &k.AlertThresholds, &k.AlertEmail}
})

const keyBudgetQuery = "SELECT workspace_id, environment, id, name, project, monthly_budget, temporary_raise, limits, alert_thresholds, alert_email FROM keys WHERE id = $1"

// BudgetOf returns the budget of a key.
func BudgetOf(ctx context.Context, q db.Querier, keyID string) (*KeyBudget, error) {
	k, err := scanKeyBudget(q.QueryRow(ctx, keyBudgetQuery, keyID))
	return k, db.OrNoSuch(err, "key", keyID)
}

// LockBudgetOf is BudgetOf, and locks the key until the transaction ends.
func LockBudgetOf(ctx context.Context, tx *db.Tx, keyID string) (*KeyBudget, error) {
	k, err := scanKeyBudget(tx.QueryRow(ctx, keyBudgetQuery+tx.Lock("keys"), keyID))
	return k, db.OrNoSuch(err, "key", keyID)
}
