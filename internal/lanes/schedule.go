package lanes

import (
	"log/slog"
	"math/bits"
	"slices"
	"time"
)

// What a node does with the lanes it has: whose turn it is, what is started,
// and what a look into a lane brought. The runner's lock is held throughout.

// idle reports whether nothing of the lane is in hand.
func (l *lane[T]) idle() bool { return l.open == 0 && !l.fetching && len(l.buffer) == 0 }

// overdue reports whether something in the lane that was put off is due by now.
func (r *Runner[T]) overdue(l *lane[T]) bool { return !l.next.IsZero() && !l.next.After(r.now()) }

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

// pump starts what can be started.
func (r *Runner[T]) pump() {
	for {
		t, ok := r.next()
		if !ok {
			return
		}
		r.idle.Go(func() { r.do(t) })
	}
}

// turn is an item that is at work.
type turn[T Item] struct {
	lane *lane[T]
	item T
	slow bool // its lane was when it began
}

// next begins one item, if there is one and a place for it. Lanes go round, an
// item each. Slow ones get every eighth turn while there are others, and at
// most three quarters of the places, so that however many there are, the well
// ones find room.
func (r *Runner[T]) next() (t turn[T], ok bool) {
	if r.stopping || !time.Now().Before(r.valid) {
		return t, false
	}
	for r.running < r.slots && r.open-r.running < r.unwritten {
		r.lookAround()
		var l *lane[T]
		r.turns++
		room := r.slowly < max(1, r.slots*3/4)
		if room && r.turns%8 == 0 {
			l = r.slow.pop()
		}
		if l == nil {
			l = r.ready.pop()
		}
		if l == nil && room {
			l = r.slow.pop()
		}
		if l == nil {
			return t, false
		}
		l.queued = false
		if l.lost || len(l.buffer) == 0 || l.active >= l.cap {
			r.offer(l)
			continue
		}
		t = r.begin(l)
		if len(l.buffer) <= l.cap && l.more && !l.fetching && r.fetches < maxFetches {
			r.look(l) // ahead of time, so that the lane does not run dry
		}
		r.offer(l)
		return t, true
	}
	return t, false
}

// lookAround looks into lanes while there are not enough known to have work.
func (r *Runner[T]) lookAround() {
	for r.fetches < maxFetches && r.ready.len() < r.slots {
		l := r.looks.pop()
		if l == nil {
			return
		}
		l.queued = false
		if !l.lost && !l.releasing && !l.fetching {
			r.look(l)
		}
	}
}

// begin takes the lane's next item.
func (r *Runner[T]) begin(l *lane[T]) turn[T] {
	t := turn[T]{l, l.buffer[0], l.slow}
	clear(l.buffer[:1]) // or the lane would keep what is done
	if l.buffer = l.buffer[1:]; len(l.buffer) == 0 {
		l.buffer = nil
	}
	l.active++
	l.open++
	l.drained = time.Time{}
	r.running++
	r.open++
	if t.slow {
		r.slowly++
	}
	return t
}

// do works an item, and then the next as long as there is one: a goroutine
// that has grown its stack is worth keeping.
func (r *Runner[T]) do(t turn[T]) {
	for ok := true; ok; {
		result := r.source.Work(r.work, t.lane.id, t.item)
		l, id := t.lane, t.item.Key().ID
		result.Outcome.Then(func() { r.written(l, id, result.Over) })
		t, ok = r.done(t, result.Well)
	}
}

// done frees the place of an item, and returns what to do in it. What came of
// the item is written meanwhile, many of them in one commit; until then it
// stays known.
func (r *Runner[T]) done(t turn[T], well bool) (turn[T], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if t.slow {
		r.slowly--
	}
	l := t.lane
	l.active--
	l.judge(well, r.cap)
	r.offer(l)
	next, ok := r.next()
	if ok {
		r.pump() // the lane may have more at once now
	}
	return next, ok
}

// written forgets an item: the next look finds it as it is now.
func (r *Runner[T]) written(l *lane[T], id string, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	l.open--
	delete(l.known, id)
	if l.fetching {
		// The look may have seen it as it was before.
		l.late[id] = struct{}{}
	}
	l.unsure = l.unsure || !over
	if l.open == 0 && len(l.buffer) == 0 {
		if l.unsure || r.overdue(l) {
			l.dirty = true
		} else if !l.dirty && !l.more && !l.fetching && l.drained.IsZero() {
			l.drained = time.Now()
		}
	}
	if r.open == 0 && r.leaving != nil {
		close(r.leaving)
		r.leaving = nil
	}
	r.offer(l)
	r.pump()
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
	// Alone a lane gets enough for a while. Among many it is its turn seldom,
	// and what it holds meanwhile takes memory. Powers of two, as sources may
	// have a statement for each number.
	after, n := l.after, min(8*l.cap, max(leastLook, maxBuffered/(1+r.ready.len())))
	n = 1 << (bits.Len(uint(n)) - 1)
	// At rest a lane is looked at from its beginning: an item may have been
	// put in that is due before those that were seen.
	if l.open == 0 && len(l.buffer) == 0 {
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
	l.late = nil
	l.unsure = true
	switch {
	case len(b.Items) > 0 || b.Again:
		l.drained = time.Time{}
	case l.open > 0 || len(l.buffer) > 0:
		// The last of them to finish has the lane looked at again.
		l.after = Key{}
	case after != (Key{}):
		l.after = Key{}
		l.dirty = true // only behind the key was nothing
	default:
		l.unsure = false
		if l.drained.IsZero() {
			l.drained = time.Now()
		}
	}
	r.offer(l)
}

// fifo is a line of lanes.
type fifo[T Item] struct{ in, out []*lane[T] }

func (f *fifo[T]) len() int { return len(f.in) + len(f.out) }

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
