package access

import (
	"context"
	"fmt"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// Names returns the names of keys of one environment by ID. Other keys are left out.
func (m *Keys) Names(ctx context.Context, q db.Querier, t accounts.Tenant, ids []string) (map[string]string, error) {
	out := make(map[string]string, len(ids))
	err := db.ByIDs(ctx, q, db.InQuery{SQL: "SELECT id, name FROM keys WHERE workspace_id = $1 AND environment = $2 AND id IN", Args: []any{t.WorkspaceID, t.Environment}}, ids, func(r db.Row) error {
		var id, name string
		err := r.Scan(&id, &name)
		out[id] = name
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("names of keys: %w", err)
	}
	return out, nil
}
