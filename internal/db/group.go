package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// groupMax bounds what one commit takes of each queue, and so the memory
	// and the lock time of a commit.
	groupMax = 1024

	// retryPause is how long a group waits when the store is away before it
	// offers what must not be given up again.
	retryPause = 500 * time.Millisecond
)

// Group commits the hot writes of every kind that wait in one transaction. It
// is greedy: as soon as somebody waits for a write it takes whatever is there,
// so a lone write is not delayed and a crowd shares one fsync. (A 2 ms timer was
// slower.) Only what nobody waits for yet may linger.
type Group struct {
	db   *DB
	mu   sync.Mutex
	qs   []groupQueue // in the order they were made, which is the order they are written in
	wake chan struct{}
	quit chan struct{}
	done chan struct{}
	once sync.Once
}

// groupQueue is a Queue of any type.
type groupQueue interface {
	len() int
	urgent() bool
	take() groupBatch
}

// groupBatch is what one commit took of one queue.
type groupBatch interface {
	apply(ctx context.Context, tx *Tx) error
	// finish reports the outcome to the waiting; on an outage a keeping queue
	// takes its items back and finish returns true.
	finish(g *Group, err error) (kept bool)
	// singles splits the batch, to find the one item that spoils it.
	singles() []groupBatch
}

// NewGroup starts a group on the database. Stop it before the database closes.
func NewGroup(d *DB) *Group {
	g := &Group{db: d, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go g.run()
	return g
}

// Stop writes what is still waiting and ends the group. It is idempotent.
func (g *Group) Stop() {
	g.once.Do(func() { close(g.quit) })
	<-g.done
}

func (g *Group) run() {
	defer close(g.done)
	stopping := false
	for {
		kept := g.runOnce(stopping)
		switch {
		case kept && stopping:
			slog.Error("the store is away at shutdown: what was not settled will be recovered at the next start")
			return
		case kept:
			select {
			case <-time.After(retryPause):
			case <-g.quit:
				stopping = true
			}
		case stopping:
			return
		default:
			select {
			case <-g.wake:
			case <-g.quit:
				stopping = true
			}
		}
	}
}

// runOnce commits until nothing is urgent, or until an outage made a queue keep
// its items. With all it commits what may linger, too.
func (g *Group) runOnce(all bool) (kept bool) {
	for all || g.hurries() {
		g.gather()
		g.mu.Lock()
		var batches []groupBatch
		for _, q := range g.qs {
			if b := q.take(); b != nil {
				batches = append(batches, b)
			}
		}
		g.mu.Unlock()
		if len(batches) == 0 {
			return false
		}
		if g.commit(batches) {
			return true
		}
	}
	return false
}

// hurries reports whether anything that waits must not wait any longer.
func (g *Group) hurries() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.qs, groupQueue.urgent)
}

// maxGather bounds how often the writer lets others go first.
const maxGather = 4

// gather lets goroutines that are ready to run go first as long as they bring
// more to write. It waits for nobody: with nothing else to run it returns at
// once. On two busy cores it made batches larger and calls 15 % faster.
func (g *Group) gather() {
	waiting := g.waiting()
	for range maxGather {
		runtime.Gosched()
		now := g.waiting()
		if now == waiting {
			return
		}
		waiting = now
	}
}

func (g *Group) waiting() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range g.qs {
		n += q.len()
	}
	return n
}

