// Package app wires the parts together, starts them and stops them in reverse.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/keyring"
)

const (
	databaseFile  = "turnpike.db"
	masterKeyFile = "master.key"
	firstRunFile  = "first-run.txt"
)

// Store is the database with the keys to read it: all that an operator's
// command needs.
type Store struct {
	DB      *db.DB
	Ring    *keyring.Ring
	Applied []db.Migration // by opening it

	master  []byte
	release func() // of the data folder
}

// OpenStore opens the database that the configuration names, brings its schema
// up to date, and checks that it was not moved elsewhere and that the master key
// is its own.
func OpenStore(ctx context.Context, cfg config.Config) (*Store, error) {
	return openChecked(ctx, cfg, (*Store).prepare)
}

// OpenStoreAsItIs is OpenStore for whoever only wants to look something up or
// change a row: an older schema is an error then. Bringing it up to date cannot
// be undone, and servers of the older version do not start on it any more.
func OpenStoreAsItIs(ctx context.Context, cfg config.Config) (*Store, error) {
	return openChecked(ctx, cfg, func(s *Store, ctx context.Context) error {
		if err := CheckSchema(ctx, s.DB); err != nil {
			return err
		}
		return s.unlock(ctx)
	})
}

// CheckSchema refuses a database whose schema is not this program's.
func CheckSchema(ctx context.Context, d *db.DB) error {
	have, want, err := d.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	return compareVersions(have, want)
}

func compareVersions(have, want int) error {
	switch {
	case have > want:
		return fmt.Errorf("the database is at schema version %d and this program knows only %d: use the newer program", have, want)
	case have == 0:
		return errors.New("there is nothing of Turnpike's in this database yet; make it with turnpike serve or turnpike migrate, or see whether it is the right one")
	case have < want:
		return fmt.Errorf("the schema is at version %d and this program needs %d; run: turnpike migrate", have, want)
	}
	return nil
}

func openChecked(ctx context.Context, cfg config.Config, check func(*Store, context.Context) error) (*Store, error) {
	release := func() {}
	if cfg.DatabaseURL == "" {
		if err := makeDataFolder(cfg.Data); err != nil {
			return nil, err
		}
		var err error
		if release, err = useFolder(cfg.Data); err != nil {
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
		return nil, explainOther(cfg, err)
	}
	return s, nil
}

// openStore opens a database that was not moved elsewhere, as it is.
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
		// Who has another key may have another database in mind, so this comes
		// before anything is changed.
		if _, err := openRoot(ctx, s.DB, s.master); err != nil && !errors.Is(err, db.ErrNotFound) {
			return err
		}
	}
	if s.Applied, err = s.DB.Migrate(ctx); err != nil {
		return err
	}
	return s.unlock(ctx)
}

// OpenDatabase opens the database as it is.
func OpenDatabase(ctx context.Context, cfg config.Config) (*db.DB, error) {
	if cfg.DatabaseURL != "" {
		return db.Open(ctx, string(cfg.DatabaseURL))
	}
	if err := makeDataFolder(cfg.Data); err != nil {
		return nil, err
	}
	return db.Open(ctx, filepath.Join(cfg.Data, databaseFile))
}

// Close releases the database.
func (s *Store) Close() {
	s.DB.Close()
	s.release()
}

func makeDataFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("create data folder: %w", err)
	}
	return nil
}

// clock is the time of day; tests have their own.
func clock() time.Time { return time.Now() }
