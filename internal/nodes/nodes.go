// Package nodes knows which processes serve this database, so that what a dead
// one left behind can be taken over.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

const (
	heartbeat = 5 * time.Second
	// deadAfter is generous: what waits for it (closing a dead node's open
	// requests) is not urgent.
	deadAfter = time.Minute
	// sureFor is how long after a heartbeat a node relies on being thought
	// alive; beyond it, it must not spend what others may have closed. With the
	// time that the store leaves an idle transaction it is less than deadAfter.
	sureFor = deadAfter / 2
)

// ErrUnsure is returned while this node may have been declared dead.
var ErrUnsure = fmt.Errorf("this node has not been able to say that it is alive: %w", db.ErrUnavailable)

// Node is this process.
type Node struct {
	ID  string
	db  *db.DB
	now func() time.Time

	mu       sync.Mutex
	beaten   time.Time // when the last heartbeat that was stored began
	rejoined time.Time // when it had given up what it had when it was declared dead
	lives    int
	onRejoin []func(life int)

	gone chan struct{} // told when its row is
}

// common is the time that heartbeats are compared by.
func (n *Node) common() time.Time { return n.db.At(n.now()) }

// Join registers this process.
func Join(ctx context.Context, d *db.DB, now func() time.Time) (*Node, error) {
	n := &Node{ID: ids.New(ids.Node), db: d, now: now, gone: make(chan struct{}, 1)}
	if err := n.beat(ctx, true); err != nil {
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
		case <-n.gone:
		case <-ctx.Done():
			return
		}
		if err := n.beat(ctx, false); err != nil && ctx.Err() == nil {
			slog.Warn("heartbeat failed", "node", n.ID, "error", err)
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

// beat stores a heartbeat. A node whose row is gone was declared dead: what it
// had was taken over, and it goes on in a new life.
func (n *Node) beat(ctx context.Context, first bool) error {
	begun := time.Now()
	found, err := n.store(ctx, "UPDATE nodes SET seen_at = $2 WHERE id = $1")
	if err == nil && found == 0 {
		if !first {
			n.renounce()
			_ = n.db.CompareClocks(ctx) // it may have been suspended, and then its own stood still
		}
		_, err = n.store(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, $2, $2) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at")
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.beaten = begun
	return nil
}

// store writes the node's row with the time.
func (n *Node) store(ctx context.Context, query string) (rows int64, err error) {
	err = n.db.Write(ctx, func(tx *db.Tx) (err error) {
		rows, err = tx.Exec(ctx, query, n.ID, n.common().UnixMicro())
		return err
	})
	return rows, err
}

// renounce gives up what others have taken over. It comes before anybody can find
// the node alive again, and so whatever becomes of that: a call that has set aside
// something of its former life must not be confirmed. Until the next heartbeat is
// stored the node is sure of nothing.
func (n *Node) renounce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	slog.Warn("this node was thought dead, and what it had set aside was taken over; it starts anew", "node", n.ID)
	n.beaten = time.Time{}
	n.lives++
	for _, fn := range n.onRejoin {
		fn(n.lives)
	}
	n.rejoined = n.now() // not before they are done: until then a call could set aside something
}

// OnRejoin registers what is to be given up when this node was declared dead.
func (n *Node) OnRejoin(fn func(life int)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onRejoin = append(n.onRejoin, fn)
}

// Confirm reports whether nobody has declared this node dead, and sees to it
// that nobody does before the transaction ends. Sure goes by clocks, which money
// must not: a machine that was suspended has a clock that was, too.
func (n *Node) Confirm(ctx context.Context, tx *db.Tx) (bool, error) {
	if n.db.Engine() == "sqlite" {
		return true, nil // there is no other
	}
	var one int
	err := tx.QueryRow(ctx, "SELECT 1 FROM nodes WHERE id = $1"+tx.Keep("nodes"), n.ID).Scan(&one)
	if !errors.Is(err, db.ErrNotFound) {
		return err == nil, err
	}
	select {
	case n.gone <- struct{}{}:
	default:
	}
	return false, nil
}

// Life is which of its lives this node is in.
func (n *Node) Life() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lives
}

// Sure reports whether nobody can have declared this node dead, as far as clocks
// tell.
func (n *Node) Sure() bool {
	if n.db.Engine() == "sqlite" {
		return true // there is no other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.beaten) < sureFor
}

// Rejoined is when this node last had given up what it had, as it was declared
// dead, or zero.
func (n *Node) Rejoined() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rejoined
}

// Bury makes sure that a node is dead, and has what it had taken over in the
// same transaction: before that ends it cannot come back, and then it knows. It
// reports false for a node that lives.
func (n *Node) Bury(ctx context.Context, id string, takeOver func(ctx context.Context, tx *db.Tx) error) (dead bool, err error) {
	if id == n.ID {
		return false, nil
	}
	err = n.db.Write(ctx, func(tx *db.Tx) error {
		if dead, err = n.bury(ctx, tx, id); err != nil || !dead {
			return err
		}
		return takeOver(ctx, tx)
	})
	return dead && err == nil, err
}

func (n *Node) bury(ctx context.Context, tx *db.Tx, id string) (dead bool, err error) {
	if n.db.Engine() == "sqlite" {
		return true, nil // there is no other than us
	}
	var seen int64
	err = tx.QueryRow(ctx, "SELECT seen_at FROM nodes WHERE id = $1"+tx.Lock("nodes"), id).Scan(&seen)
	if errors.Is(err, db.ErrNotFound) {
		// Its place is taken until the transaction ends, so that it does not come back
		// meanwhile.
		if n, err := tx.Exec(ctx, "INSERT INTO nodes (id, started_at, seen_at) VALUES ($1, 0, 0) ON CONFLICT (id) DO NOTHING", id); err != nil || n == 0 {
			return false, err // it is back
		}
		seen, err = 0, nil
	}
	if err != nil || time.UnixMicro(seen).After(n.common().Add(-deadAfter)) {
		return false, err
	}
	_, err = tx.Exec(ctx, "DELETE FROM nodes WHERE id = $1", id)
	return err == nil, err
}

// Alive lists the processes whose heartbeat is recent, this one included. The
// embedded database has one server by its lock, so every other row is a dead one's.
func (n *Node) Alive(ctx context.Context, q db.Querier) ([]string, error) {
	if n.db.Engine() == "sqlite" {
		return []string{n.ID}, nil
	}
	rows, err := q.Query(ctx, "SELECT id FROM nodes WHERE seen_at > $1 OR id = $2", n.common().Add(-deadAfter).UnixMicro(), n.ID)
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
		_, err := tx.Exec(ctx, "DELETE FROM nodes WHERE seen_at < $1 AND id <> $2", n.common().Add(-24*time.Hour).UnixMicro(), n.ID)
		return err
	})
}
