package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"turnpike/internal/db"
)

const (
	throttledFlush = 5 * time.Second
	// throttledEntries is how many requests over a rate limit get an entry in the
	// request log, per key and minute: enough to see who sends what, and too few
	// to fill a disk.
	throttledEntries = 60
)

// Throttled bounds what requests over a rate limit leave behind. On each node
// the first 60 of a key and minute get an entry in the request log; the others
// are counted.
type Throttled struct {
	db  *db.DB
	now func() time.Time

	mu     sync.Mutex
	counts map[throttledKey]*throttledCount
}

type throttledKey struct {
	minute int64
	keyID  string
}

type throttledCount struct {
	workspaceID, environment string
	count                    int64 // of the minute
	unlogged                 int64 // of them, not stored yet
}

// NewThrottled creates a counter; Run stores its counts.
func NewThrottled(d *db.DB, now func() time.Time) *Throttled {
	return &Throttled{db: d, now: now, counts: map[throttledKey]*throttledCount{}}
}

// Add counts a request and reports whether it gets an entry in the log.
func (t *Throttled) Add(e Entry) (logged bool) {
	at := throttledKey{t.now().Unix() / 60, e.KeyID}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[at]
	if c == nil {
		c = &throttledCount{workspaceID: e.WorkspaceID, environment: e.Environment}
		t.counts[at] = c
	}
	c.count++
	if c.count <= throttledEntries {
		return true
	}
	c.unlogged++
	return false
}

// Run stores counts until ctx ends, and then the last of them.
func (t *Throttled) Run(ctx context.Context) {
	tick := time.NewTicker(throttledFlush)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.flush(ctx)
		case <-ctx.Done():
			t.flush(context.WithoutCancel(ctx))
			return
		}
	}
}

var insertThrottled = db.NewBulk("throttled_requests", "ON CONFLICT (minute, key_id) DO UPDATE SET count = throttled_requests.count + excluded.count",
	"minute bigint", "key_id text", "workspace_id text", "environment text", "count bigint")

func (t *Throttled) flush(ctx context.Context) {
	minute := t.now().Unix() / 60
	var rows [][]any
	t.mu.Lock()
	for at, c := range t.counts {
		if c.unlogged > 0 {
			rows = append(rows, []any{at.minute, at.keyID, c.workspaceID, c.environment, c.unlogged})
			c.unlogged = 0
		}
		if at.minute < minute {
			delete(t.counts, at)
		}
	}
	t.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	err := t.db.Write(ctx, func(tx *db.Tx) error {
		_, err := insertThrottled.Write(ctx, tx, rows)
		return err
	})
	if err != nil {
		slog.Warn("failed to store the count of throttled requests; dropping it", "error", err, "keys", len(rows))
	}
}

// PurgeThrottled deletes at most limit counts from before a time.
func PurgeThrottled(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM throttled_requests WHERE (minute, key_id) IN
		(SELECT minute, key_id FROM throttled_requests WHERE minute < $1 LIMIT $2)`, before.Unix()/60, limit)
}
