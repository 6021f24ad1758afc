package lanes

import (
	"time"

	"turnpike/internal/budget"
)

// This file decides which lane's item runs next, runs it, and handles its
// result. The runner's lock is held throughout, except while an item runs.

// schedule adds the lane to the queue for its next step, if it has one.
func (r *Runner[T]) schedule(l *lane[T]) {
	switch {
	case l.queue != nil || l.phase == releasing || l.phase == lost || l.givenTo != "":
	case len(l.buffer) > 0:
		if l.running < l.limit && !r.paced(l) {
			r.ready[l.health].push(l, r.missedTurn(l))
		}
	case l.phase != scanning && l.scanFrom != noScan:
		r.toScan.push(l, r.missedTurn(l))
	}
}

// paced reports whether the lane must wait before its next item starts, and schedules it for then.
// Meanwhile it has no slot and isn't queued.
func (r *Runner[T]) paced(l *lane[T]) bool {
	wait := l.pace.wait(time.Now())
	if wait <= 0 {
		return false
	}
	if !l.pace.timer {
		l.pace.timer = true
		time.AfterFunc(wait, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			l.pace.timer = false
			r.schedule(l)
			r.dispatch()
		})
	}
	return true
}

// SetInterval sets the minimum time between the starts of a lane's items; zero means none. It has
// no effect on a lane that this node doesn't lease, so a source calls it for each lane that it
// reads. One item may start early when the lane moves to another node.
func (r *Runner[T]) SetInterval(id string, interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[id]
	if l == nil || l.pace.interval == interval {
		return
	}
	l.pace.interval = interval
	if soonest := time.Now().Add(interval); l.pace.next.After(soonest) {
		l.pace.next = soonest
	}
	r.schedule(l)
	r.dispatch()
}

// missedTurn reports whether the lane would have had its next turn by now if it
// had always been queued.
func (r *Runner[T]) missedTurn(l *lane[T]) bool { return l.turn <= r.ready[l.health].turns }

// dispatch starts all scans and items that can start.
func (r *Runner[T]) dispatch() {
	for {
		e, ok := r.startNext()
		if !ok {
			return
		}
		r.goroutines.Go(func() { r.run(e) })
	}
}

// execution is a running item.
type execution[T Item] struct {
	lane   *lane[T]
	item   T
	health health // of its lane when it started
}

// startNext starts one item, if an item and a slot are available.
func (r *Runner[T]) startNext() (e execution[T], ok bool) {
	if r.stopping || !time.Now().Before(r.leasedUntil) {
		return e, false
	}
	for r.inFlight-r.running < r.MaxUnwritten {
		if r.startScans(); r.running >= r.Slots {
			return e, false
		}
		l := r.nextLane()
		if l == nil {
			return e, false
		}
		if len(l.buffer) == 0 || l.running >= l.limit || l.givenTo != "" || r.paced(l) { // changed since it was queued, or lost
			r.schedule(l)
			continue
		}
		e = r.takeItem(l)
		if len(l.buffer) <= l.limit && l.truncated && l.phase == working && r.scans < maxScans {
			r.startScan(l) // early, so that the lane doesn't run dry
		}
		r.schedule(l)
		return e, true
	}
	return e, false
}

// nextLane takes a lane out of its queue. Unknown and healthy lanes alternate.
// Slow ones get every eighth turn while there are others.
func (r *Runner[T]) nextLane() *lane[T] {
	order := [healths]health{healthy, unknown, slow}
	switch {
	case r.started%8 == 0:
		order = [healths]health{slow, unknown, healthy}
	case r.started%2 == 0:
		order = [healths]health{unknown, healthy, slow}
	}
	for _, h := range order {
		if r.hasSlot(h) {
			if l := r.ready[h].pop(); l != nil {
				return l
			}
		}
	}
	return nil
}

