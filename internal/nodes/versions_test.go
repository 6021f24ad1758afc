package nodes

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

const testFeature Feature = "test_feature"

func joinVersion(t *testing.T, d *db.DB, c *testClock, supported ...Feature) *Node {
	t.Helper()
	n, err := joinWith(t.Context(), d, c.now, supported)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantActive(t *testing.T, d *db.DB, want bool) {
	t.Helper()
	if got, err := Active(t.Context(), d, testFeature); got != want || err != nil {
		t.Errorf("the feature is active: got %t (%v), want %t", got, err, want)
	}
}

func activate(t *testing.T, n *Node) {
	t.Helper()
	if err := n.activateFeatures(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFeatureIsActiveOnceAllNodesSupportIt(t *testing.T) {
	t.Parallel()
	d, c := postgres(t), &testClock{time.Now()}
	old, crashed := joinVersion(t, d, c), joinVersion(t, d, c)
	one := joinVersion(t, d, c, testFeature)
	two := joinVersion(t, d, c, "other_feature", testFeature)
	activate(t, two)
	wantActive(t, d, false)
	if err := old.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	activate(t, one)
	wantActive(t, d, false) // the crashed node's program may still run

	c.run(t, staleAfter+heartbeatInterval, one, two)
	if n := evict(t, one); n != 1 || isMember(t, crashed) {
		t.Fatalf("evicted %d nodes, want the crashed one", n)
	}
	activate(t, one)
	wantActive(t, d, true)
}

// TestNodeWithoutAnActiveFeatureCannotJoin covers a rollback that is too late.
func TestNodeWithoutAnActiveFeatureCannotJoin(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := &testClock{time.Now()}
		first := joinVersion(t, d, c, testFeature)
		wantActive(t, d, true)
		if err := first.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := joinWith(t.Context(), d, c.now, []Feature{"other_feature"})
		if err == nil || !strings.Contains(err.Error(), "use features that this program lacks (test_feature); use the newer program") {
			t.Errorf("got %v, want an error that names the feature", err)
		}
		if members, err := Members(t.Context(), d); len(members) != 0 || err != nil {
			t.Errorf("got members %v (%v), want none", members, err)
		}
		joinVersion(t, d, c, testFeature)
		wantActive(t, d, true)
	})
}

// TestCrashedServerDelaysNoFeature covers the embedded database, where the row of a
// dead process belongs to no one.
func TestCrashedServerDelaysNoFeature(t *testing.T) {
	t.Parallel()
	d, c := dbtest.Open(t, dbtest.Address(t, "sqlite")), &testClock{time.Now()}
	joinVersion(t, d, c)
	joinVersion(t, d, c, testFeature)
	wantActive(t, d, true)
}

// TestContractMigrationWaitsForOldNodes checks that a migration never breaks a
// running node.
func TestContractMigrationWaitsForOldNodes(t *testing.T) {
	t.Parallel()
	d, c := postgres(t), &testClock{time.Now()}
	current := len(db.Migrations())
	expand, contract := db.Migration{Version: current + 1, Name: "grow"}, db.Migration{Version: current + 2, Name: "shrink", OldestProgram: current + 1}
	allow := func(m db.Migration) error {
		return d.Write(t.Context(), func(tx *db.Tx) error { return AllowMigration(d)(t.Context(), tx, m) })
	}
	old := joinVersion(t, d, c)
	if err := allow(expand); err != nil {
		t.Errorf("an expand migration: %v", err)
	}
	if err := allow(contract); err == nil || !strings.Contains(err.Error(), old.ID) || !isMember(t, old) {
		t.Errorf("got %v, want an error that names %s", err, old.ID)
	}
	if err := allow(db.Migration{Version: current + 2, OldestProgram: current}); err != nil || !isMember(t, old) {
		t.Errorf("a migration that the node supports: %v", err)
	}
	// A node that crashed is evicted, so that it can't continue afterward.
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE nodes SET seen_at = $1", d.Now().Add(-2*staleAfter).UnixMicro())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := allow(contract); err != nil || isMember(t, old) {
		t.Errorf("with a crashed node: got %v, and it is a member: %t; want it evicted", err, isMember(t, old))
	}
}
