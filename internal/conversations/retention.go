package conversations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// retention is how long the workspace of a row of a table keeps its responses, in seconds.
func retention(table string) string {
	return fmt.Sprintf("coalesce((SELECT response_retention_seconds FROM workspaces WHERE workspaces.id = %s.workspace_id), %d)", table, accounts.DefaultResponseRetention/time.Second)
}

// unexpired selects the responses r that haven't expired. If the workspace has shortened its retention, their dates may still be
// those of the longer one.
func unexpired(now string) string {
	return "r.expires_at > " + now + " AND r.created_at + 1000000 * " + retention("r") + " > " + now
}

func init() {
	accounts.WorkspaceRules.Add(func(ctx context.Context, tx *db.Tx, c accounts.Changed[accounts.Workspace]) error {
		if c.After.ResponseRetention >= c.Before.ResponseRetention {
			return nil
		}
		_, err := tx.Exec(ctx, "INSERT INTO shortened_retentions (workspace_id) VALUES ($1) ON CONFLICT (workspace_id) DO UPDATE SET workspace_id = excluded.workspace_id", c.After.ID)
		return err
	})
}

// ShortenRetention gives the stored content of a workspace that has shortened its retention the dates that follow from it, at most
// limit rows. It returns 0 if there is no such workspace, and limit otherwise.
func (s *Store) ShortenRetention(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	id, err := db.Value[string](tx.QueryRow(ctx, "SELECT workspace_id FROM shortened_retentions ORDER BY workspace_id LIMIT 1"+tx.Claim("shortened_retentions")))
	if errors.Is(err, db.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	w, err := accounts.GetWorkspace(ctx, tx, id)
	if err != nil {
		return 0, err
	}
	n, err := tx.Exec(ctx, `UPDATE responses SET expires_at = created_at + $2 WHERE id IN
		(SELECT id FROM responses WHERE workspace_id = $1 AND expires_at - created_at > $2 LIMIT $3)`, id, w.ResponseRetention.Microseconds(), limit)
	if err != nil || n == limit {
		return limit, err
	}
	n, err = tx.Exec(ctx, `UPDATE conversations SET expires_at = $2 WHERE id IN
		(SELECT id FROM conversations WHERE workspace_id = $1 AND expires_at > $2 LIMIT $3)`, id, s.now().Add(w.ResponseRetention).UnixMicro(), limit)
	if err != nil || n == limit {
		return limit, err
	}
	_, err = tx.Exec(ctx, "DELETE FROM shortened_retentions WHERE workspace_id = $1", id)
	return limit, err
}
