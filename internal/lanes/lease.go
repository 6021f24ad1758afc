package lanes

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"
)

// This file claims, renews and releases lanes. Only Run calls it, from one goroutine.

// maintainLeases claims, renews and releases lanes until ctx ends.
func (r *Runner[T]) maintainLeases(ctx context.Context) {
	tick := time.NewTicker(r.Poll)
	defer tick.Stop()
	var renewed time.Time
	for {
		polling := false
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
			polling = true
		}
		if polling {
			r.balance()
		}
		if time.Since(renewed) >= renewInterval || r.mustRenew() || polling && r.loadChanged() {
			if r.renewLeases(ctx) {
				renewed = time.Now()
			}
		}
		r.giveDrained(ctx)
		if polling { // before the claims, which need room
			r.releaseIdle(ctx)
			r.makeRoom(ctx)
		}
		if most := r.takeClaims(polling); most > 0 {
			r.claimLanes(ctx, most, polling)
		}
	}
}

// mustRenew reports whether another node gave lanes to this one, once.
func (r *Runner[T]) mustRenew() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.renewNow
	r.renewNow = false
	return now
}

// takeClaims returns how many lanes may be claimed now.
func (r *Runner[T]) takeClaims(polling bool) int {
	r.claimsMu.Lock()
	defer r.claimsMu.Unlock()
	n := r.toClaim
	r.toClaim = 0
	if polling {
		return math.MaxInt
	}
	return n
}

// claimLanes claims up to most due lanes while there is room. It leaves the rest to other nodes, and
// claims what they have left after a pause. With expired, it also claims lanes of dead nodes.
func (r *Runner[T]) claimLanes(ctx context.Context, most int, expired bool) {
	for ctx.Err() == nil {
		r.mu.Lock()
		room := min(r.MaxLanes-len(r.lanes), claimBatch, most)
		r.mu.Unlock()
		if room <= 0 {
			if most == 0 {
				time.AfterFunc(claimPause, func() { r.wakeUp(math.MaxInt) })
			}
			return
		}
		claimed, err := r.claimSome(ctx, room, false)
		if most -= claimed; err == nil && claimed == room {
			continue
		}
		if err == nil && expired {
			if claimed, err = r.claimSome(ctx, room-claimed, true); claimed > 0 {
				slog.Info("took over expired lanes", "queue", r.Queue, "lanes", claimed)
			}
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("failed to claim lanes; retrying", "queue", r.Queue, "err", err, "retry_in", r.Poll)
		}
		return
	}
}

func (r *Runner[T]) claimSome(ctx context.Context, n int, expired bool) (int, error) {
	found, err := r.store.claimable(ctx, expired)
	if err != nil || !found {
		return 0, err
	}
	claimed, err := r.store.claim(ctx, n, expired)
	r.addLanes(claimed)
	return len(claimed), err
}

// addLanes adds claimed lanes.
func (r *Runner[T]) addLanes(claimed []leasedLane) {
	if len(claimed) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range claimed {
		if r.lanes[c.id] != nil {
			continue // this node's lane, whose lease had expired
		}
		l := &lane[T]{id: c.id, seq: c.seq, history: r.histories[c.id], claimedAt: time.Now(), known: map[string]sighting{},
			limit: min(initialLimit, r.PerLane), scanFrom: fromStart, coverage: nextUnknown, pinned: c.pinned}
		if l.health == slow {
			l.limit = 1
		}
		delete(r.histories, c.id)
		r.lanes[c.id] = l
		r.schedule(l)
	}
	r.dispatch()
}

// renewLeases extends the leases, and drops lanes that another node now leases.
// It adds lanes that the node leases unknowingly, because the response to their
// claim or release was lost. Otherwise they would be renewed and never run.
func (r *Runner[T]) renewLeases(ctx context.Context) bool {
	until := time.Now().Add(leaseDuration)
	r.mu.Lock()
	busy := r.load()
	r.mu.Unlock()
	leased, err := r.store.renew(ctx, until, busy)
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("failed to renew leases; retrying", "queue", r.Queue, "err", err, "retry_in", r.Poll)
		}
		return false
	}
	ours := make(map[string]bool, len(leased))
	for _, l := range leased {
		ours[l.id] = true
	}
	r.mu.Lock()
	r.leasedUntil, r.announced = until, busy
	for id, l := range r.lanes {
		if !ours[id] {
			r.drop(l)
		}
	}
	r.dispatch()
	r.mu.Unlock()
	r.addLanes(leased)
	return true
}

// drop removes a lane that this node no longer leases, but keeps its history.
// Otherwise dead lanes would be unknown at each retry, and healthy ones
// whenever they have work.
func (r *Runner[T]) drop(l *lane[T]) {
	l.transition(lost)
	l.buffer = nil
	delete(r.lanes, l.id)
	if l.health == unknown {
		return
	}
	if len(r.histories) >= maxHistories {
		for other := range r.histories {
			delete(r.histories, other) // an arbitrary one
			break
		}
	}
	r.histories[l.id] = l.history
}

