package db

import (
	"context"
	"slices"
)

// Last is what a transaction does once, when everything else in it is done, for
// all that was added meanwhile. Rows that every transaction wants, such as the
// sums of a workspace, are then held for the shortest time, and locked in one
// pass and one order, however many steps the transaction had: two transactions
// that come back to such rows would wait for each other.
type Last[T any] struct {
	do     func(ctx context.Context, tx *Tx, list []T) error
	sooner bool
}

// NewLast makes one; do is called inside the transaction, just before its commit.
func NewLast[T any](do func(ctx context.Context, tx *Tx, list []T) error) *Last[T] {
	return &Last[T]{do: do}
}

// Sooner has it done before all others, whichever was added first: two that
// lock rows need one order, too.
func (l *Last[T]) Sooner() *Last[T] {
	l.sooner = true
	return l
}

// Add has the items done at the end of the transaction.
func (l *Last[T]) Add(tx *Tx, items ...T) {
	for _, s := range tx.last {
		if b, ok := s.(*lastBatch[T]); ok && b.of == l {
			b.items = append(b.items, items...)
			return
		}
	}
	tx.last = append(tx.last, &lastBatch[T]{l, items})
}

// lastStep is a lastBatch of any type.
type lastStep interface {
	first() bool
	run(ctx context.Context, tx *Tx) error
}

// lastBatch is what one transaction has for one Last.
type lastBatch[T any] struct {
	of    *Last[T]
	items []T
}

func (b *lastBatch[T]) first() bool { return b.of.sooner }

func (b *lastBatch[T]) run(ctx context.Context, tx *Tx) error { return b.of.do(ctx, tx, b.items) }

// runLast does what was left for the end, also what that adds.
func (t *Tx) runLast(ctx context.Context) error {
	for len(t.last) > 0 {
		i := max(0, slices.IndexFunc(t.last, lastStep.first))
		step := t.last[i]
		t.last = slices.Delete(t.last, i, i+1)
		if err := step.run(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