// hasSlot reports whether an item of a lane with this health may start. The
// last quarter of the slots is reserved for healthy lanes. Slow lanes get at
// most half of the slots, so that unknown ones find some.
func (r *Runner[T]) hasSlot(h health) bool {
	switch {
	case h == healthy:
		return true
	case r.runningBy[unknown]+r.runningBy[slow] >= r.Slots-r.Slots/4:
		return false
	}
	return h == unknown || r.runningBy[slow] < max(1, r.Slots/2)
}

// startScans scans the lanes that have nothing buffered. They come before early
// scans of lanes with items: those could continue for hours, and a new lane may
// have a single item.
func (r *Runner[T]) startScans() {
	for r.scans < maxScans {
		l := r.toScan.pop()
		if l == nil {
			return
		}
		if l.givenTo == "" && (l.phase == idle || l.phase == working) {
			r.startScan(l)
		}
	}
}

// takeItem takes the lane's next item out of its buffer to run it.
func (r *Runner[T]) takeItem(l *lane[T]) execution[T] {
	e := execution[T]{l, l.buffer[0], l.health}
	clear(l.buffer[:1]) // or the lane would retain finished items
	if l.buffer = l.buffer[1:]; len(l.buffer) == 0 {
		l.buffer = nil
	}
	l.running++
	l.inFlight++
	l.pace.start(time.Now())
	l.started, l.turn = true, r.ready[l.health].lastTurn()
	r.running++
	r.inFlight++
	r.started++
	r.runningBy[e.health]++
	return e
}

// run runs an item, and then others while there are any. Reusing the goroutine
// keeps its grown stack.
func (r *Runner[T]) run(e execution[T]) {
	for ok := true; ok; {
		ctx, own := budget.Begin(r.workCtx, e.lane.id)
		result := r.source.Work(ctx, e.lane.id, e.item)
		l, k := e.lane, e.item.Key()
		result.Outcome.Then(func() {
			own.Release() // what is to be written takes memory as well
			r.written(l, k, result)
		})
		e, ok = r.finish(e, result.Healthy)
	}
}

// finish frees the slot of an item, and returns the next item for it. The item
// stays known until its outcome is written; one commit writes many outcomes.
func (r *Runner[T]) finish(e execution[T], fine bool) (next execution[T], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.runningBy[e.health]--
	l := e.lane
	if l.running >= l.limit && len(l.buffer) > 0 {
		l.turn = r.ready[l.health].lastTurn() // only its limit kept it out of the queue: it missed no turn
	}
	l.running--
	r.updateHealth(l, fine)
	r.schedule(l)
	if next, ok = r.startNext(); ok {
		r.dispatch() // the lane's limit may have grown
	}
	return next, ok
}

// written removes an item whose outcome was written, so that the next scan
// finds its current state.
func (r *Runner[T]) written(l *lane[T], k Key, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	l.inFlight--
	seen := l.known[k.ID]
	delete(l.known, k.ID)
	if r.inFlight == 0 && r.allWritten != nil {
		close(r.allWritten)
		r.allWritten = nil
	}
	if l.phase != lost {
		r.scheduleRest(l, k, seen, result)
		if l.phase == scanning {
			l.finished[k.ID] = seen // the scan may have seen its earlier state
		} else {
			l.rest()
		}
		r.settleIdle(l)
		r.schedule(l)
		r.wakeIfDrained(l)
	}
	r.dispatch()
}

// updateHealth raises the limit of a healthy lane and lowers that of others, so
// that a dead endpoint uses one slot. A lane whose health changes leaves its
// queue.
func (r *Runner[T]) updateHealth(l *lane[T], fine bool) {
	was := l.health
	if fine {
		l.health = healthy
		if l.streak++; l.streak >= l.limit {
			l.streak = 0
			l.limit = min(2*l.limit, r.PerLane)
		}
	} else {
		l.health = slow
		l.streak = 0
		l.limit = max(1, l.limit/2)
	}
	if l.health != was {
		l.turn = r.ready[l.health].lastTurn()
		r.ready[was].remove(l)
	}
}
