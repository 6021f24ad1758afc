package lanes

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"
)

// How a node comes to its lanes, keeps them, and gives them back. All of it is
// called by Run alone, one after the other.

// leave waits for what is at work. Others get the lanes with nothing at work
// now, as those must not wait for their neighbours, and are kept from the rest
// by renewing. What takes too long is given up, and all of it when the store is
// away until the leases have run out: it would wait for ever, and then be
// another's.
func (r *Runner[T]) leave(ctx context.Context, giveUp func()) {
	defer time.AfterFunc(r.grace, giveUp).Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.idle.Wait()
		select {
		case <-r.allWritten():
		case <-r.work.Done():
		}
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
		r.handOver(ctx, math.MaxInt, func(*lane[T]) bool { return true })
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

// allWritten is closed when no outcome waits for the store. Nothing may be at
// work any more.
func (r *Runner[T]) allWritten() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(chan struct{})
	if r.open == 0 {
		close(all)
	} else {
		r.leaving = all
	}
	return all
}

// expired reports whether others may have our lanes by now.
func (r *Runner[T]) expired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.valid)
}

// makeRoom gives lanes up if this node has as many as it may and others wait:
// however many are dead, or have work for hours, those find room. It gives up
// no more than wait, and only a few per poll, as each is claimed and looked into
// again when its time has come.
func (r *Runner[T]) makeRoom(ctx context.Context) {
	r.mu.Lock()
	full := len(r.lanes) >= r.limit
	r.mu.Unlock()
	if !full {
		return
	}
	if n, err := r.waiting(ctx, max(1, r.limit/16)); err == nil && n > 0 {
		r.handOver(ctx, n, r.spare)
	}
}

// spare reports whether a lane may make room for others. A well one has had a
// turn first, or where items take long it would never have one. A stranger will
// have one soon, unless strangers have all the places that they may have.
func (r *Runner[T]) spare(l *lane[T]) bool {
	switch l.doing {
	case well:
		return l.served
	case strange:
		return !r.room(strange)
	}
	return true
}

// handOver gives up to n lanes with nothing at work to whoever comes next: first
// those that are not well, then those that it has had longest. They are due from
// now on, and so go behind those that wait already. Also if that fails they are
// not worked any more, as it may have come through: what is still ours is taken
// again when the leases are renewed.
func (r *Runner[T]) handOver(ctx context.Context, n int, which func(*lane[T]) bool) {
	var list []*lane[T]
	r.mu.Lock()
	for _, l := range r.lanes {
		if l.open == 0 && !l.fetching && which(l) {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *lane[T]) int {
		if (a.doing == well) == (b.doing == well) {
			return a.taken.Compare(b.taken)
		}
		if b.doing == well {
			return -1
		}
		return 1
	})
	var free []string
	for _, l := range list[:min(n, len(list))] {
		r.forget(l)
		free = append(free, l.id)
	}
	r.mu.Unlock()
	for part := range slices.Chunk(free, claimBatch) {
		if err := r.freeLanes(ctx, part); err != nil {
			slog.Warn("cannot hand lanes over; it is tried again", "queue", r.queue, "error", err)
			return
		}
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
			r.makeRoom(ctx)
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
		l := &lane[T]{id: g.id, seq: g.seq, known: map[string]place{}, cap: min(startCap, r.cap), dirty: true, unsure: true, taken: time.Now()}
		if l.record = r.past[g.id]; l.doing == slow {
			l.cap = 1
		}
		delete(r.past, g.id)
		r.lanes[g.id] = l
		r.offer(l)
	}
	r.pump()
}

// renewAll extends the leases, and drops lanes that turn out to be another's.
// Those of which it did not know that they are its own are taken: their claim
// was committed, and nobody said so, or they could not be given back. Renewed
// and not worked, they would be nobody's for as long as this node lives.
func (r *Runner[T]) renewAll(ctx context.Context) bool {
	until := time.Now().Add(lease)
	have, err := r.renew(ctx, until)
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("cannot renew leases; it is tried again", "queue", r.queue, "error", err)
		}
		return false
	}
	ours := make(map[string]bool, len(have))
	for _, l := range have {
		ours[l.id] = true
	}
	r.mu.Lock()
	r.valid = until
	for id, l := range r.lanes {
		if !ours[id] {
			r.forget(l)
		}
	}
	r.pump()
	r.mu.Unlock()
	r.take(have) // what it has already is left as it is
	return true
}

// forget drops a lane that is no longer ours. How it was doing is remembered:
// otherwise a crowd of dead ones would be strangers again each time that they
// come back with a retry, and a well one whenever something happens.
func (r *Runner[T]) forget(l *lane[T]) {
	l.lost = true
	l.buffer = nil
	delete(r.lanes, l.id)
	if l.doing == strange {
		return
	}
	if len(r.past) >= maxPast {
		for other := range r.past {
			delete(r.past, other) // any one
			break
		}
	}
	r.past[l.id] = l.record
}

// giveBack releases what has been drained for a while, and looks again at
// lanes whose next item has become due.
func (r *Runner[T]) giveBack(ctx context.Context) {
	var list []released
	r.mu.Lock()
	for _, l := range r.lanes {
		r.remind(l)
		if l.wanted() || l.drained.IsZero() || !l.idle() {
			continue
		}
		if time.Since(l.drained) >= r.linger || len(r.lanes) >= r.limit {
			l.releasing = true
			list = append(list, released{l.id, l.seq, l.next})
		}
	}
	r.pump()
	r.mu.Unlock()
	for part := range slices.Chunk(list, claimBatch) {
		gone, err := r.release(ctx, part)
		if err != nil && ctx.Err() == nil {
			slog.Warn("cannot release lanes; it is tried again", "queue", r.queue, "error", err)
		}
		r.afterRelease(part, gone, err)
	}
}

// afterRelease forgets the lanes that are gone, or may be (see handOver). The
// others were kept because something was put into them.
func (r *Runner[T]) afterRelease(list []released, gone []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range list {
		l := r.lanes[g.id]
		if l == nil {
			continue
		}
		l.releasing = false
		if err != nil || slices.Contains(gone, g.id) {
			r.forget(l)
			if l.dirty { // put in after it was given back: it is due, and ours to claim again
				r.wakeUp()
			}
			continue
		}
		l.dirty = true
		r.offer(l)
	}
	r.pump()
}
