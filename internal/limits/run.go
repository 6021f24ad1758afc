package limits

import (
	"context"
	"log/slog"
	"time"
)

const (
	// every is how often a node says that it is there and looks for idle ids.
	every = time.Second

	// idle is after what time a node forgets an id that it shares: by then the
	// bucket is at rest.
	idle = window

	leaveTimeout = 2 * time.Second
)

// Run forgets idle ids and keeps in touch with other nodes until ctx ends, and
// then gives back what this node has. Calls must have ended by then.
func (l *Limiter) Run(ctx context.Context) {
	tick := time.NewTicker(every)
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
		l.beat(ctx)
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
		slog.Warn("places in flight were not given back; others have them in a few seconds", "error", err)
	}
}

// beat also finds out whether the store is there again.
func (l *Limiter) beat(ctx context.Context) {
	nodes, wanted, err := l.store.beat(ctx, l.now())
	if err != nil {
		if !l.away.Swap(true) && ctx.Err() == nil {
			slog.Warn("limits are kept by each node alone until the store is back", "error", err)
		}
		return
	}
	l.nodes.Store(max(1, nodes))
	l.away.Store(false)
	at := l.nanos(l.now())
	for _, id := range wanted {
		l.yield(id, at)
	}
}

// yield gives back the places that are not in use.
func (l *Limiter) yield(id string, at int64) {
	s := l.shard(id)
	s.mu.Lock()
	e := s.entries[id]
	if e == nil || e.order != nil || e.have.places <= e.inUse {
		s.mu.Unlock()
		return
	}
	e.giveBack(e.have.places - e.inUse) // first here: they must not be used while they are on their way back
	o := l.tell(e, at)
	o.moved = true
	s.mu.Unlock()
	l.send(s, e, o)
}

// giveBack counts places as nobody's, so that the next call asks for one,
// whatever the store said before.
func (e *entry) giveBack(places int64) {
	e.have.places -= places
	e.room += places
}

// sweep forgets idle ids, and tells the store what it has not heard.
func (l *Limiter) sweep() {
	at := l.nanos(l.now())
	for i := range l.shards {
		s := &l.shards[i]
		var orders []*order
		var of []*entry
		s.mu.Lock()
		for id, e := range s.entries {
			forget, o := l.tidy(e, at)
			if forget {
				delete(s.entries, id)
			}
			if o != nil {
				orders, of = append(orders, o), append(of, e)
			}
		}
		s.mu.Unlock()
		for i, o := range orders {
			l.send(s, of[i], o)
		}
	}
}

// tidy says whether an id can be forgotten, and what is to be told before.
func (l *Limiter) tidy(e *entry, at int64) (forget bool, o *order) {
	if l.store == nil {
		// A bucket at rest is as good as a new one.
		return e.inUse == 0 && e.requests.full <= at && e.tokens.full <= at, nil
	}
	if e.order != nil || e.waiting != (amounts{}) {
		return false, nil
	}
	gone := e.inUse == 0 && at-e.used > idle
	if gone && e.have.places == 0 && e.owed == (amounts{}) && !e.unsure {
		return true, nil
	}
	if l.away.Load() || !gone && e.owed == (amounts{}) && !e.unsure {
		return false, nil
	}
	if gone {
		e.giveBack(e.have.places)
	}
	o = l.tell(e, at)
	o.moved = true
	return false, o
}
