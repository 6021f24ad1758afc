package db

import (
	"context"
	"crypto/rand"
	"errors"
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

func (g *Group) wakeUp() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
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
