package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// Log sinks read the log in the order of IDs, which is not the order of commits. Each node publishes
// a floor in its row: it marks each entry that it inserts below the floor as pending, in the same
// transaction. So up to the lowest floor of all nodes, a sink finds every entry either in the log or
// among the pending ones. A floor counts only after the transactions that didn't know it have ended.
const (
	// floorAge is how far the floor is behind. Nearly all entries are inserted within that time.
	floorAge = 5 * time.Second
	// floorInterval is how often a node raises its floor.
	floorInterval = 2 * time.Second
)

// feed is the floor of this node.
type feed struct {
	mu      sync.Mutex
	floor   string // empty until there is a sink
	current *feedWrites
}

// feedWrites are the transactions that began with the same floor.
type feedWrites struct {
	open   int
	last   bool          // no more begin
	closed chan struct{} // when all have ended
}

func newFeed() *feed { return &feed{current: &feedWrites{closed: make(chan struct{})}} }

// begin returns the floor for a transaction that inserts entries.
func (f *feed) begin(tx *db.Tx) (floor string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.current
	w.open++
	tx.OnEnd(func(error) { f.end(w) }) // RaiseFloor waits for one in doubt
	return f.floor
}

func (f *feed) end(w *feedWrites) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.open--; w.last && w.open == 0 {
		close(w.closed)
	}
}

// raise sets the floor, and returns when no transaction with a lower one is open.
func (f *feed) raise(ctx context.Context, floor string) error {
	f.mu.Lock()
	before := f.current
	before.last = true
	if before.open == 0 {
		close(before.closed)
	}
	f.floor, f.current = floor, &feedWrites{closed: make(chan struct{})}
	f.mu.Unlock()
	select {
	case <-before.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// StartFeed sets the first floor of a node that has joined and hasn't inserted an entry.
func (l *Log) StartFeed(ctx context.Context, d *db.DB) error {
	return l.RaiseFloor(ctx, d, time.Now().Add(-floorAge))
}

// RunFeed raises the floor of this node until ctx ends.
func (l *Log) RunFeed(ctx context.Context, d *db.DB) {
	tick := time.NewTicker(floorInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := l.RaiseFloor(ctx, d, time.Now().Add(-floorAge)); err != nil && ctx.Err() == nil {
			slog.Log(ctx, db.LogLevel(err), "failed to publish the position of the request log; log sinks wait for it; retrying", "retry_in", floorInterval, "error", err)
		}
	}
}

// RaiseFloor publishes that this node marks entries from before a time as pending. It does nothing while
// there are no sinks.
func (l *Log) RaiseFloor(ctx context.Context, d *db.DB, to time.Time) error {
	floor, err := l.nextFloor(ctx, d, to)
	if err != nil || floor == "" {
		return db.Wrap(err, "read log sinks")
	}
	if err := l.feed.raise(ctx, floor); err != nil {
		return err
	}
	return d.Write(ctx, func(tx *db.Tx) error {
		// A transaction in doubt has ended before this one, or fails.
		if err := l.node.AssertAlive(tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE nodes SET log_floor = $2 WHERE id = $1", l.node.ID, floor)
		return db.Wrap(err, "publish the floor of the request log")
	})
}

// nextFloor never returns less than before. The first floor of a node is not below what sinks may have
// read already, even if its clock is behind those of other nodes.
func (l *Log) nextFloor(ctx context.Context, q db.Querier, to time.Time) (string, error) {
	l.feed.mu.Lock()
	floor := l.feed.floor
	l.feed.mu.Unlock()
	if floor == "" {
		var sinks int64
		err := q.QueryRow(ctx, `SELECT (SELECT count(*) FROM log_sinks), COALESCE(max(reached), '') FROM
			(SELECT position AS reached FROM log_sinks UNION ALL SELECT log_floor FROM nodes) AS known`).Scan(&sinks, &floor)
		if err != nil || sinks == 0 {
			return "", err
		}
	}
	return max(floor, ids.Floor(ids.Request, to)), nil
}
