package audit

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
)

// TestRecoveryOfOtherNodesContinuesAfterOneFails retries the failed node later
// and closes the entries of the others now.
func TestRecoveryOfOtherNodesContinuesAfterOneFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		node, err := nodes.Join(t.Context(), d, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		g := db.NewGroup(d)
		t.Cleanup(g.Stop)
		refuses := errors.New("as the test says")
		l := NewLog(g, node, func(_ context.Context, _ *db.Tx, list []Settlement) error {
			for _, b := range list {
				if b.Entry.KeyID == "bad" {
					return refuses
				}
			}
			return nil
		})
		for _, owner := range []string{"node_1", "node_2", "node_3"} {
			e := live(nil)
			if owner != "node_2" {
				e.KeyID = "bad"
			}
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := insertRequests.Write(t.Context(), tx, [][]any{e.appendRow(nil, owner)})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n, err := l.Recover(t.Context(), d); n != 1 || !errors.Is(err, refuses) {
			t.Errorf("%d entries were closed: %v", n, err)
		}
		for owner, want := range map[string]bool{"node_1": true, "node_2": false, "node_3": true} {
			if open, err := HasOpen(t.Context(), d, owner); err != nil || open != want {
				t.Errorf("%s has open entries: %t (%v)", owner, open, err)
			}
		}
	})
}
