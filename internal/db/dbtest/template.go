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

// A database that has all tables is made once and copied for each test: making
// one took longer than most of what is done in it.

// sqliteTemplate is such a database's file.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "turnpike-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "turnpike.db")
	if err := migrate(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// templateLock keeps the processes that share a server from making two.
const templateLock = 7_260_115

// postgresTemplate is the name of such a database on the test server. A server
// that outlives the tests may have others, of other states of the project.
var postgresTemplate = sync.OnceValues(func() (name string, err error) {
	server, err := serverURL()
	if err != nil {
		return "", err
	}
	name = "turnpike_template_" + db.Fingerprint()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", fmt.Errorf("connect to the test server: %w", err)
	}
	defer conn.Close(ctx) // which frees the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
		return "", err
	}
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil || there {
		return name, err
	}
	// Under another name first: one that could not be finished is no template.
	draft := "draft_" + ids.New("")
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+draft); err != nil {
		return "", err
	}
	if err := migrate(databaseURL(server, draft)); err != nil {
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

// databaseURL is the address of another database on the server.
func databaseURL(server, name string) string {
	u, err := url.Parse(server)
	if err != nil { // it was connected to
		panic(err)
	}
	u.Path = "/" + name
	return u.String()
}
