package lanes

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"turnpike/internal/db"
)

// Runner works one queue's lanes on this node.
//
// Three kinds of goroutines share its state: keep, which alone talks to the
// lanes table; one per fetch; one per item. Whoever changes the state calls
// pump, which starts what can be started.
type Runner[T Item] struct {
	queue  string
	node   string
	db     *db.DB
	source Source[T]
	now    func() time.Time
	cap    int
	slots  int
	limit  int
	poll   time.Duration
	linger time.Duration
	grace  time.Duration

	unwritten int

	wake chan struct{} // for keep: there may be lanes to claim

	mu       sync.Mutex
	lanes    map[string]*lane[T]
	past     map[string]record  // of lanes that were given back
	looks    line[T]            // lanes that are to be looked into
	ready    [standings]line[T] // lanes that have an item to start
	running  int                // items at work
	among    [standings]int     // of them, by what was known of their lanes when they began
	open     int                // items at work or whose outcome is not written yet
	fetches  int
	valid    time.Time // until when the leases hold
	turns    uint64
	stopping bool
	idle     sync.WaitGroup // items at work and fetches
	leaving  chan struct{}  // closed when the last outcome is written
	work     context.Context
}

// place is where an item of a lane was seen last, and the lane's seq when it
// was seen first.
type place struct {
	Key
	seq int64
}

// record is what a node remembers of a lane.
type record struct {
	doing standing
	turn  uint64 // when it is its turn, by those that lanes doing like it have had
}

// lane is a lane that this node has.
type lane[T Item] struct {
	id     string
	seq    int64 // of the last look
	put    int64 // the same, of the last one before which others had put in something
	buffer []T
	known  map[string]place // what is buffered or at work
	late   map[string]place // what was finished while a look was under way
	after  Key              // behind which the next look begins
	from   int64            // from when on it looks if again is set, if that is before
	active int              // items at work
	open   int              // items at work or whose outcome is not written yet
	cap    int
	streak int // of well items, to grow the cap
	taken  time.Time
	served bool // it has had a turn since then
	record

	fetching  bool
	releasing bool
	queued    bool // in a line
	more      bool // there may be something behind after
	dirty     bool // something was put in since the last look began
	again     bool // something that was seen is due again
	gap       bool // something may have been put in before after
	unsure    bool // what comes later is not known
	owed      bool // a look before it rests: somebody may have changed an item without a word
	lost      bool // the lease is another's now

	next    time.Time // when a drained lane has work again
	drained time.Time // since when there is nothing to do; zero while there is
}

// NewRunner makes a runner; Run starts it.
func NewRunner[T Item](d *db.DB, source Source[T], o Options) *Runner[T] {
	r := &Runner[T]{queue: o.Queue, node: o.Node, db: d, source: source, now: o.Now, cap: o.PerLane, slots: o.Slots, limit: o.MaxLanes,
		poll: cmp.Or(o.Poll, defaultPoll), linger: cmp.Or(o.Linger, defaultLinger), grace: cmp.Or(o.DrainTimeout, lease), unwritten: cmp.Or(o.MaxUnwritten, defaultUnwritten),
		wake: make(chan struct{}, 1), lanes: map[string]*lane[T]{}, past: map[string]record{}}
	d.OnSignal(signalOf(o.Queue), r.kick)
	return r
}

// kick is called when something was put into lanes, here or elsewhere. The
// payload names them, each with its seq, or is empty for any.
func (r *Runner[T]) kick(payload string) {
	r.mu.Lock()
	foreign := payload == ""
	if payload == "" {
		for _, l := range r.lanes {
			l.dirty = true
			r.offer(l)
		}
	} else {
		for name := range strings.SplitSeq(payload, ",") {
			id, text, _ := strings.Cut(name, ":")
			seq, err := strconv.ParseInt(text, 10, 64)
			switch l := r.lanes[id]; {
			case l == nil:
				foreign = true
			case err != nil || l.seq < seq:
				l.dirty = true
				r.offer(l)
			}
		}
	}
	r.pump()
	r.mu.Unlock()
	if foreign {
		r.wakeUp()
	}
}

// Put is Enqueue for items that are due at once, in the order of their keys. A
// lane that this node has, and of which it has seen everything else, gets them
// after the commit without a look.
func (r *Runner[T]) Put(_ context.Context, tx *db.Tx, items map[string][]T, now time.Time) error {
	due := make(map[string]time.Time, len(items))
	for id := range items {
		due[id] = now
	}
	orders.Add(tx, order{r.queue, due, func(seqs map[string]int64) { r.handOut(items, seqs) }})
	return nil
}

// handOut gives lanes what was put into them. Where it cannot, the signal that
// follows has the lane looked into.
func (r *Runner[T]) handOut(items map[string][]T, seqs map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, list := range items {
		l := r.lanes[id]
		if l == nil || l.lost || l.releasing || l.fetching || l.wanted() || seqs[id] != l.seq+1 || len(l.buffer) >= 8*l.cap {
			continue
		}
		if r.overdue(l) {
			l.rewind(l.next.UnixMicro()) // what was put off lies before what is put in now
			continue
		}
		l.seq = seqs[id]
		for _, item := range list {
			k := item.Key()
			if l.meets(k) {
				continue
			}
			l.known[k.ID] = place{k, l.seq}
			l.buffer = append(l.buffer, item)
			if !l.unsure { // otherwise something may have become due before it
				l.after = k
			}
		}
		l.drained = time.Time{}
		r.offer(l)
	}
	r.pump()
}

func (r *Runner[T]) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. Then it starts nothing more, lets what is at work
// finish, and gives the lanes back.
func (r *Runner[T]) Run(ctx context.Context) {
	work, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	r.work = work
	r.wakeUp()
	r.keep(ctx)
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	after := context.WithoutCancel(ctx)
	r.leave(after, giveUp)
	ctx, cancel := context.WithTimeout(after, heartbeat)
	defer cancel()
	if err := r.releaseAll(ctx); err != nil {
		slog.Warn("lanes were not given back; others have them when the lease ends", "queue", r.queue, "error", err)
	}
}

// Stats is how a node's lanes are doing.
type Stats struct {
	Lanes   int // leased
	Running int // items at work
	Slow    int // of them in slow lanes
	Open    int // items at work or whose outcome is not written yet
}

// Stats tells how it is going.
func (r *Runner[T]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{len(r.lanes), r.running, r.among[slow], r.open}
}
