// Package operators holds what the people who run the server manage while it runs: who they are, the credentials of
// the admin API, and the definitions of providers, routes and prices. None of it belongs to a workspace, and no key
// or role of a workspace reaches it.
package operators

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// Operator is a person who manages the server in the dashboard.
type Operator struct {
	UserID    string
	Email     string
	GrantedAt time.Time
}

// Grant makes a person an operator. It is idempotent.
func Grant(ctx context.Context, tx *db.Tx, userID string, now time.Time) error {
	n, err := tx.Exec(ctx, "INSERT INTO operators (user_id, granted_at) VALUES ($1, $2) ON CONFLICT (user_id) DO NOTHING", userID, now.UnixMicro())
	if err != nil {
		return fmt.Errorf("grant operator: %w", err)
	}
	if n == 0 {
		return nil
	}
	return log(ctx, tx, audit.Operator, entry{"operator.granted", userID, map[string]any{}, now})
}

// Revoke reverses Grant. It reports whether the person was an operator.
func Revoke(ctx context.Context, tx *db.Tx, userID string, now time.Time) (bool, error) {
	n, err := tx.Exec(ctx, "DELETE FROM operators WHERE user_id = $1", userID)
	if err != nil {
		return false, fmt.Errorf("revoke operator: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	return true, log(ctx, tx, audit.Operator, entry{"operator.revoked", userID, map[string]any{}, now})
}

var scanOperator = db.Scanner(func(o *Operator) []any { return []any{&o.UserID, &o.Email, &o.GrantedAt} })

// List returns all operators.
func List(ctx context.Context, q db.Querier) ([]*Operator, error) {
	return db.List(ctx, q, scanOperator, "SELECT o.user_id, u.email, o.granted_at FROM operators o JOIN users u ON u.id = o.user_id ORDER BY u.email")
}

// Is reports whether a person is an operator.
func Is(ctx context.Context, q db.Querier, userID string) (bool, error) {
	_, err := db.Value[string](q.QueryRow(ctx, "SELECT user_id FROM operators WHERE user_id = $1", userID))
	if errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// entry is an entry of the admin log.
type entry struct {
	action string
	target string
	detail map[string]any // without secrets
	at     time.Time
}

// log records an action. It belongs to no workspace, so no member sees it.
func log(ctx context.Context, tx *db.Tx, by audit.Actor, e entry) error {
	return by.Log(ctx, tx, audit.Action{Action: e.action, Target: e.target}, e.detail, e.at)
}
