package db_test

import (
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// PostgreSQL answers a COMMIT after a failed statement with ROLLBACK, and without an error.
func TestCommitAfterAnIgnoredErrorFails(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	committed := false
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		tx.OnCommit(func() { committed = true })
		if _, err := tx.Exec(t.Context(), "INSERT INTO meta (name, value) VALUES ('lost', '')"); err != nil {
			return err
		}
		_, _ = tx.Exec(t.Context(), "SELECT 1 / 0")
		return nil
	})
	if err == nil || committed {
		t.Errorf("got %v, and the functions for a commit ran: %t", err, committed)
	}
}
