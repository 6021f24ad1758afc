// Package nodes tracks which server processes share a database, so that
// others can recover the work of a dead one.
//
// Membership is fail-stop:
//
//	          heartbeat
//	          ┌───────┐
//	          ▼       │
//	Join ──▶ member ──┴──▶ left      (Leave: orderly stop)
//	            │
//	            └────────▶ evicted   (EvictStale on another node)
//
// A member has a row in the nodes table. Deleting the row evicts the node, and
// its ID is never reused. Every transaction that spends credits or writes the
// request log locks the row (AssertAlive). So an evicted node can't commit one,
// and other nodes recover its work without waiting for it. The evicted process
// drops all its state and joins again with a new ID.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

const (
	heartbeatInterval = 5 * time.Second
	// staleAfter is the age of a node's last heartbeat at which others may
	// evict it. Recovering its open requests is not urgent.
	staleAfter = time.Minute
	// leaseDuration is how long after a heartbeat a node starts work without
	// checking its membership in the database. It is shorter than staleAfter by
	// more than the database's limit for idle transactions.
	leaseDuration = staleAfter / 2
	// steadyAfter is how long a node must have stored its own heartbeats without
	// interruption before it evicts others. After an outage of the database all
	// heartbeats are stale, and this leaves every node time to renew its own.
	steadyAfter = time.Minute
	// maxGap is the longest time between two heartbeats that isn't an
	// interruption.
	maxGap = 3 * heartbeatInterval
)

var (
	// ErrEvicted means that another node has evicted this one.
	ErrEvicted = fmt.Errorf("this node was evicted: %w", db.ErrUnavailable)
	// ErrLeaseExpired means that this node has not stored a heartbeat recently
	// and may have been evicted.
	ErrLeaseExpired = fmt.Errorf("this node has stored no heartbeat for %v: %w", leaseDuration, db.ErrUnavailable)
)

// Node is the membership of this process, from Join until it leaves or is evicted.
type Node struct {
	ID       string
	db       *db.DB
	now      func() time.Time
	features []Feature // that the program supports

	evicted   chan struct{} // closed when AssertAlive finds no row
	evictions prometheus.Counter

	epoch epochs

	mu          sync.Mutex
	configHash  string
	renewed     time.Time // start of the last stored heartbeat, by the monotonic clock
	lastBeat    time.Time // the same by the now function
	steadySince time.Time // the first heartbeat since the last interruption; zero after a failed one
}

// Join registers this process under a new ID. It fails if the program is too old
// for the other nodes.
func Join(ctx context.Context, d *db.DB, now func() time.Time) (*Node, error) {
	return joinWith(ctx, d, now, features)
}

func joinWith(ctx context.Context, d *db.DB, now func() time.Time, features []Feature) (*Node, error) {
	n := &Node{ID: ids.New(ids.Node), db: d, now: now, features: features, evicted: make(chan struct{}, 1), evictions: newEvictions()}
	err := n.beat(ctx, func(tx *db.Tx, at int64) (int64, error) {
		if err := tx.LockSchema(ctx); err != nil {
			return 0, err
		}
		if err := n.checkVersion(ctx, tx); err != nil {
			return 0, err
		}
		rows, err := tx.Exec(ctx, "INSERT INTO nodes (id, started_at, seen_at, schema_version, features) VALUES ($1, $2, $2, $3, $4)",
			n.ID, at, int64(len(db.Migrations())), joinFeatures(features))
		if err != nil {
			return 0, err
		}
		return rows, n.activateIn(ctx, tx)
	})
	return n, db.Wrap(err, "register node")
}

// SetConfigHash sets the hash of the node's settings. The next heartbeat stores
// it.
func (n *Node) SetConfigHash(hash string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.configHash = hash
}

// Run stores heartbeats until ctx ends. It returns ErrEvicted if the node is
// evicted.
func (n *Node) Run(ctx context.Context) error {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-n.evicted:
			return ErrEvicted
		case <-ctx.Done():
			return nil
		}
		switch err := n.Heartbeat(ctx); {
		case err == nil:
			if failing {
				slog.Info("database available again; heartbeats are stored", "node", n.ID)
			}
			failing = false
			if err := n.activateFeatures(ctx); err != nil && ctx.Err() == nil {
				slog.Warn("failed to activate features; retrying", "node", n.ID, "retry_in", heartbeatInterval, "error", err)
			}
		case errors.Is(err, ErrEvicted):
			return err
		case ctx.Err() == nil:
			failing = true
			slog.Warn("failed to store a heartbeat; retrying", "node", n.ID, "retry_in", heartbeatInterval, "error", err)
		}
	}
}

// Heartbeat renews the membership once. It returns ErrEvicted if the node is no
// longer a member.
func (n *Node) Heartbeat(ctx context.Context) error {
	n.mu.Lock()
	configHash := n.configHash
	n.mu.Unlock()
	return n.beat(ctx, func(tx *db.Tx, at int64) (int64, error) {
		return tx.Exec(ctx, "UPDATE nodes SET seen_at = $2, config_hash = $3 WHERE id = $1", n.ID, at, configHash)
	})
}

