package db

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// queueInfo is what a group knows about a queue.
type queueInfo struct {
	name       string
	durable    bool         // holds its items during an outage
	repeatable bool         // see Queue.Repeatable
	parked     atomic.Int64 // items
}

// Queue is one kind of write in a group.
type Queue[T any] struct {
	queueInfo
	g        *Group
	write    func(ctx context.Context, tx *Tx, items []T) error
	identify func(item T) string
	linger   time.Duration // how long an item that no one waits for may stay pending
	timer    *time.Timer   // of linger; nil without
	due      time.Time     // when the timer fires, while items are pending
	hurry    bool          // the timer fired, or a caller waits
	waiting  []queued[T]
	last     *Pending    // the newest item; nil before the first
	degraded atomic.Bool // the last write failed with ErrUnavailable
}

// Degraded reports whether the database could not take the last items.
func (q *Queue[T]) Degraded() bool { return q.degraded.Load() }

// Len returns the number of items that wait for a commit.
func (q *Queue[T]) Len() int {
	q.g.mu.Lock()
	defer q.g.mu.Unlock()
	return len(q.waiting)
}

// Flush ends the linger of all items, and returns when they are written or have failed, or
// when ctx ends. During an outage it doesn't wait.
func (q *Queue[T]) Flush(ctx context.Context) {
	q.g.mu.Lock()
	last := q.last
	q.g.mu.Unlock()
	if last != nil && !q.Degraded() {
		_ = last.Wait(ctx) // whoever added the item handles its error
	}
}

type queued[T any] struct {
	item T
	p    *Pending
}

// NewQueue adds a queue to the group. During an outage, a durable queue holds and
// retries its items, and another fails them. If the database rejects an item, a durable
// queue parks it, and another fails it.
func NewQueue[T any](g *Group, durable bool, write func(ctx context.Context, tx *Tx, items []T) error) *Queue[T] {
	q := &Queue[T]{g: g, write: write, identify: func(T) string { return "" }, queueInfo: queueInfo{durable: durable}}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.qs = append(g.qs, q)
	return q
}

// Identify sets the name of the queue and the function that names an item, for alerts
// about items that the database rejects. Durable queues need both.
func (q *Queue[T]) Identify(name string, identify func(item T) string) *Queue[T] {
	q.name, q.identify = name, identify
	return q
}

// Repeatable declares that write recognizes items that it has stored, by an ID of their own, so that
// a commit in doubt needs no mark. It is for queues that every request waits for.
func (q *Queue[T]) Repeatable() *Queue[T] {
	q.repeatable = true
	return q
}

// Linger delays writes that no one waits for, so that they share commits: at low
// load that halves the number of commits. The first Wait ends it.
func (q *Queue[T]) Linger(d time.Duration) *Queue[T] {
	q.linger = d
	q.timer = time.AfterFunc(d, func() { q.flush(nil) })
	q.timer.Stop()
	return q
}

// Add queues a write and returns immediately.
func (q *Queue[T]) Add(item T) *Pending { return q.AddFor(item, q.linger) }

// AddFor is Add with another linger, for a queue that lingers.
func (q *Queue[T]) AddFor(item T, linger time.Duration) *Pending {
	p := &Pending{done: make(chan struct{})}
	due := time.Now().Add(linger)
	q.g.mu.Lock()
	defer q.g.mu.Unlock()
	q.waiting, q.last = append(q.waiting, queued[T]{item, p}), p
	if q.linger == 0 {
		q.hurryUp()
		return p
	}
	p.queue = q
	if len(q.waiting) == 1 || due.Before(q.due) {
		q.due = due
		q.timer.Reset(linger)
	}
	return p
}

// hurryUp ends the linger of pending items. The caller holds the group's lock.
func (q *Queue[T]) hurryUp() {
	q.hurry = true
	q.g.wakeUp()
}

// flush is hurryUp, unless the write is already in a commit. A nil write means all.
func (q *Queue[T]) flush(p *Pending) {
	q.g.mu.Lock()
	defer q.g.mu.Unlock()
	if p == nil || !p.taken {
		q.hurryUp()
	}
}

func (q *Queue[T]) info() *queueInfo { return &q.queueInfo }

func (q *Queue[T]) size() int { return len(q.waiting) }

func (q *Queue[T]) urgent() bool { return q.hurry && len(q.waiting) > 0 }

func (q *Queue[T]) take() groupBatch {
	n := min(len(q.waiting), groupMax)
	if n == 0 {
		return nil
	}
	b := &batch[T]{q: q, items: q.waiting[:n:n]}
	for _, it := range b.items {
		it.p.taken = true
	}
	if n == len(q.waiting) {
		q.waiting, q.hurry = nil, false
		if q.linger > 0 {
			q.timer.Stop()
		}
	} else {
		q.waiting = q.waiting[n:]
	}
	return b
}

type batch[T any] struct {
	q     *Queue[T]
	items []queued[T]
}

func (b *batch[T]) len() int { return len(b.items) }

func (b *batch[T]) apply(ctx context.Context, tx *Tx) error {
	items := make([]T, len(b.items))
	for i, it := range b.items {
		items[i] = it.item
	}
	return b.q.write(ctx, tx, items)
}

func (b *batch[T]) finish(err error) {
	if unavailable := errors.Is(err, ErrUnavailable); unavailable || err == nil {
		b.q.degraded.Store(unavailable)
	}
	for _, it := range b.items {
		it.p.finish(err)
	}
}

func (b *batch[T]) requeue() {
	b.q.degraded.Store(true)
	b.q.waiting = append(b.items, b.q.waiting...)
	b.q.hurry = true
}

func (b *batch[T]) singles() []groupBatch {
	out := make([]groupBatch, len(b.items))
	for i := range b.items {
		out[i] = &batch[T]{q: b.q, items: b.items[i : i+1 : i+1]}
	}
	return out
}

func (b *batch[T]) queue() *queueInfo { return &b.q.queueInfo }

func (b *batch[T]) item() string { return b.q.identify(b.items[0].item) }
