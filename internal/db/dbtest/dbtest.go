// Package dbtest gives each test a separate database, and runs tests on both
// engines.
package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// Engines lists the supported engines.
var Engines = []string{"sqlite", "postgres"}

// Each runs fn on a fresh, migrated database of each engine, in parallel.
func Each(t *testing.T, fn func(t *testing.T, d *db.DB)) {
	t.Helper()
	EachAddress(t, func(t *testing.T, address string) {
		fn(t, Open(t, address))
	})
}

// EachAddress runs fn with the address of a fresh database of each engine. It's
// for tests that open it themselves or in another process.
func EachAddress(t *testing.T, fn func(t *testing.T, address string)) {
	t.Helper()
	for _, engine := range Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, Address(t, engine))
		})
	}
}

// Open opens and migrates the database, and closes it when the test ends.
func Open(t testing.TB, address string) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if _, err := d.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return d
}

// AwaitBlocked waits until another transaction waits for tx, up to a minute. On
// SQLite it returns immediately: all other writers wait.
func AwaitBlocked(t testing.TB, d *db.DB, tx *db.Tx) {
	t.Helper()
	if d.Engine() == "sqlite" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	holder, err := db.Value[int](tx.QueryRow(ctx, "SELECT pg_backend_pid()"))
	for waiting := 0; waiting == 0 && err == nil; {
		waiting, err = db.Value[int](d.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", holder))
	}
	if err != nil {
		t.Errorf("no transaction waits for this one: %v", err)
	}
}

// Address returns the address of a migrated, empty database: a file in the
// test's directory, or a new database on the test server.
func Address(t testing.TB, engine string) string {
	t.Helper()
	if engine == "sqlite" {
		file, err := sqliteTemplate()
		if err != nil {
			t.Fatal(err)
		}
		path := sqlitePath(t)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	template, err := postgresTemplate()
	if err != nil {
		t.Fatalf("this test needs PostgreSQL: %v", err)
	}
	return testURL(t, borrow(t, URL(t), template))
}

// Empty is Address without the tables.
func Empty(t testing.TB, engine string) string {
	t.Helper()
	if engine == "sqlite" {
		return sqlitePath(t)
	}
	server, name := URL(t), "t_"+ids.New("")
	onServer(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { onServer(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	return testURL(t, name)
}

func sqlitePath(t testing.TB) string { return filepath.Join(t.TempDir(), "turnpike.db") }

// testURL returns the address of a database on the test server.
func testURL(t testing.TB, name string) string {
	t.Helper()
	u, err := url.Parse(databaseURL(URL(t), name))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("pool_max_conns", "8")
	u.RawQuery = q.Encode()
	return u.String()
}

func onServer(t testing.TB, server, statement string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatal(fmt.Errorf("connect to the test server: %w", err))
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatal(err)
	}
}