// releaseIdle releases lanes that have been idle for a while, and schedules the
// scans that are due.
func (r *Runner[T]) releaseIdle(ctx context.Context) {
	var list []releasedLane
	r.mu.Lock()
	for _, l := range r.lanes {
		r.pollLane(l)
		if l.phase != idle || l.scanFrom != noScan || l.idleSince.IsZero() || l.givenTo != "" {
			continue
		}
		if time.Since(l.idleSince) >= r.Linger || len(r.lanes) >= r.MaxLanes {
			l.transition(releasing)
			list = append(list, releasedLane{l.id, l.seq, l.nextDue})
		}
	}
	r.dispatch()
	r.mu.Unlock()
	for part := range slices.Chunk(list, claimBatch) {
		released, err := r.store.release(ctx, part)
		if err != nil && ctx.Err() == nil {
			slog.Warn("failed to release lanes; retrying with the next renewal", "queue", r.Queue, "err", err)
		}
		r.finishRelease(part, released, err)
	}
}

// finishRelease drops the lanes that were released, or may have been (see
// handOver). The store kept the others because work was enqueued.
func (r *Runner[T]) finishRelease(list []releasedLane, released []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range list {
		l := r.lanes[g.id]
		if l == nil {
			continue
		}
		if err != nil || slices.Contains(released, g.id) {
			r.drop(l)
			if l.scanFrom != noScan { // work was enqueued after the release: claim the lane again
				r.wakeUp(math.MaxInt)
			}
			continue
		}
		l.transition(idle)
		l.requestScan(fromCursor)
		r.schedule(l)
	}
	r.dispatch()
}

// makeRoom hands lanes over if this node has reached its limit and other lanes
// wait. So those find room even if many lanes are dead or have work for hours.
// It hands over no more lanes than wait, and few per poll, because each is
// claimed and scanned again later.
func (r *Runner[T]) makeRoom(ctx context.Context) {
	r.mu.Lock()
	full := len(r.lanes) >= r.MaxLanes
	r.mu.Unlock()
	if !full {
		return
	}
	if n, err := r.store.waiting(ctx, max(1, r.MaxLanes/16)); err == nil && n > 0 {
		r.handOver(ctx, n, r.mayHandOver)
	}
}

// mayHandOver reports whether a lane may make room for others. A healthy one
// must have had a turn, or it might never get one if items take long. An
// unknown one gets a turn soon, unless unknown lanes already use all their
// slots.
func (r *Runner[T]) mayHandOver(l *lane[T]) bool {
	switch l.health {
	case healthy:
		return l.started
	case unknown:
		return !r.hasSlot(unknown)
	}
	return true
}

// handOver releases up to n lanes with nothing in flight, so that other nodes
// can claim them. Unhealthy lanes come first, then the oldest claims. They are
// due now, so they queue behind waiting lanes. The node drops them even on
// failure, because the release may have committed. The next renewal adds those
// that are still leased.
func (r *Runner[T]) handOver(ctx context.Context, n int, allowed func(*lane[T]) bool) {
	var list []*lane[T]
	r.mu.Lock()
	for _, l := range r.lanes {
		if l.inFlight == 0 && l.phase != scanning && allowed(l) {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *lane[T]) int {
		if (a.health == healthy) == (b.health == healthy) {
			return a.claimedAt.Compare(b.claimedAt)
		}
		if b.health == healthy {
			return -1
		}
		return 1
	})
	var names []string
	for _, l := range list[:min(n, len(list))] {
		r.drop(l)
		names = append(names, l.id)
	}
	r.mu.Unlock()
	for part := range slices.Chunk(names, claimBatch) {
		if err := r.store.handOver(ctx, part); err != nil {
			slog.Warn("failed to hand lanes over; retrying with the next renewal", "queue", r.Queue, "err", err)
			return
		}
	}
}

// drain waits for running items. It hands idle lanes over to other nodes
// immediately, and renews the others. It calls abort after the drain timeout,
// and when the leases expire because the store is unavailable.
func (r *Runner[T]) drain(ctx context.Context, abort func()) {
	defer time.AfterFunc(r.DrainTimeout, abort).Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.goroutines.Wait()
		select {
		case <-r.awaitWrites():
		case <-r.workCtx.Done():
		}
	}()
	tick := time.NewTicker(r.Poll)
	defer tick.Stop()
	var renewed time.Time
	for {
		select {
		case <-done:
			return
		default:
		}
		if time.Since(renewed) >= renewInterval && r.renewLeases(ctx) {
			renewed = time.Now()
		}
		r.handOver(ctx, math.MaxInt, func(*lane[T]) bool { return true })
		if r.leasesExpired() {
			abort()
		}
		select {
		case <-done:
			return
		case <-tick.C:
		}
	}
}

// awaitWrites returns a channel that is closed when every outcome is written.
// Nothing may be running.
func (r *Runner[T]) awaitWrites() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	if r.inFlight == 0 {
		close(done)
	} else {
		r.allWritten = done
	}
	return done
}

func (r *Runner[T]) leasesExpired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.leasedUntil)
}
