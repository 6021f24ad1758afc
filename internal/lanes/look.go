package lanes

import (
	"log/slog"
	"math/bits"
	"time"
)

// What calls for a look into a lane, and what it brought. A look costs queries,
// so a lane that is busy is looked into only for a reason: something was put
// in, something of it is due again, or it is not known what comes next. The
// runner's lock is held throughout, except while the source is asked.

// overdue reports whether something in the lane that was put off is due by now.
func (r *Runner[T]) overdue(l *lane[T]) bool { return !l.next.IsZero() && !l.next.After(r.now()) }

// sooner is the earlier of two moments, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// wanted reports whether the lane is to be looked into.
func (l *lane[T]) wanted() bool { return l.dirty || l.more || l.again }

// rewind has the lane looked into for what is due from a moment on, of which
// something may have been seen before.
func (l *lane[T]) rewind(due int64) {
	if !l.again || due < l.from {
		l.again, l.from = true, due
	}
}

// leaves says when what is left of an item is to be looked for, whatever else
// of the lane is still at work.
func (r *Runner[T]) leaves(l *lane[T], k Key, seen place, result Result) {
	if result.Outcome.Failed() {
		result.Done, result.Due = false, nil // the store has it as it was
	}
	if seen.seq < l.put {
		l.gap = true // what was put in may be the item itself, with other plans than its work had
	}
	switch {
	case seen.Key != k: // it was put in again while it was at work
		l.rewind(min(k.Due, seen.Due))
		l.unsure = true
	case result.Done:
	case result.Due == nil:
		l.rewind(k.Due)
		l.unsure = true // it may be due later
	case result.Due.After(r.now()):
		l.next = sooner(l.next, *result.Due)
	default:
		l.rewind(result.Due.UnixMicro())
	}
}

// settle says since when a lane at rest has nothing to do, or has it looked
// into: before it is given back it must be known what comes next.
func (r *Runner[T]) settle(l *lane[T]) {
	if !l.idle() {
		return
	}
	if l.gap || l.unsure || l.owed || r.overdue(l) {
		l.dirty = true
	}
	if !l.wanted() && l.drained.IsZero() {
		l.drained = time.Now()
	}
}

// remind has a lane looked into for what nobody said, once per poll: what is
// due by now, and what the last look left open.
func (r *Runner[T]) remind(l *lane[T]) {
	switch {
	case l.fetching:
	case l.more:
		// The looks go on. They begin anew only where that brings them further:
		// what is in hand is met once more.
		if l.gap && 2*len(l.known) <= r.breadth(l) {
			l.rewind(0)
		}
	case len(l.buffer) > 0:
	case l.gap:
		l.rewind(0)
	case l.unsure:
		l.more = true
	case r.overdue(l):
		l.rewind(l.next.UnixMicro())
	}
	if l.wanted() {
		r.offer(l)
	}
}

// breadth is how much a look into the lane may bring. Alone a lane gets enough
// for a while. Among many it is its turn seldom, and what it holds meanwhile
// takes memory. Powers of two, as sources may have a statement for each number.
func (r *Runner[T]) breadth(l *lane[T]) int {
	have := 0
	for s := range r.ready {
		have += r.ready[s].len()
	}
	n := min(8*l.cap, max(leastLook, maxBuffered/(1+have)))
	return 1 << (bits.Len(uint(n)) - 1)
}

// view is a look that is under way.
type view struct {
	after Key
	n     int
	next  time.Time // what was known to come next before it, unless that was due
	due   bool      // it was
}

// look fetches what the lane has to do.
func (r *Runner[T]) look(l *lane[T]) {
	v := view{after: l.after, n: r.breadth(l), due: r.overdue(l)}
	switch {
	case l.open == 0 && len(l.buffer) == 0:
		// At rest a lane is looked at from its beginning: that costs nothing.
		v.after, l.owed = Key{}, false
	case l.again && l.from <= l.after.Due:
		v.after = Key{Due: l.from}
	}
	if !v.due {
		v.next = l.next
	}
	// What is put off from now on may not be seen by the look, and is added.
	l.next = time.Time{}
	l.fetching, l.dirty, l.again = true, false, false
	l.gap = l.gap && v.after != (Key{})
	l.late = map[string]place{}
	r.fetches++
	r.idle.Go(func() {
		seq, err := r.seqOf(r.work, l.id)
		var b Batch[T]
		if err == nil {
			b, err = r.source.Fetch(r.work, l.id, v.after, v.n)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		l.fetching = false
		r.fetches--
		if err != nil {
			slog.Warn("cannot look into a lane; it is tried again", "queue", r.queue, "lane", l.id, "error", err)
			// Not at once, but at the next poll.
			l.rewind(v.after.Due)
			l.next, l.unsure = sooner(l.next, v.next), true
			r.pump()
			return
		}
		r.found(l, v, seq, b)
		r.settle(l)
		r.offer(l)
		r.pump()
	})
}

// found adds what a look brought.
func (r *Runner[T]) found(l *lane[T], v view, seq int64, b Batch[T]) {
	put := seq != l.seq
	if l.seq = seq; put {
		l.put = seq
	}
	l.next = sooner(l.next, b.Next)
	l.more = len(b.Items) >= v.n
	l.gap = l.gap || put && v.after != (Key{})
	for _, item := range b.Items {
		k := item.Key()
		l.after = k
		if l.meets(k) {
			continue
		}
		if was, over := l.late[k.ID]; over {
			// As it was before, or as somebody has put it in again.
			if put || was.Key != k {
				l.rewind(k.Due)
			}
			continue
		}
		l.known[k.ID] = place{k, seq}
		l.buffer = append(l.buffer, item)
	}
	l.late = nil
	switch {
	case b.Rescan:
		l.unsure = true
		l.rewind(0) // the source did something, and may have put in anything
	case len(b.Items) > 0:
		// What comes later is not asked for when there are items, and is known
		// only if it was and nobody has put in anything since.
		l.next = sooner(l.next, v.next)
		l.unsure = l.unsure || put || v.due
	default:
		l.unsure = false
		if l.gap {
			l.rewind(0) // only behind the key was nothing
		}
	}
	if len(b.Items) > 0 || b.Rescan {
		l.drained, l.owed = time.Time{}, true
	}
}

// meets notes where an item that is in hand is seen again: if that is elsewhere
// than before, somebody has put it in again.
func (l *lane[T]) meets(k Key) bool {
	p, known := l.known[k.ID]
	if known {
		p.Key = k
		l.known[k.ID] = p
	}
	return known
}
