package lanes

import (
	"context"
	"time"

	"turnpike/internal/db"
)

// Pinning assigns a lane to one node.
type Pinning struct {
	Queue, Lane, Node string
	Now               time.Time
}

// Pin assigns a lane to a node immediately, and marks it as having work. A node
// that already leases the lane keeps it, with its buffered and running items.
func Pin(ctx context.Context, tx *db.Tx, p Pinning) error {
	_, err := tx.Exec(ctx, `INSERT INTO lanes (queue, id, due_at, seq, pinned_to) VALUES ($1, $2, $3, 1, $4)
		ON CONFLICT (queue, id) DO UPDATE SET due_at = $3, seq = lanes.seq + 1, pinned_to = $4,
			owner = CASE WHEN lanes.owner = $4 THEN lanes.owner END, lease_until = CASE WHEN lanes.owner = $4 THEN lanes.lease_until END`,
		p.Queue, p.Lane, p.Now.UnixMicro(), p.Node)
	tx.Signal(signalOf(p.Queue), p.Lane)
	return db.Wrap(err, "pin lane")
}

const selectPinnedNode = "SELECT pinned_to FROM lanes WHERE queue = $1 AND id = $2"

// PinnedNode returns the node to which a lane is pinned, or an empty string.
func PinnedNode(ctx context.Context, q db.Querier, queue, id string) (string, error) {
	node, err := db.Value[string](q.QueryRow(ctx, selectPinnedNode, queue, id))
	return node, db.IgnoreNotFound(err)
}

// LockPinnedNode is PinnedNode, and locks the lane.
func LockPinnedNode(ctx context.Context, tx *db.Tx, queue, id string) (string, error) {
	node, err := db.Value[string](tx.QueryRow(ctx, selectPinnedNode+tx.Lock("lanes"), queue, id))
	return node, db.IgnoreNotFound(err)
}
