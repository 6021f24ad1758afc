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
	return newDatabase(t, " TEMPLATE "+template+" STRATEGY FILE_COPY")
}

// Empty is Address without the tables.
func Empty(t testing.TB, engine string) string {
	t.Helper()
	if engine == "sqlite" {
		return sqlitePath(t)
	}
	return newDatabase(t, "")
}

func sqlitePath(t testing.TB) string { return filepath.Join(t.TempDir(), "turnpike.db") }

// newDatabase creates a database on the test server and drops it when the test
// ends.
func newDatabase(t testing.TB, like string) string {
	t.Helper()
	server := URL(t)
	name := "t_" + ids.New("")
	onServer(t, server, "CREATE DATABASE "+name+like)
	t.Cleanup(func() { onServer(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(databaseURL(server, name))
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
