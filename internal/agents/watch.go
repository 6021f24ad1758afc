package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Entry is an entry of a run's log.
type Entry struct {
	Seq       int64
	Type      string
	Data      json.RawMessage
	CreatedAt time.Time
}

// logEntry is an entry that is not written yet.
type logEntry struct {
	kind string
	data any
}

// isTransition reports whether the entry is about a change of the run's status.
func (e logEntry) isTransition() bool { return strings.HasPrefix(e.kind, "run.") }

var insertEntries = db.NewBulk("agent_events", "", "run_id text", "seq bigint", "type text", "data text", "created_at bigint")

var scanEntry = db.Scanner(func(e *Entry) []any { return []any{&e.Seq, &e.Type, &e.Data, &e.CreatedAt} })

// Entries returns the entries of a run's log after a sequence number.
func (s *Service) Entries(ctx context.Context, q db.Querier, runID string, after int64, limit int) ([]*Entry, error) {
	list, err := db.List(ctx, q, scanEntry, "SELECT seq, type, data, created_at FROM agent_events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3", runID, after, int64(limit))
	return list, db.Wrap(err, "read run log")
}

// maxWatchers limits the watchers of a key on a node. Each reads the database
// twice a second.
const maxWatchers = 100

// watchRetryAfter is the Retry-After of a rejected watcher.
const watchRetryAfter = 5 * time.Second

// watchers are notified when a run's log grows on this node. They poll for what
// other nodes write.
type watchers struct {
	mu   sync.Mutex
	by   map[string][]chan struct{} // by run
	keys map[string]int             // number of watchers by key
}

// AcquireWatcher takes a watcher slot of the principal's topmost ancestor key, whose
// descendants and tokens share its slots. The caller releases it.
func (s *Service) AcquireWatcher(p *access.Principal) (release func(), err error) {
	key := cmp.Or(p.KeyID, p.ID())
	if n := len(p.Ancestors); n > 0 {
		key = p.Ancestors[n-1].KeyID
	}
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key] >= maxWatchers {
		f := fault.New(fault.RateLimitExceeded, "The key already watches %d runs, which is the limit. Close some of these streams, or read the events without stream=true.", maxWatchers)
		f.RetryAfter = watchRetryAfter
		return nil, f
	}
	w.keys[key]++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.keys[key]--; w.keys[key] == 0 {
			delete(w.keys, key)
		}
	}), nil
}

// Watch returns a channel that receives when the run's log may have grown. The
// caller stops it.
func (s *Service) Watch(runID string) (grown <-chan struct{}, stop func()) {
	w := &s.watchers
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[runID] = append(w.by[runID], c)
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.by[runID] = slices.DeleteFunc(w.by[runID], func(other chan struct{}) bool { return other == c })
		if len(w.by[runID]) == 0 {
			delete(w.by, runID)
		}
	}
}

func (w *watchers) wake(runID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.by[runID] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
