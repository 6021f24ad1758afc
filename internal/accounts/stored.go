package accounts

import (
	"context"

	"turnpike/internal/db"
)

// StoredBytes returns how much content a workspace has stored: responses, conversations and files
// of the Files API.
func StoredBytes(ctx context.Context, q db.Querier, workspaceID string) (int64, error) {
	return db.Value[int64](q.QueryRow(ctx, `SELECT coalesce((SELECT sum(bytes) FROM responses WHERE workspace_id = $1), 0) +
		coalesce((SELECT sum(bytes) FROM conversation_items WHERE workspace_id = $1), 0) +
		coalesce((SELECT sum(bytes) FROM api_files WHERE workspace_id = $1), 0)`, workspaceID))
}
