package db

import (
	"context"
	"slices"
	"sync"
)

// Batcher serves what concurrent callers need together. While one batch is served, the
// next one waits for more, so many callers share a transaction and none waits for a
// timer.
type Batcher[T comparable] struct {
	most  int // items of a batch
	serve func(list []T)

	mu      sync.Mutex
	waiting []batched[T]
	running bool // a goroutine serves those that wait
}

type batched[T comparable] struct {
	item T
	done chan struct{}
}

// NewBatcher returns a batcher that serves at most so many items at once. The items are
// pointers, so that serve can store the results.
func NewBatcher[T comparable](most int, serve func(list []T)) *Batcher[T] {
	return &Batcher[T]{most: most, serve: serve}
}

// Do returns when the item was served, or with the error of ctx if that ended before it
// was: the caller must know the result of a transaction that has begun.
func (b *Batcher[T]) Do(ctx context.Context, item T) error {
	done := make(chan struct{})
	b.mu.Lock()
	b.waiting = append(b.waiting, batched[T]{item, done})
	start := !b.running
	b.running = true
	b.mu.Unlock()
	if start {
		go b.run()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	i := slices.IndexFunc(b.waiting, func(w batched[T]) bool { return w.item == item })
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	b.mu.Unlock()
	if i >= 0 {
		return ctx.Err()
	}
	<-done
	return nil
}

// run serves until no one waits.
func (b *Batcher[T]) run() {
	for {
		b.mu.Lock()
		some := slices.Clone(b.waiting[:min(len(b.waiting), b.most)])
		b.waiting = slices.Delete(b.waiting, 0, len(some))
		b.running = len(some) > 0
		b.mu.Unlock()
		if len(some) == 0 {
			return
		}
		list := make([]T, len(some))
		for i, w := range some {
			list[i] = w.item
		}
		b.serve(list)
		for _, w := range some {
			close(w.done)
		}
	}
}
