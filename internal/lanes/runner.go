package lanes

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
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

	wake chan struct{} // for keep: there may be lanes to claim

	mu       sync.Mutex
	lanes    map[string]*lane[T]
	tardy    map[string]struct{} // those that were slow when they were given back
	looks    fifo[T]             // lanes that are to be looked into
	ready    fifo[T]             // lanes that have an item to start, well and slow ones apart
	slow     fifo[T]
	running  int // items at work
	slowly   int // of them in slow lanes
	fetches  int
	valid    time.Time // until when the leases hold
	stopping bool
	idle     sync.WaitGroup // items and fetches
	work     context.Context
}

// lane is a lane that this node has.
type lane[T Item] struct {
	id     string
	seq    int64 // of the last look
	buffer []T
	known  map[string]struct{} // ids that are buffered or at work
	late   map[string]struct{} // ids that were finished while a look was under way
	after  Key                 // behind which the next look begins
	active int
	cap    int
	streak int // of well items, to grow the cap
	slow   bool

	fetching  bool
	releasing bool
	queued    bool // in a line
	more      bool // the last look was cut off at its limit
	dirty     bool // something was put in since the last look began
	lost      bool // the lease is another's now

	next    time.Time // when a drained lane has work again
	drained time.Time // since when there is nothing to do; zero while there is
}

// NewRunner makes a runner; Run starts it.
func NewRunner[T Item](d *db.DB, source Source[T], o Options) *Runner[T] {
	r := &Runner[T]{queue: o.Queue, node: o.Node, db: d, source: source, now: o.Now, cap: o.Cap, slots: o.Slots, limit: o.Lanes,
		poll: cmp.Or(o.Poll, defaultPoll), linger: cmp.Or(o.Linger, defaultLinger), grace: cmp.Or(o.Grace, lease),
		wake: make(chan struct{}, 1), lanes: map[string]*lane[T]{}, tardy: map[string]struct{}{}}
	d.OnSignal(signalOf(o.Queue), r.kick)
	return r
}

// kick is called when something was put into lanes, here or elsewhere. The
// payload names them, or is empty for any.
func (r *Runner[T]) kick(payload string) {
	r.mu.Lock()
	foreign := payload == ""
	if payload == "" {
		for _, l := range r.lanes {
			l.dirty = true
			r.offer(l)
		}
	} else {
		for id := range strings.SplitSeq(payload, ",") {
			if l := r.lanes[id]; l != nil {
				l.dirty = true
				r.offer(l)
			} else {
				foreign = true
			}
		}
	}
	r.pump()
	r.mu.Unlock()
	if foreign {
		r.wakeUp()
	}
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

// leave waits for what is at work. Others get the lanes with nothing at work
// now, as those must not wait for their neighbours, and are kept from the rest
// by renewing. What takes too long is given up, and all of it when the store is
// away until the leases have run out: it would wait for ever, and then be
// another's.
func (r *Runner[T]) leave(ctx context.Context, giveUp func()) {
	defer time.AfterFunc(r.grace, giveUp).Stop()
	done := make(chan struct{})
	go func() {
		r.idle.Wait()
		close(done)
	}()
	tick := time.NewTicker(r.poll)
	defer tick.Stop()
	var renewed time.Time
	for {
		select {
		case <-done:
			return
		default:
		}
		if time.Since(renewed) >= heartbeat && r.renewAll(ctx) {
			renewed = time.Now()
		}
		r.handOver(ctx)
		if r.expired() {
			giveUp()
		}
		select {
		case <-done:
			return
		case <-tick.C:
		}
	}
}

// expired reports whether others may have our lanes by now.
func (r *Runner[T]) expired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.valid)
}

// handOver gives lanes with nothing at work to whoever comes next.
func (r *Runner[T]) handOver(ctx context.Context) {
	var free []string
	r.mu.Lock()
	for id, l := range r.lanes {
		if l.active == 0 && !l.fetching {
			free = append(free, id)
		}
	}
	r.mu.Unlock()
	for part := range slices.Chunk(free, claimBatch) {
		if err := r.freeLanes(ctx, part); err != nil {
			slog.Warn("cannot hand lanes over; it is tried again", "queue", r.queue, "error", err)
			return
		}
		r.mu.Lock()
		for _, id := range part {
			r.forget(r.lanes[id])
		}
		r.mu.Unlock()
	}
}

// keep claims, renews and releases.
func (r *Runner[T]) keep(ctx context.Context) {
	tick := time.NewTicker(r.poll)
	defer tick.Stop()
	var renewed time.Time
	for {
		expired := false
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
			expired = true
		}
		if time.Since(renewed) >= heartbeat {
			if r.renewAll(ctx) {
				renewed = time.Now()
			}
		}
		if expired { // that is, once per poll; before there is more, as there may be no room
			r.giveBack(ctx)
		}
		r.claimAll(ctx, expired)
	}
}

