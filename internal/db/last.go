package db

import (
	"context"
	"slices"
)

// Last is a step that a transaction runs once before its commit, for all items that
// were added. Contended rows, such as the sums of a workspace, are then locked
// briefly, in one pass and one order, which avoids deadlocks.
type Last[T any] struct {
	do    func(ctx context.Context, tx *Tx, list []T) error
	early bool
}

// NewLast returns a step that calls do in the transaction, before the commit.
func NewLast[T any](do func(ctx context.Context, tx *Tx, list []T) error) *Last[T] {
	return &Last[T]{do: do}
}

// BeforeOthers runs the step before all others, because steps that lock rows need
// one order.
func (l *Last[T]) BeforeOthers() *Last[T] {
	l.early = true
	return l
}

// Add adds items for the end of the transaction.
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

// lastBatch holds the items of one transaction for one Last.
type lastBatch[T any] struct {
	of    *Last[T]
	items []T
}

func (b *lastBatch[T]) first() bool { return b.of.early }

func (b *lastBatch[T]) run(ctx context.Context, tx *Tx) error { return b.of.do(ctx, tx, b.items) }

// runLast runs the steps, including steps that they add.
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
