package api

import (
	"context"

	"turnpike/internal/db"
)

// maxPageBytes is how much text a page has before it ends, whatever its limit:
// rows such as events have up to a megabyte each, and several requests for a
// hundred of them used up all memory.
const maxPageBytes = 4 << 20

// pageBudget is a db.Querier whose rows end when they have used up a number of
// bytes, but not before the first row. Rows are read one by one, so the others
// are never in memory.
type pageBudget struct {
	db.Querier
	left     int
	exceeded bool // there are more rows than were read
}

func (c *Call) pageBudget() *pageBudget { return &pageBudget{Querier: c.s.DB, left: maxPageBytes} }

// Query runs a query whose rows count toward the budget.
func (b *pageBudget) Query(ctx context.Context, query string, args ...any) (db.Rows, error) {
	rows, err := b.Querier.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &budgetRows{rows, b}, nil
}

func (b *pageBudget) spend(values ...string) {
	for _, s := range values {
		b.left -= len(s)
	}
}

type budgetRows struct {
	db.Rows
	budget *pageBudget
}

func (r *budgetRows) Next() bool {
	if !r.Rows.Next() {
		return false
	}
	r.budget.exceeded = r.budget.left <= 0
	return !r.budget.exceeded
}

func (r *budgetRows) Scan(dest ...any) error {
	if err := r.Rows.Scan(dest...); err != nil {
		return err
	}
	for _, d := range dest {
		r.budget.left -= db.TextSize(d)
	}
	return nil
}

// truncatePage sets where the next page starts if the budget was exceeded.
func truncatePage[T any](b *pageBudget, found *db.Found[T], id func(T) string) {
	if n := len(found.Rows); b.exceeded && n > 0 {
		found.More, found.Cursor = true, id(found.Rows[n-1])
	}
}
