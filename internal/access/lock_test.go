package access

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

func TestGetLockedDoesNotWaitForInvisibleKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		ring, err := keyring.New(make([]byte, keyring.Size))
		if err != nil {
			t.Fatal(err)
		}
		keys := NewKeys(ring, func() time.Time { return f.now })
		strangers := func() {
			for _, of := range []struct {
				workspace string
				env       accounts.Environment
			}{{ids.New(ids.Workspace), accounts.Test}, {f.key.WorkspaceID, accounts.Live}} {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					_, err := keys.GetLocked(t.Context(), tx, visibility.Filter{Tenant: accounts.Tenant{WorkspaceID: of.workspace, Environment: of.env}}, f.key.ID)
					return err
				})
				if !fault.Is(err, fault.NotFound) {
					t.Errorf("a stranger gets %v", err)
				}
			}
		}
		if d.Engine() == "sqlite" { // SQLite has one writer at a time
			strangers()
			return
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := keys.GetLocked(t.Context(), tx, visibility.Filter{Tenant: f.key.Tenant}, f.key.ID); err != nil {
				return err
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				strangers()
			}()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Error("a stranger waits for the owner's change")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
