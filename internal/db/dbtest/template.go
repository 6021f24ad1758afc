package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/jackc/pgx/v5"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// Migrating a database takes longer than most tests, so a migrated one is
// created once and copied for each test.

// sqliteTemplate returns the file of a migrated database.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "turnpike-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "turnpike.db")
	if err := migrate(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

const (
	// templateLock keeps processes that share a server from creating two templates.
	templateLock = 7_260_115
	// spareLock keeps them from taking the same spare database.
	spareLock = 7_260_116
)

// postgresTemplate returns the name of a migrated database on the test server.
// A long-lived server may have templates of other versions.
var postgresTemplate = sync.OnceValues(func() (name string, err error) {
	server, err := serverURL()
	if err != nil {
		return "", err
	}
	name = "turnpike_template_" + version()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", fmt.Errorf("connect to the test server: %w", err)
	}
	defer conn.Close(ctx) // releases the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
		return "", err
	}
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil || there {
		return name, err
	}
	// A draft name first, so that an incomplete database is never used as a
	// template.
	draft := "draft_" + ids.New("")
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+draft); err != nil {
		return "", err
	}
	if err := migrate(databaseURL(server, draft)); err != nil {
		return "", err
	}
	if err := markSchema(ctx, databaseURL(server, draft), draft); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+draft+" RENAME TO "+name)
	return name, err
})

func migrate(address string) error {
	d, err := db.Open(context.Background(), address)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.Migrate(context.Background())
	return err
}

// databaseURL returns the address of another database on the server.
func databaseURL(server, name string) string {
	u, err := url.Parse(server)
	if err != nil { // impossible: it was used to connect
		panic(err)
	}
	u.Path = "/" + name
	return u.String()
}
