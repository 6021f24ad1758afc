package lanes

import (
	"log/slog"
	"slices"
	"time"
)

// What a node does with the lanes it has: whose turn it is, what is started,
// and what a look into a lane brought. The runner's lock is held throughout.

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
