package lanes

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"turnpike/internal/db"
)

// Runner runs the items of one queue's lanes on this node.
//
// Three kinds of goroutines share its state: maintainLeases, which alone writes
// the lanes table, one per scan, and one per running item. Each calls dispatch
// after it has changed the state.
type Runner[T Item] struct {
	Options
	store  leaseStore
	source Source[T]

	wake     chan struct{} // for maintainLeases: there may be lanes to claim
	claimsMu sync.Mutex
	toClaim  int // how many lanes maintainLeases may claim when it wakes

	mu          sync.Mutex
	lanes       map[string]*lane[T]
	histories   map[string]history // of released lanes
	toScan      runQueue[T]
	ready       [healths]runQueue[T] // lanes with an item to start
	running     int
	runningBy   [healths]int // running items, by the health of their lanes when they started
	inFlight    int          // items that are running or not written yet
	scans       int
	started     uint64    // items, ever
	leasedUntil time.Time // for all lanes
	peers       map[string]peer
	announced   int  // the load that the other nodes know
	renewNow    bool // another node gave lanes to this one
	stopping    bool
	goroutines  sync.WaitGroup // of scans and running items
	allWritten  chan struct{}  // closed when the last outcome is written
	workCtx     context.Context
}

// NewRunner returns a runner for the lanes of a queue. Run starts it.
func NewRunner[T Item](d *db.DB, source Source[T], o Options) *Runner[T] {
	r := newRunner(&table{db: d, queue: o.Queue, node: o.Node, now: o.Now}, source, o)
	d.OnSignal(signalOf(o.Queue), r.onSignal)
	d.OnSignal(loadTopic(o.Queue), r.onLoad)
	d.OnSignal(giveTopic(o.Queue), r.onGiven)
	return r
}

func newRunner[T Item](store leaseStore, source Source[T], o Options) *Runner[T] {
	o.Poll, o.Linger = cmp.Or(o.Poll, defaultPoll), cmp.Or(o.Linger, defaultLinger)
	o.imbalance = cmp.Or(o.imbalance, defaultImbalance)
	o.DrainTimeout, o.MaxUnwritten = cmp.Or(o.DrainTimeout, leaseDuration), cmp.Or(o.MaxUnwritten, defaultUnwritten)
	return &Runner[T]{Options: o, store: store, source: source, wake: make(chan struct{}, 1),
		lanes: map[string]*lane[T]{}, histories: map[string]history{}, peers: map[string]peer{}}
}

// onSignal is called when work was enqueued, on this node or another. The payload
// names the lanes, each with its seq, or is empty for any lane.
func (r *Runner[T]) onSignal(payload string) {
	r.mu.Lock()
	claims, others := 0, 0
	if payload == "" {
		claims = math.MaxInt
		for _, l := range r.lanes {
			l.requestScan(fromCursor)
			r.schedule(l)
		}
	} else {
		for name := range strings.SplitSeq(payload, ",") {
			id, text, _ := strings.Cut(name, ":")
			seq, err := strconv.ParseInt(text, 10, 64)
			switch l := r.lanes[id]; {
			case l == nil:
				others++
			case err != nil || l.seq < seq:
				l.requestScan(fromCursor)
				r.schedule(l)
			}
		}
	}
	if others > 0 {
		claims = r.partOf(others)
	}
	r.dispatch()
	r.mu.Unlock()
	if claims > 0 {
		r.wakeUp(claims)
	}
}

// addEnqueued adds enqueued items to lanes without a scan. If it can't, the
// signal that follows requests one.
func (r *Runner[T]) addEnqueued(items map[string][]T, seqs map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, list := range items {
		l := r.lanes[id]
		if l == nil || l.phase != idle && l.phase != working || l.scanFrom != noScan || seqs[id] != l.seq+1 || len(l.buffer) >= 8*l.limit {
			continue
		}
		if r.nextIsDue(l) {
			l.requestScan(scanStart(l.nextDue.UnixMicro())) // the known item comes first
			continue
		}
		l.seq = seqs[id]
		for _, item := range list {
			if l.add(item) && l.coverage < nextUnknown { // otherwise something may have become due before it
				l.cursor = item.Key()
			}
		}
		l.idleSince = time.Time{}
		l.rest()
		r.settleIdle(l)
		r.schedule(l)
	}
	r.dispatch()
}

// wakeUp wakes maintainLeases, which may claim some lanes more.
func (r *Runner[T]) wakeUp(claims int) {
	if claims > 0 {
		r.claimsMu.Lock()
		r.toClaim += min(claims, math.MaxInt-r.toClaim)
		r.claimsMu.Unlock()
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run runs items until ctx ends. Then it starts no more items, waits for the
// running ones, and releases the lanes.
func (r *Runner[T]) Run(ctx context.Context) {
	workCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	r.workCtx = workCtx
	r.wakeUp(math.MaxInt)
	r.maintainLeases(ctx)
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	stopCtx := context.WithoutCancel(ctx)
	r.drain(stopCtx, abort)
	ctx, cancel := context.WithTimeout(stopCtx, renewInterval)
	defer cancel()
	if err := r.store.releaseAll(ctx); err != nil {
		slog.Warn("failed to release lanes; other nodes wait until the leases expire", "queue", r.Queue, "err", err)
	}
}

// Stats is the state of a node's lanes.
type Stats struct {
	Lanes    int    // leased
	Running  int    // items
	Slow     int    // running items of slow lanes
	InFlight int    // items that are running or not written yet
	Started  uint64 // items, ever
}

// Stats returns the current state.
func (r *Runner[T]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{len(r.lanes), r.running, r.runningBy[slow], r.inFlight, r.started}
}
