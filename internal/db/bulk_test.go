package db_test

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestRowsReachADatabaseWithOtherTypes covers an address that leads to another database, for example after a logical
// replica took over: its types have other identifiers.
func TestRowsReachADatabaseWithOtherTypes(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	scratch(t, d)
	bulk := db.NewBulk("scratch", "", "id text")
	g := db.NewGroup(d)
	defer g.Stop()
	queue := db.NewQueue(g, true, func(ctx context.Context, tx *db.Tx, ids []string) error {
		rows := make([][]any, len(ids))
		for i, id := range ids {
			rows[i] = []any{id}
		}
		return bulk.Send(ctx, tx, rows, nil)
	})
	if err := queue.Add("first").Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := dbtest.Open(t, address)
	for name, statements := range map[string][]string{
		"other identifiers": {"DROP TYPE %[1]s", "CREATE TYPE %[1]s AS (%[2]s)"},
		"no types":          {"DROP TYPE %[1]s"},
	} {
		var list []string
		types, err := other.Query(t.Context(), `SELECT t.typname, string_agg(attname || ' ' || format_type(atttypid, -1), ', ' ORDER BY attnum)
			FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid WHERE starts_with(typname, 'bulk_row_') GROUP BY 1`)
		err = db.Each(types, err, func(r db.Row) error {
			var typ, columns string
			err := r.Scan(&typ, &columns)
			for _, statement := range statements {
				list = append(list, strings.NewReplacer("%[1]s", typ, "%[2]s", columns).Replace(statement))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range list {
			write(t, other, statement)
		}
		if name == "other identifiers" {
			write(t, other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		}
		if err := queue.Add(name).WaitFor(20 * time.Second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := count(t, d); n != 3 {
		t.Errorf("stored %d rows, want 3", n)
	}
}

func TestRowsAreSentInEveryModeOfTheDriver(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	first := dbtest.Open(t, address)
	scratch(t, first)
	bulk := db.NewBulk("scratch", "", "id text")
	modes := []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}
	for _, mode := range modes {
		d, err := db.Open(t.Context(), address+"&default_query_exec_mode="+mode)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		err = d.Write(t.Context(), func(tx *db.Tx) error { return bulk.Send(t.Context(), tx, [][]any{{mode}}, nil) })
		if err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	if n := count(t, first); n != int64(len(modes)) {
		t.Errorf("stored %d rows, want %d", n, len(modes))
	}
}

func TestSchemasWithAnyNameAreMigrated(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	write(t, dbtest.Open(t, address), `CREATE SCHEMA "My-Schema"`)
	d, err := db.Open(t.Context(), address+"&search_path="+url.QueryEscape(`"My-Schema"`))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}
