// Package app connects the components, starts them and stops them in reverse.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/keyring"
	"turnpike/internal/nodes"
)

const (
	databaseFile  = "turnpike.db"
	masterKeyFile = "master.key"
	firstRunFile  = "first-run.txt"
)

// Store is the database with its encryption keys.
type Store struct {
	DB      *db.DB
	Ring    *keyring.Ring
	Applied []db.Migration // when it was opened

	master  []byte
	release func() // unlocks the data directory
}

// OpenStore opens the configured database, migrates it, and checks that it was
// not moved and that the master key is right.
func OpenStore(ctx context.Context, cfg config.Config) (*Store, error) {
	return openChecked(ctx, cfg, (*Store).prepare)
}

// OpenStoreUnmigrated is OpenStore for commands that must not migrate: an older
// schema is an error, because migrations can't be undone.
func OpenStoreUnmigrated(ctx context.Context, cfg config.Config) (*Store, error) {
	return openChecked(ctx, cfg, func(s *Store, ctx context.Context) error {
		if err := CheckSchema(ctx, s.DB); err != nil {
			return err
		}
		return s.unlock(ctx)
	})
}

// CheckSchema fails if this program doesn't work with the schema.
func CheckSchema(ctx context.Context, d *db.DB) error {
	have, want, err := d.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have > want {
		return db.CheckProgram(ctx, d)
	}
	return compareVersions(have, want)
}

// requireOwnSchema fails unless the schema has this program's version: copying a
// newer one would lose what this program doesn't know.
func requireOwnSchema(ctx context.Context, d *db.DB) error {
	have, want, err := d.SchemaVersion(ctx)
	if err == nil && have > want {
		err = fmt.Errorf("the database is at schema version %d but this program copies version %d; use the newer program", have, want)
	}
	return err
}

func compareVersions(have, want int) error {
	switch {
	case have == 0:
		return errors.New("the database is empty; run turnpike serve or turnpike migrate, or check that it is the right one")
	case have < want:
		return fmt.Errorf("the database is at schema version %d but this program needs %d; run: turnpike migrate", have, want)
	}
	return nil
}

func openChecked(ctx context.Context, cfg config.Config, check func(*Store, context.Context) error) (*Store, error) {
	release := func() {}
	if cfg.DatabaseURL == "" {
		if err := createDataDirectory(cfg.Data); err != nil {
			return nil, err
		}
		var err error
		if release, err = shareDirectory(cfg.Data); err != nil {
			return nil, err
		}
	}
	s, err := openStore(ctx, cfg)
	if err != nil {
		release()
		return nil, err
	}
	s.release = release
	if err := check(s, ctx); err != nil {
		s.Close()
		return nil, explainInterruptedRekey(cfg, err)
	}
	return s, nil
}

// openStore opens a database that was not moved, without migrating it.
func openStore(ctx context.Context, cfg config.Config) (*Store, error) {
	master, err := masterKey(cfg)
	if err != nil {
		return nil, err
	}
	d, err := OpenDatabase(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := CheckMoved(ctx, d); err != nil {
		d.Close()
		return nil, err
	}
	return &Store{DB: d, master: master, release: func() {}}, nil
}

func (s *Store) prepare(ctx context.Context) (err error) {
	have, _, err := s.DB.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have > 0 {
		// A wrong key may mean the wrong database, so check it before a change.
		if _, err := openRoot(ctx, s.DB, s.master); err != nil && !errors.Is(err, db.ErrNotFound) {
			return err
		}
	}
	if s.Applied, err = s.DB.MigrateIf(ctx, nodes.AllowMigration(s.DB)); err != nil {
		return err
	}
	if have, want, err := s.DB.SchemaVersion(ctx); err == nil && have > want {
		slog.Info("the database has a newer schema that works with this program", "schema_version", have, "program", want)
	}
	return s.unlock(ctx)
}

// OpenDatabase opens the database without migrating it.
func OpenDatabase(ctx context.Context, cfg config.Config) (*db.DB, error) {
	if cfg.DatabaseURL != "" {
		d, err := db.Open(ctx, string(cfg.DatabaseURL))
		return d, db.Wrap(err, "database_url")
	}
	if err := createDataDirectory(cfg.Data); err != nil {
		return nil, err
	}
	return db.Open(ctx, filepath.Join(cfg.Data, databaseFile))
}

// Close releases the database.
func (s *Store) Close() {
	s.DB.Close()
	s.release()
}

func createDataDirectory(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return nil
}

// lockData ensures that only one server uses a data directory: the embedded
// database's caches and queues belong to one process. The lock ends with the process.
func lockData(directory string) (release func(), err error) {
	return lockFile(filepath.Join(directory, "serve.lock"),
		fmt.Errorf("another turnpike serve or move is running on %s; stop it, or choose another directory with --data", directory))
}

// lockRekey ensures that only one command changes the master key of a data
// directory. Otherwise one could replace the other's new key.
func lockRekey(directory string) (release func(), err error) {
	return lockFile(filepath.Join(directory, "rekey.lock"), fmt.Errorf("another turnpike rekey is running on %s; wait until it ends", directory))
}
