package accounts_test

import (
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// B6: reading the count instead of the sums is only right if every statement changes both.
func TestStoredBytesFollowEveryStatement(t *testing.T) {
	t.Parallel()
	insert := map[string]string{
		"responses": `INSERT INTO responses (id, workspace_id, bytes, environment, reader, content, created_at, expires_at)
			VALUES ('1', 'ws_1', 10, 'live', '', '', 0, 0), ('2', 'ws_2', 20, 'live', '', '', 0, 0), ('3', 'ws_1', 40, 'live', '', '', 0, 0) ON CONFLICT (id) DO NOTHING`,
		"conversation_items": `INSERT INTO conversation_items (conversation_id, position, workspace_id, bytes, id, content)
			VALUES ('c', 1, 'ws_1', 10, '', ''), ('c', 2, 'ws_2', 20, '', ''), ('c', 3, 'ws_1', 40, '', '') ON CONFLICT (conversation_id, position) DO NOTHING`,
		"api_files": `INSERT INTO api_files (id, workspace_id, bytes, environment, purpose, filename, sha256, created_at, expires_at)
			VALUES ('1', 'ws_1', 10, 'live', '', '', '', 0, 0), ('2', 'ws_2', 20, 'live', '', '', '', 0, 0), ('3', 'ws_1', 40, 'live', '', '', '', 0, 0) ON CONFLICT (id) DO NOTHING`,
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		want := map[string]int64{}
		for table, rows := range insert {
			for _, step := range []struct {
				statement string
				one, two  int64 // change the bytes of ws_1 and ws_2
			}{
				{rows, 50, 20},
				{rows, 0, 0},
				{"UPDATE " + table + " SET bytes = bytes + 1", 2, 1},
				{"UPDATE " + table + " SET workspace_id = workspace_id", 0, 0},
				{"DELETE FROM " + table + " WHERE bytes = 11", -11, 0},
				{"DELETE FROM " + table + " WHERE bytes = 11", 0, 0},
				{"DELETE FROM " + table + " WHERE workspace_id = 'ws_2'", 0, -21},
			} {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), step.statement)
					return err
				})
				if err != nil {
					t.Fatalf("%s: %v", step.statement, err)
				}
				want["ws_1"] += step.one
				want["ws_2"] += step.two
				for workspace, n := range want {
					if got, err := accounts.StoredBytes(t.Context(), d, workspace); err != nil || got != n {
						t.Fatalf("%s: %s stores %d bytes (%v), want %d", step.statement, workspace, got, err, n)
					}
				}
			}
		}
	})
}

func TestEmptyWorkspaceStoresNoBytes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if n, err := accounts.StoredBytes(t.Context(), d, "ws_none"); n != 0 || err != nil {
			t.Errorf("got %d (%v), want 0", n, err)
		}
	})
}