// beat runs a transaction that stores a heartbeat and returns the number of rows.
func (n *Node) beat(ctx context.Context, store func(tx *db.Tx, at int64) (int64, error)) error {
	renewed, now := time.Now(), n.now()
	var rows int64
	err := n.db.Write(ctx, func(tx *db.Tx) (err error) {
		rows, err = store(tx, n.db.At(now).UnixMicro())
		return err
	})
	if err == nil && rows == 0 {
		err = ErrEvicted
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.steadySince = time.Time{}
		return err
	}
	if n.steadySince.IsZero() || now.Sub(n.lastBeat) > maxGap {
		n.steadySince = now
	}
	n.renewed, n.lastBeat = renewed, now
	return nil
}

// Leave removes the membership after an orderly stop.
func (n *Node) Leave(ctx context.Context) error {
	return n.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM nodes WHERE id = $1", n.ID)
		return err
	})
}

// AssertAlive makes the transaction fail with ErrEvicted if this node was evicted.
// Otherwise no node can evict it before the transaction ends. Unlike LeaseValid it
// needs no clock: a suspended machine's clock stops.
func (n *Node) AssertAlive(tx *db.Tx) error {
	if n.exclusive() {
		return nil
	}
	epoch := n.epoch.current()
	tx.OnEnd(func(err error) {
		if errors.Is(err, db.ErrInDoubt) {
			n.epoch.end(epoch)
		}
	})
	if !epoch.stored {
		return n.storeEpoch(tx, epoch)
	}
	return tx.Fence(func() error {
		if n.epoch.current() != epoch {
			return db.ErrRace
		}
		n.epoch.end(epoch) // evicted, or a failover lost the epoch: storing the next one finds out
		return db.ErrRace
	}, "SELECT 1 FROM nodes WHERE id = $1 AND epoch = $2"+tx.Keep("nodes"), n.ID, epoch.number)
}

// lost reports that the node was evicted.
func (n *Node) lost() error {
	select {
	case n.evicted <- struct{}{}:
	default:
	}
	return ErrEvicted
}

// exclusive reports whether no other server can share the database. The lock on
// the data directory of an embedded database excludes them.
func (n *Node) exclusive() bool { return n.db.Engine() == "sqlite" }

// LeaseValid reports whether, by this machine's clock, no node can have evicted
// this one.
func (n *Node) LeaseValid() bool {
	if n.exclusive() {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.renewed) < leaseDuration
}

// EvictStale evicts the nodes without a recent heartbeat and returns their
// number. A node whose own heartbeats were interrupted in the last minute
// evicts none.
func (n *Node) EvictStale(ctx context.Context) (evicted int64, err error) {
	before := n.db.At(n.now()).Add(-staleAfter)
	if n.exclusive() {
		before = time.UnixMicro(1 << 62) // every other row belongs to a dead process
	} else if !n.steady() {
		return 0, nil
	}
	err = n.db.Write(ctx, func(tx *db.Tx) (err error) {
		evicted, err = tx.Exec(ctx, "DELETE FROM nodes WHERE seen_at < $1 AND id <> $2", before.UnixMicro(), n.ID)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("evict nodes: %w", err)
	}
	if evicted > 0 && !n.exclusive() {
		n.evictions.Add(float64(evicted))
		slog.Warn("evicted nodes without a recent heartbeat", "nodes", evicted)
	}
	return evicted, nil
}

// steady reports whether this node has stored its heartbeats without
// interruption for long enough to evict others.
func (n *Node) steady() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	return !n.steadySince.IsZero() && now.Sub(n.steadySince) >= steadyAfter && now.Sub(n.lastBeat) <= maxGap
}

// Members lists the nodes that haven't been evicted, including this one.
func Members(ctx context.Context, q db.Querier) ([]string, error) {
	return db.List(ctx, q, db.Value[string], "SELECT id FROM nodes")
}

// ConfigHashes returns the hashes of the settings of nodes with a recent
// heartbeat, by node. A node of an older version has none.
func ConfigHashes(ctx context.Context, q db.Querier, now time.Time) (map[string]string, error) {
	hashes := map[string]string{}
	_, err := db.List(ctx, q, func(row db.Row) (string, error) {
		var id, hash string
		if err := row.Scan(&id, &hash); err != nil {
			return "", err
		}
		if hash != "" {
			hashes[id] = hash
		}
		return id, nil
	}, "SELECT id, config_hash FROM nodes WHERE seen_at > $1", now.Add(-staleAfter).UnixMicro())
	return hashes, err
}

// Count returns the number of nodes with a recent heartbeat.
func Count(ctx context.Context, q db.Querier, now time.Time) (int64, error) {
	return db.Value[int64](q.QueryRow(ctx, "SELECT count(*) FROM nodes WHERE seen_at > $1", now.Add(-staleAfter).UnixMicro()))
}

// Description is a node for operators.
type Description struct {
	ID        string    `json:"id"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`
}

// List describes the nodes that haven't been evicted.
func List(ctx context.Context, q db.Querier) ([]Description, error) {
	return db.List(ctx, q, func(r db.Row) (n Description, err error) {
		err = db.Scan(r, &n.ID, &n.StartedAt, &n.SeenAt)
		return n, err
	}, "SELECT id, started_at, seen_at FROM nodes ORDER BY started_at, id")
}
