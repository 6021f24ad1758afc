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

// makeRoom gives lanes up that are not well, if this node has as many as it may
// and others wait: however many are dead, those find room.
func (r *Runner[T]) makeRoom(ctx context.Context) {
	r.mu.Lock()
	full := len(r.lanes) >= r.limit
	r.mu.Unlock()
	if !full {
		return
	}
	if any, err := r.due(ctx, false); err == nil && any {
		r.handOver(ctx, max(1, r.limit/16), func(l *lane[T]) bool { return l.doing != well })
	}
}

// handOver gives up to n lanes with nothing at work to whoever comes next. They
// are due from now on, and so go behind those that wait already.
func (r *Runner[T]) handOver(ctx context.Context, n int, which func(*lane[T]) bool) {
	var free []string
	r.mu.Lock()
	for id, l := range r.lanes {
		if len(free) < n && l.open == 0 && !l.fetching && !l.releasing && which(l) {
			l.releasing, l.buffer = true, nil
			clear(l.known)
			free = append(free, id)
		}
	}
	r.mu.Unlock()
	var err error
	for part := range slices.Chunk(free, claimBatch) {
		if err == nil { // otherwise the rest would wait for the store as well
			err = r.freeLanes(ctx, part)
		}
		r.mu.Lock()
		for _, id := range part {
			l := r.lanes[id]
			if l.releasing = false; err == nil {
				r.forget(l)
				continue
			}
			l.rewind(0) // for what waited
			r.offer(l)
		}
		r.mu.Unlock()
	}
	if err != nil {
		slog.Warn("cannot hand lanes over; it is tried again", "queue", r.queue, "error", err)
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
		l := &lane[T]{id: g.id, seq: g.seq, known: map[string]place{}, cap: min(startCap, r.cap), dirty: true, unsure: true}
		if l.doing = r.past[g.id]; l.doing == slow {
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
// was committed, and nobody said so. Renewed and not worked, they would be
// nobody's for as long as this node lives.
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
	stopping := r.stopping
	r.mu.Unlock()
	if !stopping {
		r.take(have) // what it has already is left as it is
	}
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
	r.past[l.id] = l.doing
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
