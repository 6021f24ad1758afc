package agents

import (
	"context"
	"encoding/json"
	"strings"
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

// AcquireWatcher takes a watcher slot of the principal. The caller releases it.
func (s *Service) AcquireWatcher(p *access.Principal) (release func(), err error) {
	release, ok := s.watchers.Acquire(p.RootID(), maxWatchers)
	if !ok {
		f := fault.New(fault.RateLimitExceeded, "The key already watches %d runs, which is the limit. Close some of these streams, or read the events without stream=true.", maxWatchers)
		f.RetryAfter = watchRetryAfter
		return nil, f
	}
	return release, nil
}

// Watch returns a channel that receives when the run's log may have grown. The
// caller stops it.
func (s *Service) Watch(runID string) (grown <-chan struct{}, stop func()) {
	return s.watchers.Watch(runID)
}
