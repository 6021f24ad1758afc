package accounts

import (
	"context"

	"turnpike/internal/db"
)

// StoredBytes returns how much content a workspace has stored: responses, conversations and files
// of the Files API. Triggers of these tables keep the sum, so no insert, update or delete can miss it.
func StoredBytes(ctx context.Context, q db.Querier, workspaceID string) (int64, error) {
	n, err := db.Value[int64](q.QueryRow(ctx, "SELECT bytes FROM stored_bytes WHERE workspace_id = $1", workspaceID))
	return n, db.IgnoreNotFound(err)
}
