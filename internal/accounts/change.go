package accounts

import (
	"context"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// Change is what someone changes in a record. Apply gets the record as it is under its lock, and changes only
// what was asked: what a caller has read before may be outdated.
type Change[T any] struct {
	By    audit.Actor
	At    time.Time
	Apply func(*T) error
}

// Changed is a record before and after a change, in the transaction that holds its lock.
type Changed[T any] struct {
	Before, After *T
	At            time.Time
}

// Rules are what follows from a change of a kind of record, in the same transaction: a key's budgets, for example.
// The record can't import the packages that know it, so they add their rules when they are initialized.
type Rules[T any] struct {
	list []func(context.Context, *db.Tx, Changed[T]) error
}

// Add adds a rule. It's for init only.
func (r *Rules[T]) Add(rule func(context.Context, *db.Tx, Changed[T]) error) {
	r.list = append(r.list, rule)
}

// Follow applies all rules to a change that was stored.
func (r *Rules[T]) Follow(ctx context.Context, tx *db.Tx, c Changed[T]) error {
	for _, rule := range r.list {
		if err := rule(ctx, tx, c); err != nil {
			return err
		}
	}
	return nil
}
