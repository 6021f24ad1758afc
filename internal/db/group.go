package db

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// groupMax limits the items of each queue in one commit, and so its memory and
	// the time that it holds locks.
	groupMax = 1024

	// retryInterval is the pause between attempts during an outage.
	retryInterval = 500 * time.Millisecond
)

// Group commits pending writes of all its queues in one transaction. It starts as
// soon as a caller waits for a write, and takes everything that is pending, so a
// single write isn't delayed and concurrent ones share an fsync. (A timer of 2 ms
// was slower.) Writes that no one waits for may linger.
type Group struct {
	db   *DB
	mu   sync.Mutex
	qs   []groupQueue // in the order in which they are written
	wake chan struct{}
	quit chan struct{}
	done chan struct{}
	once sync.Once

	// Only run uses these.
	id     string   // of the group's row in commit_marks
	mark   int64    // of the last commit
	doubt  *doubt   // the last commit, if it got no response
	parked []parked // items that the database rejects

	giveUp atomic.Bool // parked items fail

	name     string // for the metrics
	latency  prometheus.Histogram
	items    prometheus.Counter
	failures prometheus.Counter
}

// groupQueue is a Queue of any type.
type groupQueue interface {
	info() *queueInfo
	size() int
	urgent() bool
	take() groupBatch
}

// groupBatch holds the items of one queue in one commit.
type groupBatch interface {
	len() int
	apply(ctx context.Context, tx *Tx) error
	// finish reports the outcome to those who wait for it.
	finish(err error)
	// requeue puts the items back, before those that wait.
	requeue()
	// singles splits the batch, to isolate an item that fails.
	singles() []groupBatch
	// queue describes the queue.
	queue() *queueInfo
	// item names the first item, for the log.
	item() string
}

// queueInfo is what a group knows about a queue.
type queueInfo struct {
	name       string
	durable    bool         // holds its items during an outage
	repeatable bool         // see Queue.Repeatable
	parked     atomic.Int64 // items
}

// NewGroup starts a group. Stop it before you close the database.
func NewGroup(d *DB) *Group {
	g := &Group{db: d, id: rand.Text(), wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	g.countCommits()
	d.groups.add(g)
	go g.run()
	return g
}

// Named sets the name of the group in metrics. Call it before the first scrape.
func (g *Group) Named(name string) *Group {
	g.name = name
	return g
}

// Stop writes pending items and ends the group. It is idempotent.
func (g *Group) Stop() {
	g.once.Do(func() {
		g.db.groups.remove(g)
		close(g.quit)
	})
	<-g.done
}

func (g *Group) run() {
	defer close(g.done)
	stopping := false
	for {
		kept := g.runOnce(stopping)
		g.retryParked(stopping)
		kept = kept || g.doubt != nil
		switch {
		case kept && stopping:
			slog.Warn("database unavailable at shutdown; unsettled requests will be recovered at the next start")
			return
		case kept:
			select {
			case <-time.After(retryInterval):
			case <-g.quit:
				stopping = true
			}
		case stopping:
			return
		default:
			select {
			case <-g.wake:
			case <-g.untilRetry():
			case <-g.quit:
				stopping = true
			}
		}
	}
}

// runOnce commits until nothing is urgent, or until an outage. With all, it also
// commits lingering items.
func (g *Group) runOnce(all bool) (kept bool) {
	for all || g.doubt != nil || g.isUrgent() {
		if g.doubt != nil {
			happened, err := g.resolve()
			if err != nil {
				g.requeue(g.fail(g.take(), err))
			}
			if err != nil || !happened {
				return true
			}
		}
		g.gather()
		batches := g.take()
		if len(batches) == 0 {
			return false
		}
		if list := g.commit(batches); len(list) > 0 {
			g.requeue(list)
			return true
		}
	}
	return false
}

// take returns what waits, by queue.
func (g *Group) take() (batches []groupBatch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range g.qs {
		if b := q.take(); b != nil {
			batches = append(batches, b)
		}
	}
	return batches
}

func (g *Group) requeue(list []groupBatch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range slices.Backward(list) {
		b.requeue()
	}
}

// isUrgent reports whether an item must not linger any longer.
func (g *Group) isUrgent() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.qs, groupQueue.urgent)
}

// maxGather limits how often the writer yields.
const maxGather = 4

