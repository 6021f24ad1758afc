package api_test

import (
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/test/harness"
)

func TestServerStartsIfRecoveryFails(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	c := newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Test)
	c.write(t, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TRIGGER refuses BEFORE INSERT ON requests WHEN NEW.node_id = 'node_dead' AND NEW.settled BEGIN SELECT RAISE(ABORT, 'as the test says'); END")
		return err
	})
	c.LeaveOpen(t, c.workspace, "key", 5)
	if err := c.App.Close(); err != nil {
		t.Fatal(err)
	}
	c.Server = harness.Start(t, cfg, c.Clock)
	c.get(t, "/v1/models")
	if n := c.rows(t, "requests WHERE node_id = 'node_dead' AND NOT settled"); n != 1 {
		t.Errorf("%d entries are open: the test tests nothing", n)
	}
}
