package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/fsync"
	"turnpike/internal/keyring"
)

// rootKeyRow is the row of the table meta with the root key, encrypted with the master key.
const rootKeyRow = "root_key"

// fingerprintRow is the row of the table meta with the fingerprint of the master key, if it was ever changed.
const fingerprintRow = "master_key_fingerprint"

// newKeySuffix marks the file of a new master key until the database uses it.
const newKeySuffix = ".new"

// masterKey returns the master key from the configuration or the data
// directory. With the embedded database, the first run creates one. With
// PostgreSQL the operator must, because all nodes need the same key.
func masterKey(cfg config.Config) ([]byte, error) {
	if cfg.MasterKey != "" {
		return keyring.ParseMaster(string(cfg.MasterKey))
	}
	if cfg.DatabaseURL != "" {
		return nil, errors.New("with PostgreSQL every node needs the same master key: set TURNPIKE_MASTER_KEY to the output of: openssl rand -hex 32")
	}
	if err := createDataDirectory(cfg.Data); err != nil {
		return nil, err
	}
	path := filepath.Join(cfg.Data, masterKeyFile)
	if _, err := os.Stat(filepath.Join(cfg.Data, databaseFile)); err == nil {
		// A new key could not decrypt an old database.
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("the master key of this database is missing: restore %s, or set TURNPIKE_MASTER_KEY", path)
		}
	}
	master, _, err := keyring.LoadOrCreate(path)
	return master, err
}

// unlock decrypts the root key, or creates it in a new database. A wrong master
// key fails here instead of rejecting every stored secret later.
func (s *Store) unlock(ctx context.Context) error {
	root, err := openRoot(ctx, s.DB, s.master)
	if errors.Is(err, db.ErrNotFound) {
		if err = createRoot(ctx, s.DB, s.master); err == nil {
			root, err = openRoot(ctx, s.DB, s.master)
		}
	}
	if err == nil {
		s.Ring, err = keyring.New(root)
	}
	return err
}

// createRoot creates the root key, unless another process was faster.
func createRoot(ctx context.Context, d *db.DB, master []byte) error {
	wrapped, err := keyring.Wrap(keyring.NewKey(), master)
	if err != nil {
		return err
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", rootKeyRow, wrapped)
		return err
	})
	if err != nil {
		return fmt.Errorf("create the root key: %w", err)
	}
	return nil
}

// openRoot returns the root key, or db.ErrNotFound for a new database.
func openRoot(ctx context.Context, q db.Querier, master []byte) ([]byte, error) {
	wrapped, err := readWrapped(ctx, q)
	if err != nil {
		return nil, err
	}
	return keyring.Unwrap(wrapped, master)
}

func readWrapped(ctx context.Context, q db.Querier) (wrapped string, err error) {
	if err = q.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", rootKeyRow).Scan(&wrapped); err != nil {
		err = fmt.Errorf("check master key: %w", err)
	}
	return wrapped, err
}

// fingerprint identifies the master key of a copy of the database, and returns the root key as that key encrypted it.
// After a change of the master key, running servers don't have it until they restart.
func (s *Store) fingerprint(ctx context.Context, copied db.Querier) (found, wrapped string, err error) {
	if wrapped, err = readWrapped(ctx, copied); err != nil {
		return "", "", err
	}
	if _, err = keyring.Unwrap(wrapped, s.master); err == nil {
		found, err = keyring.Fingerprint(s.master)
	} else if errors.Is(err, keyring.ErrWrongMasterKey) {
		err = copied.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", fingerprintRow).Scan(&found)
	}
	return found, wrapped, err
}

// Rekeyed is the result of a change of the master key.
type Rekeyed struct {
	File    string // with the new key; empty if the key is in the configuration
	Already bool   // an earlier attempt changed it
}

