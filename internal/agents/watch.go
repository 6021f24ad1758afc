package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Entry is a line of a run's log.
type Entry struct {
	Seq       int64
	Type      string
	Data      json.RawMessage
	CreatedAt time.Time
}

// entry is one that is about to be written.
type entry struct {
	kind string
	data any
}

var insertEntries = db.NewBulk("agent_events", "", "run_id text", "seq bigint", "type text", "data text", "created_at bigint")

// Entries returns what a run's log has after a line.
func (s *Service) Entries(ctx context.Context, q db.Querier, runID string, after int64, limit int) ([]*Entry, error) {
	rows, err := q.Query(ctx, "SELECT seq, type, data, created_at FROM agent_events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3", runID, after, int64(limit))
	list, err := db.All(rows, err, func(r db.Row) (*Entry, error) {
		var e Entry
		var data string
		var at int64
		err := r.Scan(&e.Seq, &e.Type, &data, &at)
		e.Data, e.CreatedAt = json.RawMessage(data), time.UnixMicro(at)
		return &e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of a run: %w", err)
	}
	return list, nil
}

// maxWatchers is how many a key may have on a node: each looks into the store
// twice a second.
const maxWatchers = 100

// watchAgain is when somebody may ask whom there was no room for.
const watchAgain = 5 * time.Second

// watchers are told when a run's log has grown on this node. What other nodes
// write is found by looking now and then.
type watchers struct {
	mu   sync.Mutex
	by   map[string]map[chan struct{}]struct{}
	keys map[string]int // how many there are of each
}

// enter takes a place among a key's watchers.
func (w *watchers) enter(key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key] >= maxWatchers {
		f := fault.New(fault.RateLimitExceeded, "the key watches %d runs at once, which is the limit; end some of these streams, or read the events without stream=true", maxWatchers)
		f.RetryAfter = watchAgain
		return f
	}
	if w.keys == nil {
		w.keys = map[string]int{}
	}
	w.keys[key]++
	return nil
}

func (w *watchers) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key]--; w.keys[key] == 0 {
		delete(w.keys, key)
	}
}

// Watcher takes a place among those of the principal's first ancestor, which all
// its descendants and their tokens share. The caller gives it back.
func (s *Service) Watcher(p *access.Principal) (leave func(), err error) {
	key := p.ID()
	if p.KeyID != "" {
		key = p.KeyID
	}
	if n := len(p.Ancestors); n > 0 {
		key = p.Ancestors[n-1].KeyID
	}
	if err := s.watchers.enter(key); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { s.watchers.leave(key) }), nil
}

// Watch returns a channel that is written to when the run's log may have
// grown. The caller ends it.
func (s *Service) Watch(runID string) (grown <-chan struct{}, end func()) {
	w := &s.watchers
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]map[chan struct{}]struct{}{}
	}
	if w.by[runID] == nil {
		w.by[runID] = map[chan struct{}]struct{}{}
	}
	w.by[runID][c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.by[runID], c)
		if len(w.by[runID]) == 0 {
			delete(w.by, runID)
		}
	}
}

func (w *watchers) wake(runID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.by[runID] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
