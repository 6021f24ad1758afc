package db_test

import (
	"context"
	"slices"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestLastIsDoneInOneOrder, whatever the order in which a transaction has steps.
func TestLastIsDoneInOneOrder(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	var did []string
	note := func(_ context.Context, _ *db.Tx, list []string) error {
		did = append(did, list...)
		return nil
	}
	first, late := db.NewLast(note).BeforeOthers(), db.NewLast(note)
	early := db.NewLast(func(ctx context.Context, tx *db.Tx, list []string) error {
		first.Add(tx, "first again")
		late.Add(tx, "late, too")
		return note(ctx, tx, list)
	})
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		did = nil
		early.Add(tx, "early")
		late.Add(tx, "late")
		first.Add(tx, "first")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first", "early", "first again", "late", "late, too"}; !slices.Equal(did, want) {
		t.Errorf("did %q, expected %q", did, want)
	}
}
