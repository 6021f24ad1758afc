package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/visibility"
)

const (
	throttledFlush = 5 * time.Second
	// throttledEntries is how many requests over a rate limit get a log entry,
	// per key and minute. 60 show who sends what, and can't fill a disk.
	throttledEntries = 60
)

// Throttled limits the log entries of requests over a rate limit. On each node
// the first 60 per key and minute get one. The others are only counted.
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
	visibility.Tenant
	count    int64 // in this minute
	unlogged int64 // of count: without a log entry and not stored yet
}

// NewThrottled returns a counter. Run stores its counts.
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
		c = &throttledCount{Tenant: e.Tenant}
		t.counts[at] = c
	}
	c.count++
	if c.count <= throttledEntries {
		return true
	}
	c.unlogged++
	return false
}

// Run stores counts until ctx ends, and then the remaining ones.
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
			rows = append(rows, []any{at.minute, at.keyID, c.WorkspaceID, string(c.Environment), c.unlogged})
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
