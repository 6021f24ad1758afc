package limits

import (
	"context"
	"log/slog"
	"time"
)

const (
	// heartbeatInterval is how often a node renews its heartbeat and sweeps idle
	// IDs.
	heartbeatInterval = time.Second

	// idleAfter is when a node drops a shared ID from memory: by then its bucket
	// is idle.
	idleAfter = window

	leaveTimeout = 2 * time.Second
)

// Run sends heartbeats and drops idle IDs until ctx ends, and then releases the
// node's slots. All requests must have ended by then.
func (l *Limiter) Run(ctx context.Context) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		l.runOnce(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.leave()
			return
		}
	}
}

func (l *Limiter) runOnce(ctx context.Context) {
	if l.store != nil {
		l.heartbeat(ctx)
	}
	l.sweep()
}

func (l *Limiter) leave() {
	if l.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := l.store.leave(ctx); err != nil {
		slog.Warn("failed to release slots; other nodes can use them in a few seconds", "error", err)
	}
}

// heartbeat reports this node as alive, and detects that the store is back.
func (l *Limiter) heartbeat(ctx context.Context) {
	nodes, wanted, err := l.store.heartbeat(ctx, l.now())
	if err != nil {
		if !l.storeDown.Swap(true) && ctx.Err() == nil {
			slog.Warn("failed to renew the heartbeat; this node enforces its part of the limits alone", "error", err)
		}
		return
	}
	l.nodes.Store(max(1, nodes))
	l.storeDown.Store(false)
	at := l.nanos(l.now())
	for _, id := range wanted {
		l.releaseIdleSlots(id, at)
	}
}

func (l *Limiter) releaseIdleSlots(id string, at int64) {
	s := l.shard(id)
	s.mu.Lock()
	e := s.entries[id]
	if e == nil || e.pending != nil || e.leased.slots <= e.inUse {
		s.mu.Unlock()
		return
	}
	e.releaseSlots(e.leased.slots - e.inUse) // before the report is sent, so that no request takes them meanwhile
	o := l.newReport(e, at)
	o.slotsReduced = true
	s.mu.Unlock()
	l.send(s, e, o)
}

// releaseSlots counts slots as free, so that the next request asks for one
// despite an earlier refusal.
func (e *entry) releaseSlots(n int64) {
	e.leased.slots -= n
	e.freeSlots += n
}

// sweep drops idle IDs and reports to the store what is due.
func (l *Limiter) sweep() {
	at := l.nanos(l.now())
	for i := range l.shards {
		s := &l.shards[i]
		var reports []*leaseRequest
		var of []*entry
		s.mu.Lock()
		for id, e := range s.entries {
			forget, o := l.sweepEntry(e, at)
			if forget {
				delete(s.entries, id)
			}
			if o != nil {
				reports, of = append(reports, o), append(of, e)
			}
		}
		s.mu.Unlock()
		for i, o := range reports {
			l.send(s, of[i], o)
		}
	}
}

// sweepEntry returns whether an ID can be dropped, and the report to send
// before that.
func (l *Limiter) sweepEntry(e *entry, at int64) (forget bool, o *leaseRequest) {
	if l.store == nil {
		// An idle bucket equals a new one.
		return e.inUse == 0 && e.requests.full <= at && e.tokens.full <= at, nil
	}
	if e.pending != nil || e.waiting != (amounts{}) {
		return false, nil
	}
	gone := e.inUse == 0 && at-e.used > idleAfter
	if gone && e.leased.slots == 0 && e.owed == (amounts{}) && !e.slotsUnknown {
		return true, nil
	}
	if l.storeDown.Load() || !gone && e.owed == (amounts{}) && !e.slotsUnknown {
		return false, nil
	}
	if gone {
		e.releaseSlots(e.leased.slots)
	}
	o = l.newReport(e, at)
	o.slotsReduced = true
	return false, o
}
