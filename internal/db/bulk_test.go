package db_test

import (
	"slices"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

func TestBulkDeleteMatchesEachRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		write(t, d, "INSERT INTO scratch (id, n) VALUES ('a', 1), ('b', 2), ('c', 3)")
		bulk := db.NewBulkDelete("scratch", "scratch.id = v.id AND scratch.n = v.n", "n bigint", "id text")
		var deleted int64
		err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
			deleted, err = bulk.Write(t.Context(), tx, [][]any{{int64(1), "a"}, {int64(3), "b"}, {int64(3), "c"}, {int64(4), "d"}})
			return err
		})
		if err != nil || deleted != 2 {
			t.Errorf("deleted %d rows (%v), want 2", deleted, err)
		}
		if left, err := db.List(t.Context(), d, db.Value[string], "SELECT id FROM scratch"); err != nil || !slices.Equal(left, []string{"b"}) {
			t.Errorf("left %v (%v), want b", left, err)
		}
	})
}

func TestBulkInsertForEachResultOfQuery(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		write(t, d, "INSERT INTO scratch (id, n) VALUES ('a', 1), ('b', 2), ('a+y', 7)")
		bulk := db.NewBulkInsertFor("scratch (id, n)", "SELECT id || v.suffix, n + v.more FROM (SELECT id, n FROM scratch WHERE n < 7) AS short",
			"ON CONFLICT (id) DO UPDATE SET n = scratch.n * 10", "suffix text", "more bigint")
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			return bulk.Send(t.Context(), tx, [][]any{{"+x", int64(10)}, {"+y", int64(20)}}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := db.List(t.Context(), d, db.Value[int64], "SELECT n FROM scratch WHERE id IN ('a+x', 'a+y', 'b+x', 'b+y') ORDER BY id")
		if want := []int64{11, 70, 12, 22}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v (%v), want %v", got, err, want)
		}
	})
}