// ChangeMasterKey encrypts the root key with another master key. Running
// servers continue, and need the new key at their next start. next is the new
// key if the configuration has the master key; a key in the data directory is
// created here.
func ChangeMasterKey(ctx context.Context, cfg config.Config, next []byte) (*Rekeyed, error) {
	if cfg.MasterKey == "" {
		unlock, err := lockRekey(cfg.Data) // before the key is read
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	s, err := openChecked(ctx, cfg, func(s *Store, ctx context.Context) error { return CheckSchema(ctx, s.DB) })
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if cfg.MasterKey == "" {
		return s.rekeyFile(ctx, cfg.Data)
	}
	if bytes.Equal(s.master, next) {
		return nil, errors.New("the new master key equals the current one; generate another")
	}
	out, err := s.rekey(ctx, next)
	if errors.Is(err, db.ErrInDoubt) {
		return nil, fmt.Errorf("the commit got no response, so the database may or may not use the new master key; keep both keys and run this again with the same TURNPIKE_NEW_MASTER_KEY: %w", err)
	}
	return out, err
}

// rekeyFile changes the master key in the data directory. The new key is on
// disk before the database needs it, and replaces the old file afterwards. A
// file of an interrupted attempt is reused.
func (s *Store) rekeyFile(ctx context.Context, directory string) (*Rekeyed, error) {
	path := filepath.Join(directory, masterKeyFile)
	if _, err := os.Stat(path + newKeySuffix); err != nil {
		if _, err := openRoot(ctx, s.DB, s.master); err != nil {
			return nil, err // before a file is created
		}
	}
	next, _, err := keyring.LoadOrCreate(path + newKeySuffix)
	if err != nil {
		return nil, err
	}
	out, err := s.rekey(ctx, next)
	if errors.Is(err, keyring.ErrWrongMasterKey) {
		return nil, fmt.Errorf("%w: neither %s nor %s; restore the one that is", err, path, path+newKeySuffix)
	}
	if err != nil {
		return nil, err
	}
	out.File = path
	if err := os.Rename(path+newKeySuffix, path); err != nil {
		return nil, fmt.Errorf("the database uses the new master key now, but its file could not be renamed; run this again, or move %s to %s: %w", path+newKeySuffix, path, err)
	}
	return out, errors.Join(fsync.Directory(directory), keyring.RemoveTemporary(directory))
}

// explainInterruptedRekey adds a hint to a rejected master key if a change of it was interrupted.
func explainInterruptedRekey(cfg config.Config, err error) error {
	path := filepath.Join(cfg.Data, masterKeyFile+newKeySuffix)
	if _, missing := os.Stat(path); !errors.Is(err, keyring.ErrWrongMasterKey) || cfg.MasterKey != "" || missing != nil {
		return err
	}
	return fmt.Errorf("%w; %s is from an interrupted change of the master key; run: turnpike rekey", err, path)
}

func (s *Store) rekey(ctx context.Context, next []byte) (*Rekeyed, error) {
	var out Rekeyed
	err := s.DB.Write(ctx, func(tx *db.Tx) error {
		out = Rekeyed{}
		// Lock the row: the second of two concurrent changes finds the new key.
		if _, err := tx.Exec(ctx, "UPDATE meta SET value = value WHERE name = $1", rootKeyRow); err != nil {
			return err
		}
		root, err := openRoot(ctx, tx, s.master)
		if errors.Is(err, keyring.ErrWrongMasterKey) {
			if _, failed := openRoot(ctx, tx, next); failed == nil {
				out.Already = true
				return nil
			}
		}
		if err != nil {
			return err
		}
		wrapped, err := keyring.Wrap(root, next)
		if err != nil {
			return err
		}
		fingerprint, err := keyring.Fingerprint(next)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2), ($3, $4) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
			rootKeyRow, wrapped, fingerprintRow, fingerprint)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("change the master key: %w", err)
	}
	return &out, nil
}

// OpenRing decrypts the root key of an existing database.
func OpenRing(ctx context.Context, cfg config.Config, d *db.DB) (*keyring.Ring, error) {
	master, err := masterKey(cfg)
	if err != nil {
		return nil, err
	}
	root, err := openRoot(ctx, d, master)
	if err != nil {
		return nil, explainInterruptedRekey(cfg, err)
	}
	return keyring.New(root)
}
