package lanes

import (
	"context"
	"errors"

	"turnpike/internal/db"
)

// PinnedNode is LockPinnedNode without the lock: it may be another's by now.
func PinnedNode(ctx context.Context, q db.Querier, queue, id string) (string, error) {
	var node *string
	err := q.QueryRow(ctx, "SELECT pinned_to FROM lanes WHERE queue = $1 AND id = $2", queue, id).Scan(&node)
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return db.Text(node), err
}