// gather yields to runnable goroutines while they add items. It never waits. On two
// busy cores, it made batches larger and calls 15% faster.
func (g *Group) gather() {
	pending := g.pending()
	for range maxGather {
		runtime.Gosched()
		now := g.pending()
		if now == pending {
			return
		}
		pending = now
	}
}

func (g *Group) pending() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range g.qs {
		n += q.size()
	}
	return n
}

// commit writes batches in one transaction. It returns those to retry, and sets g.doubt
// if the commit got no response.
func (g *Group) commit(batches []groupBatch) (kept []groupBatch) {
	if g.doubt != nil { // of another item that was isolated
		return g.fail(batches, g.doubt.err)
	}
	err := g.write(batches)
	if !isRejected(err) {
		return g.fail(batches, err)
	}
	// A row that the database rejects must not fail the others, so each item is
	// then written separately.
	var all []groupBatch
	for _, b := range batches {
		all = append(all, b.singles()...)
	}
	if len(all) > 1 {
		for _, one := range all {
			kept = append(kept, g.commit([]groupBatch{one})...)
		}
		return kept
	}
	for _, b := range batches {
		g.reject(b, err)
	}
	return nil
}

// isRejected reports whether the database is available and rejects a write.
func isRejected(err error) bool {
	return err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrRace)
}

// fail finishes batches, except for durable ones after an error, which it returns. Those
// whose commit is in doubt are left to resolve.
func (g *Group) fail(batches []groupBatch, err error) (kept []groupBatch) {
	for _, b := range batches {
		switch {
		case err == nil || !b.queue().durable:
			b.finish(err)
		case g.doubt == nil || !slices.Contains(g.doubt.batches, b):
			slog.Warn("database unavailable; keeping writes and retrying", "waiting", b.len(), "error", err)
			kept = append(kept, b)
		}
	}
	return kept
}

// write commits batches, with a mark if their writers need one.
func (g *Group) write(batches []groupBatch) error {
	ctx, started, items := context.Background(), time.Now(), 0
	marked := slices.ContainsFunc(batches, func(b groupBatch) bool { return b.queue().durable && !b.queue().repeatable })
	if marked {
		g.mark++
	}
	var last *Tx
	// A transaction that is sent as a whole could arrive after its mark was looked up.
	err := g.db.write(ctx, !marked, func(tx *Tx) error {
		last, items = tx, 0
		tx.of = batches
		if marked {
			if err := g.storeMark(tx); err != nil {
				return err
			}
		}
		for _, b := range batches {
			items += b.len()
			if err := b.apply(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	g.observe(time.Since(started), items, err)
	if marked && errors.Is(err, ErrInDoubt) {
		durable := slices.DeleteFunc(slices.Clone(batches), func(b groupBatch) bool { return !b.queue().durable })
		g.doubt = &doubt{mark: g.mark, err: err, batches: durable, tx: last}
		slog.Warn("a commit got no response; checking whether it happened", "group", g.name, "error", err)
	}
	return err
}

// FlushEvery calls flush at an interval until ctx ends, and then once more.
func FlushEvery(ctx context.Context, interval time.Duration, flush func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			flush(ctx)
		case <-ctx.Done():
			flush(context.WithoutCancel(ctx))
			return
		}
	}
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

// Pending is a write in a queue.
type Pending struct {
	done  chan struct{}
	err   error
	queue interface{ flush(*Pending) } // nil if the write doesn't linger
	taken bool                         // into a commit; guarded by the group's lock

	mu   sync.Mutex
	then func()
}

// Written is a write that is already durable.
var Written = func() *Pending {
	p := &Pending{done: make(chan struct{})}
	close(p.done)
	return p
}()

// Then calls f when the write is durable or has failed, without a goroutine. It
// accepts one f, which must be fast because the writer calls it.
func (p *Pending) Then(f func()) {
	p.mu.Lock()
	ended := p.Ended()
	if !ended {
		p.then = f
	}
	p.mu.Unlock()
	if ended {
		f()
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
	if p.hurry() {
		return p.err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurry reports whether the write has ended. If not, it ends its linger.
func (p *Pending) hurry() (ended bool) {
	if ended = p.Ended(); !ended && p.queue != nil {
		p.queue.flush(p)
	}
	return ended
}

// WaitFor is Wait with a timeout instead of a context, for the hot path.
func (p *Pending) WaitFor(limit time.Duration) error {
	if p.hurry() {
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
func (p *Pending) Failed() bool { return p.Ended() && p.err != nil }

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

func (g *Group) wakeUp() {
	select {
	case g.wake <- struct{}{}:
	default:
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
