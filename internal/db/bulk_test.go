package db_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

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

func TestBulkStoresEveryKindOfValue(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		write(t, d, "CREATE TABLE kinds (id TEXT PRIMARY KEY, note TEXT, n BIGINT, yes BOOLEAN)")
		bulk := db.NewBulk("kinds", "", "id text", "note text", "n bigint", "yes boolean")
		want := [][]any{
			{"01", "", int64(0), false},
			{"02", "{\"quoted\": \"a, b\"} \\ é 漢", int64(math.MinInt64), true},
			{"03", nil, nil, nil},
		}
		for n := range 60 {
			want = append(want, []any{fmt.Sprintf("row %02d", n), strings.Repeat("x", n*n), int64(-n), n%2 == 0})
		}
		for _, batch := range [][][]any{want[:1], want[1:3], want[3:]} {
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				n, err := bulk.Write(t.Context(), tx, batch)
				if n != int64(len(batch)) {
					t.Errorf("inserted %d rows, want %d", n, len(batch))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		got, err := db.List(t.Context(), d, func(r db.Row) ([]any, error) {
			var id string
			var note *string
			var n *int64
			var yes *bool
			err := r.Scan(&id, &note, &n, &yes)
			return []any{id, orNil(note), orNil(n), orNil(yes)}, err
		}, "SELECT id, note, n, yes FROM kinds ORDER BY id")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("stored %v (%v), want %v", got, err, want)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := bulk.Write(t.Context(), tx, [][]any{{"wrong", int64(1), int64(1), true}})
			return err
		})
		if d.Engine() == "postgres" && err == nil {
			t.Error("a number was stored as text")
		}
	})
}

func orNil[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// Each program creates the types that it needs, maybe while others do the same.
func TestProgramsCreateTypesOfRowsTogether(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	write(t, dbtest.Open(t, address), "CREATE TABLE wide (a TEXT, b BIGINT, c BOOLEAN, d BOOLEAN, e BIGINT, f TEXT)")
	bulk := db.NewBulk("wide", "", "a text", "b bigint", "c boolean", "d boolean", "e bigint", "f text")
	var programs errgroup.Group
	for range 4 {
		programs.Go(func() error {
			d, err := db.Open(t.Context(), address)
			if err != nil {
				return err
			}
			defer d.Close()
			return d.Write(t.Context(), func(tx *db.Tx) error {
				return bulk.Send(t.Context(), tx, [][]any{{"a", int64(1), true, false, int64(2), nil}}, nil)
			})
		})
	}
	if err := programs.Wait(); err != nil {
		t.Fatal(err)
	}
	if n, err := db.Value[int](dbtest.Open(t, address).QueryRow(t.Context(), "SELECT count(*) FROM wide")); err != nil || n != 4 {
		t.Errorf("stored %d rows (%v), want 4", n, err)
	}
}