func (g *Group) commit(batches []groupBatch) (kept bool) {
	ctx := context.Background()
	err := g.db.Write(ctx, func(tx *Tx) error {
		for _, b := range batches {
			if err := b.apply(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	// A row that the store refuses (a bug, or a value no check caught) must
	// not take its neighbours with it: then each item is written by itself.
	if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrRace) {
		var all []groupBatch
		for _, b := range batches {
			all = append(all, b.singles()...)
		}
		if len(all) > 1 {
			for _, one := range all {
				kept = g.commit([]groupBatch{one}) || kept
			}
			return kept
		}
	}
	for _, b := range batches {
		kept = b.finish(g, err) || kept
	}
	return kept
}

// Queue is one kind of write in a group.
type Queue[T any] struct {
	g       *Group
	write   func(ctx context.Context, tx *Tx, items []T) error
	keep    bool
	linger  time.Duration // how long an item that nobody waits for may wait for others to be written with
	timer   *time.Timer   // the end of that; nil without
	due     time.Time     // when it ends, while something waits
	hurry   bool          // it has come, or somebody waits
	waiting []queued[T]
	ailing  atomic.Bool // the store did not take what was written last
}

// Ailing reports whether the store could not take the last items.
func (q *Queue[T]) Ailing() bool { return q.ailing.Load() }

type queued[T any] struct {
	item T
	p    *Pending
}

// Pending is a write that was handed over.
type Pending struct {
	done  chan struct{}
	err   error
	queue interface{ wanted(*Pending) } // nil if it does not linger
	taken bool                          // into a commit; the group's lock is for it

	mu   sync.Mutex
	then func()
}

// Written is a write that is durable already.
var Written = func() *Pending {
	p := &Pending{done: make(chan struct{})}
	close(p.done)
	return p
}()

// Then has f called when the write is durable or has failed, instead of a
// goroutine that waits. It takes one f, which must be brief: the writer calls it.
func (p *Pending) Then(f func()) {
	p.mu.Lock()
	select {
	case <-p.done:
		p.mu.Unlock()
		f()
	default:
		p.then = f
		p.mu.Unlock()
	}
}

func (p *Pending) finish(err error) {
	p.mu.Lock()
	p.err = err
	close(p.done)
	then := p.then
	p.mu.Unlock()
	if then != nil {
		then()
	}
}

// Wait returns when the write is durable or has failed, or when ctx ends.
func (p *Pending) Wait(ctx context.Context) error {
	if p.wanted() {
		return p.err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wanted reports whether the write has ended, and lets it linger no longer if not.
func (p *Pending) wanted() (ended bool) {
	select {
	case <-p.done:
		return true
	default:
	}
	if p.queue != nil {
		p.queue.wanted(p)
	}
	return false
}

// WaitFor is Wait with a limit of its own, for the hot path: it needs no context.
func (p *Pending) WaitFor(limit time.Duration) error {
	if p.wanted() {
		return p.err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		return fmt.Errorf("not written after %v: %w", limit, ErrUnavailable)
	}
}

// Ended reports whether the write is durable or has failed.
func (p *Pending) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Failed reports whether the write has ended without success.
func (p *Pending) Failed() bool {
	select {
	case <-p.done:
		return p.err != nil
	default:
		return false
	}
}

// NewQueue adds a kind of write to the group. While the store does not take
// writes, a queue that keeps holds its items and offers them again; another
// fails them, so that whoever waits can say so. Only a value that the store
// will never take is given up by both.
func NewQueue[T any](g *Group, keep bool, write func(ctx context.Context, tx *Tx, items []T) error) *Queue[T] {
	q := &Queue[T]{g: g, keep: keep, write: write}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.qs = append(g.qs, q)
	return q
}

// Lingers lets writes go with others for as long as nobody waits for them, or
// alone after a while: at low load that halves the number of commits. The first
// Wait for one of them ends it.
func (q *Queue[T]) Lingers(d time.Duration) *Queue[T] {
	q.linger = d
	q.timer = time.AfterFunc(d, q.hurryUp)
	q.timer.Stop()
	return q
}

// Add hands a write over and returns at once.
func (q *Queue[T]) Add(item T) *Pending { return q.AddFor(item, q.linger) }

// AddFor is Add with a linger of the item's own, in a queue that lingers.
func (q *Queue[T]) AddFor(item T, linger time.Duration) *Pending {
	p := &Pending{done: make(chan struct{})}
	if q.linger == 0 {
		q.g.mu.Lock()
		q.waiting, q.hurry = append(q.waiting, queued[T]{item, p}), true
		q.g.mu.Unlock()
		q.g.wakeUp()
		return p
	}
	p.queue = q
	due := time.Now().Add(linger)
	q.g.mu.Lock()
	defer q.g.mu.Unlock()
	q.waiting = append(q.waiting, queued[T]{item, p})
	if len(q.waiting) == 1 || due.Before(q.due) {
		q.due = due
		q.timer.Reset(linger)
	}
	return p
}

// hurryUp ends the linger of what waits.
func (q *Queue[T]) hurryUp() {
	q.g.mu.Lock()
	q.hurry = true
	q.g.mu.Unlock()
	q.g.wakeUp()
}

// wanted is hurryUp, unless the write is in a commit already.
func (q *Queue[T]) wanted(p *Pending) {
	q.g.mu.Lock()
	late := p.taken || q.hurry
	q.hurry = q.hurry || !p.taken
	q.g.mu.Unlock()
	if !late {
		q.g.wakeUp()
	}
}

func (g *Group) wakeUp() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (q *Queue[T]) len() int { return len(q.waiting) }

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

func (b *batch[T]) apply(ctx context.Context, tx *Tx) error {
	items := make([]T, len(b.items))
	for i, it := range b.items {
		items[i] = it.item
	}
	return b.q.write(ctx, tx, items)
}

func (b *batch[T]) finish(g *Group, err error) bool {
	if away := errors.Is(err, ErrUnavailable); away || err == nil {
		b.q.ailing.Store(away)
	}
	if b.q.keep && err != nil && !errors.Is(err, ErrData) && !errors.Is(err, ErrExists) {
		slog.Warn("writes wait for the store", "waiting", len(b.items), "error", err)
		g.mu.Lock()
		b.q.waiting = append(b.items, b.q.waiting...)
		b.q.hurry = true
		g.mu.Unlock()
		return true
	}
	for _, it := range b.items {
		it.p.finish(err)
	}
	return false
}

func (b *batch[T]) singles() []groupBatch {
	out := make([]groupBatch, len(b.items))
	for i := range b.items {
		out[i] = &batch[T]{q: b.q, items: b.items[i : i+1 : i+1]}
	}
	return out
}
