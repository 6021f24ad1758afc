package nodes

import (
	"sync"

	"turnpike/internal/db"
)

// An epoch keeps a transaction that arrives late from doing what its node has done again since. The node
// sends transactions as a whole, and gives up those without a response. Then the epoch ends. The next
// transaction of the node stores the next epoch: it waits for those that have passed their fence, and all
// that come later find another epoch and fail.

// epoch is a period without a commit in doubt.
type epoch struct {
	number int64
	stored bool // in the node's row
}

// epochs are those of a node, from 0.
type epochs struct {
	mu      sync.Mutex
	number  int64 // of the current one
	highest int64 // that is stored
}

func (e *epochs) current() epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return epoch{e.number, e.number <= e.highest}
}

// end ends an epoch, unless it has ended.
func (e *epochs) end(of epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.number = max(e.number, of.number+1)
}

// store remembers that an epoch is stored.
func (e *epochs) store(of epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.highest = max(e.highest, of.number)
}

// storeEpoch makes transactions of earlier epochs fail.
func (n *Node) storeEpoch(tx *db.Tx, next epoch) error {
	return tx.Send(func(found int64) error {
		if found == 0 {
			return n.lost()
		}
		tx.OnCommit(func() { n.epoch.store(next) })
		return tx.Send(nil, "UPDATE nodes SET epoch = $2 WHERE id = $1 AND epoch < $2", n.ID, next.number)
	}, "SELECT 1 FROM nodes WHERE id = $1 FOR UPDATE", n.ID)
}
