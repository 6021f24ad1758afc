// Package nodes knows which processes serve this database, so that what a dead
// one left behind can be taken over.
package nodes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

const (
	heartbeat = 5 * time.Second
	// deadAfter is generous against clocks that differ between machines: what
	// waits for it (closing a dead node's open requests) is not urgent.
	deadAfter = time.Minute
)

// Node is this process.
type Node struct {
	ID  string
	db  *db.DB
	now func() time.Time
}

// Join registers this process.
func Join(ctx context.Context, d *db.DB, now func() time.Time) (*Node, error) {
	n := &Node{ID: ids.New(ids.Node), db: d, now: now}
	if err := n.beat(ctx); err != nil {
		return nil, fmt.Errorf("register node: %w", err)
	}
	return n, nil
}

// Run keeps the registration alive until ctx ends, and then takes it back.
func (n *Node) Run(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := n.beat(ctx); err != nil && ctx.Err() == nil {
				slog.Warn("heartbeat failed", "node", n.ID, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Leave removes the registration after an orderly stop.
func (n *Node) Leave(ctx context.Context) error {
	return n.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM nodes WHERE id = $1", n.ID)
		return err
	})
}

func (n *Node) beat(ctx context.Context) error {
	now := n.now().UnixMicro()
	return n.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, $2, $2)
			ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at`, n.ID, now)
		return err
	})
}

// Alive lists the processes whose heartbeat is recent, this one included. The
// embedded database has one server by its lock, so every other row is a dead one's.
func (n *Node) Alive(ctx context.Context, q db.Querier) ([]string, error) {
	if n.db.Engine() == "sqlite" {
		return []string{n.ID}, nil
	}
	rows, err := q.Query(ctx, "SELECT id FROM nodes WHERE seen_at > $1 OR id = $2", n.now().Add(-deadAfter).UnixMicro(), n.ID)
	return db.All(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
}

// Count is how many processes serve the database.
func Count(ctx context.Context, q db.Querier, now time.Time) (n int64, err error) {
	err = q.QueryRow(ctx, "SELECT count(*) FROM nodes WHERE seen_at > $1", now.Add(-deadAfter).UnixMicro()).Scan(&n)
	return n, err
}

// Forget removes the rows of processes that are long gone.
func (n *Node) Forget(ctx context.Context) error {
	return n.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM nodes WHERE seen_at < $1 AND id <> $2", n.now().Add(-24*time.Hour).UnixMicro(), n.ID)
		return err
	})
}
