package lanes

import "time"

// What a node does with the lanes it has: whose turn it is, what is started,
// and what came of it. The runner's lock is held throughout.

// standing is how a lane has been doing.
type standing int

const (
	strange   standing = iota // nothing is known of it yet
	well                      // its last item was worked in time
	slow                      // it was slow or dead
	standings                 // how many there are
)

// idle reports whether nothing of the lane is in hand.
func (l *lane[T]) idle() bool { return l.open == 0 && !l.fetching && len(l.buffer) == 0 }

// offer puts a lane into the line for what it can do next, once.
func (r *Runner[T]) offer(l *lane[T]) {
	switch {
	case l.queued || l.lost || l.releasing:
		return
	case len(l.buffer) > 0 && l.active >= l.cap:
		return
	case len(l.buffer) > 0:
		r.ready[l.doing].push(l, r.missed(l))
	case !l.fetching && l.wanted():
		r.looks.push(l, r.missed(l))
	default:
		return
	}
	l.queued = true
}

// missed reports whether the lane would have had its next turn by now if it had
// always stood in line: it had nothing to do meanwhile, or had to be looked into.
func (r *Runner[T]) missed(l *lane[T]) bool { return l.turn <= r.ready[l.doing].turns }

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
	as   standing // of its lane when it began
}

// next begins one item, if there is one and a place for it.
func (r *Runner[T]) next() (t turn[T], ok bool) {
	if r.stopping || !time.Now().Before(r.valid) {
		return t, false
	}
	for r.open-r.running < r.unwritten {
		if r.lookAround(); r.running >= r.slots {
			return t, false
		}
		l := r.choose()
		if l == nil {
			return t, false
		}
		l.queued = false
		if l.lost || len(l.buffer) == 0 || l.active >= l.cap { // meanwhile
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

// choose takes a lane out of its line. Lanes go round, an item each; strangers
// and well ones by turns, and slow ones get every eighth while there are others.
func (r *Runner[T]) choose() *lane[T] {
	order := [standings]standing{well, strange, slow}
	switch {
	case r.turns%8 == 0:
		order = [standings]standing{slow, strange, well}
	case r.turns%2 == 0:
		order = [standings]standing{strange, well, slow}
	}
	for _, as := range order {
		if r.room(as) {
			if l := r.ready[as].pop(); l != nil {
				return l
			}
		}
	}
	return nil
}

// room reports whether an item of such a lane may begin. The last quarter of
// the places is for the lanes that are known to be well, so that however many
// others there are, they find room. Half of them are not for slow ones, so that
// strangers do, too.
func (r *Runner[T]) room(as standing) bool {
	switch {
	case as == well:
		return true
	case r.among[strange]+r.among[slow] >= r.slots-r.slots/4:
		return false
	}
	return as == strange || r.among[slow] < max(1, r.slots/2)
}

// lookAround looks into the lanes that have nothing in hand, before any that has
// is looked into ahead of time, and however many have: they could go on for
// hours, and a newcomer has one item.
func (r *Runner[T]) lookAround() {
	for r.fetches < maxFetches {
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
	t := turn[T]{l, l.buffer[0], l.doing}
	clear(l.buffer[:1]) // or the lane would keep what is done
	if l.buffer = l.buffer[1:]; len(l.buffer) == 0 {
		l.buffer = nil
	}
	l.active++
	l.open++
	l.drained = time.Time{}
	l.served, l.turn = true, r.ready[l.doing].end()
	r.running++
	r.open++
	r.turns++
	r.among[t.as]++
	return t
}

// do works an item, and then the next as long as there is one: a goroutine
// that has grown its stack is worth keeping.
func (r *Runner[T]) do(t turn[T]) {
	for ok := true; ok; {
		result := r.source.Work(r.work, t.lane.id, t.item)
		l, k := t.lane, t.item.Key()
		result.Outcome.Then(func() { r.written(l, k, result) })
		t, ok = r.done(t, result.Healthy)
	}
}

// done frees the place of an item, and returns what to do in it. What came of
// the item is written meanwhile, many of them in one commit; until then it
// stays known.
func (r *Runner[T]) done(t turn[T], fine bool) (turn[T], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.among[t.as]--
	l := t.lane
	if l.active >= l.cap && len(l.buffer) > 0 {
		l.turn = r.ready[l.doing].end() // its own cap kept it out of the line, and it has missed nothing
	}
	l.active--
	r.judge(l, fine)
	r.offer(l)
	next, ok := r.next()
	if ok {
		r.pump() // the lane may have more at once now
	}
	return next, ok
}

// written forgets an item: the next look finds it as it is now.
func (r *Runner[T]) written(l *lane[T], k Key, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	l.open--
	seen := l.known[k.ID]
	delete(l.known, k.ID)
	if l.fetching {
		// The look may have seen it as it was before.
		l.late[k.ID] = seen
	}
	r.leaves(l, k, seen, result)
	if r.open == 0 && r.leaving != nil {
		close(r.leaving)
		r.leaving = nil
	}
	r.settle(l)
	r.offer(l)
	r.pump()
}

// judge lets a lane that does well have more at once, and one that does not
// less: a dead endpoint costs one slot. One that changes leaves its line.
func (r *Runner[T]) judge(l *lane[T], fine bool) {
	was := l.doing
	if fine {
		l.doing = well
		if l.streak++; l.streak >= l.cap {
			l.streak = 0
			l.cap = min(2*l.cap, r.cap)
		}
	} else {
		l.doing = slow
		l.streak = 0
		l.cap = max(1, l.cap/2)
	}
	if l.doing == was {
		return
	}
	l.turn = r.ready[l.doing].end()
	if l.queued && r.ready[was].remove(l) {
		l.queued = false
	}
}
