package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// Every table is filled, so that one which is made later is copied, too.
func TestEveryTableIsCopied(t *testing.T) {
	t.Parallel()
	old, fresh := dbtest.Open(t, dbtest.Address(t, "sqlite")), dbtest.Open(t, dbtest.Address(t, "postgres"))
	tables, columns := fillEveryTable(t, old)
	copied := int64(0)
	copyAll(t, old, fresh, tables, func(rows int64) { copied += rows })
	if copied != int64(3*len(tables)) || len(tables) < 30 {
		t.Errorf("%d rows of %d tables were copied", copied, len(tables))
	}
	for _, table := range tables {
		was, is := contents(t, old, table, columns[table]), contents(t, fresh, table, columns[table])
		if len(was) != 3 || !slices.Equal(was, is) {
			t.Errorf("%s was\n%s\nand is\n%s", table, strings.Join(was, "\n"), strings.Join(is, "\n"))
		}
	}
}

// fillEveryTable puts three rows into each table: texts that refer to each
// other, since all are the same; the least of texts; and no value where there
// may be none.
func fillEveryTable(t *testing.T, d *db.DB) (tables []string, columns map[string][]string) {
	t.Helper()
	columns = map[string][]string{}
	inOne(t, d, func(tx *db.Tx) (err error) {
		if tables, err = db.Tables(t.Context(), tx); err != nil {
			return err
		}
		for _, table := range tables {
			rows, err := tx.Query(t.Context(), `SELECT name, type, "notnull" OR pk > 0 FROM pragma_table_info($1)`, table)
			var names []string
			values := make([][]any, 3)
			err = db.Each(rows, err, func(r db.Row) error {
				var name, typ string
				var needed bool
				if err := r.Scan(&name, &typ, &needed); err != nil {
					return err
				}
				names = append(names, name)
				row := map[string][3]any{"TEXT": {"ä'\"\\\n", "", "z"}, "BIGINT": {int64(1) << 53, int64(-1), int64(0)}, "BOOLEAN": {true, false, true}}[typ]
				if !needed {
					row[2] = nil
				}
				for i := range values {
					values[i] = append(values[i], row[i])
				}
				return nil
			})
			if err != nil {
				return err
			}
			columns[table] = names
			for _, v := range values {
				marks := strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
				if _, err := tx.Exec(t.Context(), "INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES ("+marks+")", v...); err != nil {
					return fmt.Errorf("fill %s: %w", table, err)
				}
			}
		}
		return nil
	})
	return tables, columns
}

func contents(t *testing.T, d *db.DB, table string, columns []string) []string {
	t.Helper()
	rows, err := d.Query(t.Context(), "SELECT "+strings.Join(columns, ", ")+" FROM "+table)
	list, err := db.All(rows, err, func(r db.Row) (string, error) {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		err := r.Scan(values...)
		var text strings.Builder
		for _, v := range values {
			value := *v.(*any)
			if flag, ok := value.(bool); ok { // SQLite has none
				value = map[bool]int64{true: 1}[flag]
			}
			fmt.Fprintf(&text, "%#v ", value)
		}
		return text.String(), err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

func copyAll(t *testing.T, old, fresh *db.DB, tables []string, more func(int64)) {
	t.Helper()
	inOne(t, old, func(from *db.Tx) error {
		return fresh.Write(t.Context(), func(to *db.Tx) error {
			for _, table := range tables {
				if err := db.Copy(t.Context(), from, to, table, more); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func inOne(t *testing.T, d *db.DB, do func(tx *db.Tx) error) {
	t.Helper()
	if err := d.Write(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

// Neither many rows nor long ones are in memory all at once.
func TestCopyGoesInPieces(t *testing.T) {
	t.Parallel()
	old, fresh := dbtest.Open(t, dbtest.Empty(t, "sqlite")), dbtest.Open(t, dbtest.Empty(t, "postgres"))
	for _, d := range []*db.DB{old, fresh} {
		write(t, d, "CREATE TABLE texts (id BIGINT PRIMARY KEY, value TEXT)")
	}
	inOne(t, old, func(tx *db.Tx) error {
		for i := range 2500 {
			long := ""
			if i >= 2490 {
				long = strings.Repeat("x", 1<<20)
			}
			if _, err := tx.Exec(t.Context(), "INSERT INTO texts (id, value) VALUES ($1, $2)", int64(i), long); err != nil {
				return err
			}
		}
		return nil
	})
	var pieces []int64
	copyAll(t, old, fresh, []string{"texts"}, func(rows int64) { pieces = append(pieces, rows) })
	if want := []int64{1000, 1000, 494, 4, 2}; !slices.Equal(pieces, want) {
		t.Errorf("copied %v, want %v", pieces, want)
	}
	if n, err := db.Count(t.Context(), fresh, "texts"); n != 2500 || err != nil {
		t.Errorf("%d rows were copied: %v", n, err)
	}
}

func TestCopyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	old, fresh := dbtest.Open(t, dbtest.Empty(t, "sqlite")), dbtest.Open(t, dbtest.Empty(t, "sqlite"))
	scratch(t, old)
	scratch(t, fresh)
	write(t, old, "INSERT INTO scratch (id) VALUES ('a'), ('b')")
	ctx, cancel := context.WithCancel(t.Context())
	err := old.Write(ctx, func(from *db.Tx) error {
		return fresh.Write(ctx, func(to *db.Tx) error {
			cancel()
			return db.Copy(ctx, from, to, "scratch", func(int64) {})
		})
	})
	if !errors.Is(err, context.Canceled) || count(t, fresh) != 0 {
		t.Errorf("got %v, and %d rows were copied", err, count(t, fresh))
	}
}

func TestRedactedAddressHasNoSecret(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://ada:hush@db.internal/turnpike?sslmode=disable":                             "db.internal:5432/turnpike",
		"postgres://ada:hush@db:6543/turnpike":                                                 "db:6543/turnpike",
		"postgres://?host=127.0.0.1&port=5433&user=ada&password=hush&dbname=t&sslmode=disable": "127.0.0.1:5433/t",
		"postgres://ada:hush@db?sslmode=disable":                                               "db:5432/ada",
		"postgres://ada:hush@db:port/x":                                                        "(invalid address)",
	} {
		if got := db.RedactedAddress(address); got != want {
			t.Errorf("%s is shown as %s", address, got)
		}
	}
}

// A transaction that an operator watches is not held to a request's limit.
func TestPatientTransactionMayTakeItsTime(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Empty(t, "postgres"))
	sleep := func(patient bool) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			if patient {
				if err := tx.DisableTimeouts(t.Context()); err != nil {
					return err
				}
			}
			_, err := tx.Exec(t.Context(), "SELECT pg_sleep(5.5)")
			return err
		})
	}
	var hurried, patient error
	var both sync.WaitGroup
	both.Go(func() { hurried = sleep(false) })
	both.Go(func() { patient = sleep(true) })
	both.Wait()
	if !errors.Is(hurried, db.ErrUnavailable) || patient != nil {
		t.Errorf("got %v and %v", hurried, patient)
	}
}