// claimAll takes what is due, as long as there is room.
func (r *Runner[T]) claimAll(ctx context.Context, expired bool) {
	for ctx.Err() == nil {
		r.mu.Lock()
		room := min(r.limit-len(r.lanes), claimBatch)
		r.mu.Unlock()
		if room <= 0 {
			return
		}
		any, err := r.due(ctx, false)
		if err == nil && any {
			var got []leased
			got, err = r.claim(ctx, room, false)
			r.take(got)
			if err == nil && len(got) == room {
				continue
			}
		}
		if err == nil && expired {
			if any, err = r.due(ctx, true); err == nil && any {
				var got []leased
				got, err = r.claim(ctx, room, true)
				r.take(got)
				if len(got) > 0 {
					slog.Info("took over lanes of a node that is gone", "queue", r.queue, "lanes", len(got))
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("cannot claim lanes; it is tried again", "queue", r.queue, "error", err)
		}
		return
	}
}

// take adds claimed lanes.
func (r *Runner[T]) take(got []leased) {
	if len(got) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range got {
		if r.lanes[g.id] != nil {
			continue // our own, whose lease had run out
		}
		l := &lane[T]{id: g.id, seq: g.seq, known: map[string]struct{}{}, cap: min(startCap, r.cap), dirty: true}
		if _, slow := r.tardy[g.id]; slow {
			delete(r.tardy, g.id)
			l.slow, l.cap = true, 1
		}
		r.lanes[g.id] = l
		r.offer(l)
	}
	r.pump()
}

// renewAll extends the leases, and drops lanes that turn out to be another's.
func (r *Runner[T]) renewAll(ctx context.Context) bool {
	until := time.Now().Add(lease)
	ids, err := r.renew(ctx, until)
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("cannot renew leases; it is tried again", "queue", r.queue, "error", err)
		}
		return false
	}
	ours := make(map[string]bool, len(ids))
	for _, id := range ids {
		ours[id] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.valid = until
	for id, l := range r.lanes {
		if !ours[id] {
			r.forget(l)
		}
	}
	r.pump()
	return true
}

// forget drops a lane that is no longer ours. That it was slow is remembered:
// otherwise a crowd of dead ones would have all the slots again each time that
// they come back with a retry.
func (r *Runner[T]) forget(l *lane[T]) {
	l.lost = true
	l.buffer = nil
	delete(r.lanes, l.id)
	if !l.slow {
		return
	}
	if len(r.tardy) >= maxTardy {
		for other := range r.tardy {
			delete(r.tardy, other) // any one
			break
		}
	}
	r.tardy[l.id] = struct{}{}
}

// giveBack releases what has been drained for a while, and looks again at
// lanes whose next item has become due.
func (r *Runner[T]) giveBack(ctx context.Context) {
	now := r.now()
	var list []released
	r.mu.Lock()
	for _, l := range r.lanes {
		if l.drained.IsZero() || !l.idle() {
			continue
		}
		switch {
		case l.dirty || !l.next.IsZero() && !l.next.After(now):
			l.dirty = true
			r.offer(l)
		case time.Since(l.drained) >= r.linger || len(r.lanes) >= r.limit:
			l.releasing = true
			list = append(list, released{l.id, l.seq, l.next})
		}
	}
	r.pump()
	r.mu.Unlock()
	for len(list) > 0 {
		n := min(len(list), claimBatch)
		gone, err := r.release(ctx, list[:n])
		if err != nil && ctx.Err() == nil {
			slog.Warn("cannot release lanes; it is tried again", "queue", r.queue, "error", err)
		}
		r.afterRelease(list[:n], gone, err == nil)
		list = list[n:]
	}
}

// afterRelease forgets the lanes that are gone. The others were kept because
// something was put into them.
func (r *Runner[T]) afterRelease(list []released, gone []string, looked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range list {
		l := r.lanes[g.id]
		if l == nil {
			continue
		}
		l.releasing = false
		if slices.Contains(gone, g.id) {
			r.forget(l)
			if l.dirty { // put in after it was given back: it is due, and ours to claim again
				r.wakeUp()
			}
			continue
		}
		l.dirty = l.dirty || looked
		r.offer(l)
	}
	r.pump()
}

// idle reports whether nothing of the lane is in hand.
func (l *lane[T]) idle() bool { return l.active == 0 && !l.fetching && len(l.buffer) == 0 }

// offer puts a lane at the end of the line for what it can do next, once.
func (r *Runner[T]) offer(l *lane[T]) {
	switch {
	case l.queued || l.lost || l.releasing:
		return
	case len(l.buffer) > 0 && l.active >= l.cap:
		return
	case len(l.buffer) > 0 && l.slow:
		r.slow.push(l)
	case len(l.buffer) > 0:
		r.ready.push(l)
	case !l.fetching && (l.dirty || l.more):
		r.looks.push(l)
	default:
		return
	}
	l.queued = true
}

// pump starts what can be started: one item per lane and turn, so that lanes
// go round; slow ones get at most three quarters of the slots, so that however
// many there are, the well ones find room.
func (r *Runner[T]) pump() {
	if r.stopping || !time.Now().Before(r.valid) {
		return
	}
	for r.running < r.slots {
		for r.fetches < maxFetches {
			l := r.looks.pop()
			if l == nil {
				break
			}
			l.queued = false
			if !l.lost && !l.releasing && !l.fetching {
				r.look(l)
			}
		}
		l := r.ready.pop()
		if l == nil && r.slowly < max(1, r.slots*3/4) {
			l = r.slow.pop()
		}
		if l == nil {
			return
		}
		l.queued = false
		if l.lost || len(l.buffer) == 0 || l.active >= l.cap {
			r.offer(l)
			continue
		}
		r.start(l)
		if len(l.buffer) <= l.cap/2 && l.more && !l.fetching && r.fetches < maxFetches {
			r.look(l) // ahead of time, so that the lane does not run dry
		}
		r.offer(l)
	}
}

// start works the lane's next item.
func (r *Runner[T]) start(l *lane[T]) {
	item := l.buffer[0]
	l.buffer = l.buffer[1:]
	l.active++
	l.drained = time.Time{}
	r.running++
	slow := l.slow
	if slow {
		r.slowly++
	}
	r.idle.Go(func() {
		well := r.source.Work(r.work, l.id, item)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running--
		if slow {
			r.slowly--
		}
		l.active--
		id := item.Key().ID
		delete(l.known, id)
		if l.fetching {
			// The look may have seen it as it was before.
			l.late[id] = struct{}{}
		}
		l.judge(well, r.cap)
		if l.active == 0 && len(l.buffer) == 0 {
			// What was put off to later while it was worked is not known yet.
			l.dirty = true
		}
		r.offer(l)
		r.pump()
	})
}

// judge lets a lane that does well have more at once, and one that does not
// less: a dead endpoint costs one slot.
func (l *lane[T]) judge(well bool, most int) {
	if !well {
		l.cap = max(1, l.cap/2)
		l.streak = 0
		l.slow = true
		return
	}
	l.slow = false
	if l.streak++; l.streak >= l.cap {
		l.streak = 0
		l.cap = min(2*l.cap, most)
	}
}

// look fetches what the lane has to do.
func (r *Runner[T]) look(l *lane[T]) {
	l.fetching, l.dirty = true, false
	l.late = map[string]struct{}{}
	r.fetches++
	after, n := l.after, 2*l.cap
	// At rest a lane is looked at from its beginning: an item may have been
	// put in that is due before those that were seen.
	if l.active == 0 && len(l.buffer) == 0 {
		after = Key{}
	}
	r.idle.Go(func() {
		seq, err := r.seqOf(r.work, l.id)
		var b Batch[T]
		if err == nil {
			b, err = r.source.Fetch(r.work, l.id, after, n)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		l.fetching = false
		r.fetches--
		if err != nil {
			slog.Warn("cannot look into a lane; it is tried again", "queue", r.queue, "lane", l.id, "error", err)
			// Not at once: the poll finds it drained and dirty.
			l.dirty, l.drained = true, time.Now()
			r.pump()
			return
		}
		r.found(l, seq, after, b, n)
		r.pump()
	})
}

// found adds what a look brought.
func (r *Runner[T]) found(l *lane[T], seq int64, after Key, b Batch[T], n int) {
	l.seq, l.next = seq, b.Next
	l.more = len(b.Items) >= n || b.Again
	for _, item := range b.Items {
		k := item.Key()
		l.after = k
		if _, again := l.known[k.ID]; again {
			continue
		}
		if _, over := l.late[k.ID]; over {
			continue
		}
		l.known[k.ID] = struct{}{}
		l.buffer = append(l.buffer, item)
	}
	if len(b.Items) == 0 && !b.Again {
		l.after = Key{}
		switch {
		case l.active > 0 || len(l.buffer) > 0:
			// The last of them to finish has the lane looked at again.
		case after != (Key{}):
			l.dirty = true // only behind the key was nothing
		case l.drained.IsZero():
			l.drained = time.Now()
		}
	} else {
		l.drained = time.Time{}
	}
	r.offer(l)
}

// Stats is how a node's lanes are doing.
type Stats struct {
	Lanes   int // leased
	Running int // items at work
	Slow    int // of them in slow lanes
}

// Stats tells how it is going.
func (r *Runner[T]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{len(r.lanes), r.running, r.slowly}
}

// fifo is a line of lanes.
type fifo[T Item] struct{ in, out []*lane[T] }

func (f *fifo[T]) push(l *lane[T]) { f.in = append(f.in, l) }

func (f *fifo[T]) pop() *lane[T] {
	if len(f.out) == 0 {
		f.in, f.out = f.out, f.in
		slices.Reverse(f.out)
	}
	n := len(f.out)
	if n == 0 {
		return nil
	}
	l := f.out[n-1]
	f.out[n-1] = nil
	f.out = f.out[:n-1]
	return l
}
