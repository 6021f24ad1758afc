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
	"turnpike/internal/durable"
	"turnpike/internal/keyring"
)

// What the database has of its keys, in the table meta.
const (
	rootKeyRow    = "root_key"         // wrapped under the master key
	masterKeyMark = "master_key_check" // of the root key
)

// newKeySuffix is for the file of a new master key until the database has it.
const newKeySuffix = ".new"

// masterKey takes the master key from the configuration, or from the data
// folder, where the embedded database gets one made on the first run. With
// PostgreSQL it is never made: every node must have the same.
func masterKey(cfg config.Config) ([]byte, error) {
	if cfg.MasterKey != "" {
		return keyring.ParseMaster(string(cfg.MasterKey))
	}
	if cfg.DatabaseURL != "" {
		return nil, errors.New("with PostgreSQL every node needs the same master key: set TURNPIKE_MASTER_KEY to the output of: openssl rand -hex 32")
	}
	if err := makeDataFolder(cfg.Data); err != nil {
		return nil, err
	}
	path := filepath.Join(cfg.Data, masterKeyFile)
	if _, err := os.Stat(filepath.Join(cfg.Data, databaseFile)); err == nil {
		// A new key beside an old database would only look like the right one.
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("the master key of this database is missing: restore %s, or set TURNPIKE_MASTER_KEY", path)
		}
	}
	master, _, err := keyring.LoadOrCreate(path)
	return master, err
}

// unlock opens the keys, which the first one to use the database makes. With
// another master key every stored secret would be refused, which looks like an
// outage; better to say so at once.
func (s *Store) unlock(ctx context.Context) error {
	root, err := openRoot(ctx, s.DB, s.master)
	if errors.Is(err, db.ErrNotFound) {
		if err = makeRoot(ctx, s.DB, s.master); err == nil {
			root, err = openRoot(ctx, s.DB, s.master)
		}
	}
	if err == nil {
		s.Ring, err = keyring.New(root)
	}
	return err
}

// makeRoot gives a database its root key. Of several that do it at once one
// succeeds.
func makeRoot(ctx context.Context, d *db.DB, master []byte) error {
	root := keyring.NewKey()
	wrapped, err := keyring.Wrap(root, master)
	if err != nil {
		return err
	}
	ring, err := keyring.New(root)
	if err != nil {
		return err
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		for _, row := range [][2]string{{masterKeyMark, ring.Check()}, {rootKeyRow, wrapped}} {
			n, err := tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", row[0], row[1])
			if err != nil || n == 0 {
				return err // somebody else was faster
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make the root key: %w", err)
	}
	return nil
}

// openRoot is the database's root key. One that was made by an earlier version
// has none: there the master key that it was made with is the root key, until it
// is changed. The error is db.ErrNotFound if nobody has used the database yet.
func openRoot(ctx context.Context, q db.Querier, master []byte) ([]byte, error) {
	mark, err := metaValue(ctx, q, masterKeyMark)
	if err != nil {
		return nil, err
	}
	wrapped, err := metaValue(ctx, q, rootKeyRow)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return nil, err
	}
	root := master
	if err == nil {
		if root, err = keyring.Unwrap(wrapped, master); err != nil {
			return nil, err
		}
	}
	ring, err := keyring.New(root)
	if err != nil {
		return nil, err
	}
	if ring.Check() != mark {
		return nil, keyring.ErrWrongMasterKey
	}
	return root, nil
}

func metaValue(ctx context.Context, q db.Querier, name string) (value string, err error) {
	if err := q.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", name).Scan(&value); err != nil {
		return "", fmt.Errorf("check master key: %w", err)
	}
	return value, nil
}

// Rekeyed is what has become of the master key.
type Rekeyed struct {
	File    string // that has the new one, or empty if it is in the settings
	Already bool   // an earlier try has changed it
	// WasRoot is of a database that an earlier version made: the old master key is
	// its root key, and whoever has it and a copy of the database can still read it.
	WasRoot bool
}

// ChangeMasterKey wraps the root key under another master key. Servers that run
// go on, and need the new one when they start again. next is the new one where
// the settings have the master key; that in the data folder is made here.
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
		return nil, errors.New("the new master key is the one in use; make another")
	}
	out, err := s.rekey(ctx, next)
	if errors.Is(err, db.ErrInDoubt) {
		return nil, fmt.Errorf("whether the database has the new master key is not known; keep both keys, and run this again with the same TURNPIKE_NEW_MASTER_KEY: %w", err)
	}
	return out, err
}

// rekeyFile changes the master key that is in the data folder. The new one is on
// the disk before the database needs it, and takes the old one's place when it
// does. What an interrupted try has left is used.
func (s *Store) rekeyFile(ctx context.Context, folder string) (*Rekeyed, error) {
	path := filepath.Join(folder, masterKeyFile)
	if _, err := os.Stat(path + newKeySuffix); err != nil {
		if _, err := openRoot(ctx, s.DB, s.master); err != nil {
			return nil, err // and no file that would be taken for an interrupted try's
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
		return nil, fmt.Errorf("the database needs the new master key from now on, but it could not be put in its place; run this again, or move %s to %s: %w", path+newKeySuffix, path, err)
	}
	return out, errors.Join(durable.Folder(folder), keyring.RemoveTemporary(folder))
}

// explainOther adds to a refused master key that a change of it was interrupted.
func explainOther(cfg config.Config, err error) error {
	path := filepath.Join(cfg.Data, masterKeyFile+newKeySuffix)
	if _, missing := os.Stat(path); !errors.Is(err, keyring.ErrWrongMasterKey) || cfg.MasterKey != "" || missing != nil {
		return err
	}
	return fmt.Errorf("%w; %s is from a change of the master key that was interrupted: run turnpike rekey", err, path)
}

func (s *Store) rekey(ctx context.Context, next []byte) (*Rekeyed, error) {
	var out Rekeyed
	err := s.DB.Write(ctx, func(tx *db.Tx) error {
		out = Rekeyed{}
		// Of two that change it at once the second finds the other's key.
		if _, err := tx.Exec(ctx, "UPDATE meta SET value = value WHERE name = $1", masterKeyMark); err != nil {
			return err
		}
		root, err := openRoot(ctx, tx, s.master)
		if errors.Is(err, keyring.ErrWrongMasterKey) {
			if root, already := openRoot(ctx, tx, next); already == nil {
				out.Already, out.WasRoot = true, bytes.Equal(root, s.master)
				return nil
			}
		}
		if err != nil {
			return err
		}
		out.WasRoot = bytes.Equal(root, s.master)
		wrapped, err := keyring.Wrap(root, next)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", rootKeyRow, wrapped)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("change the master key: %w", err)
	}
	return &out, nil
}

// OpenRing opens the keys of a database that was used before. It changes nothing.
func OpenRing(ctx context.Context, cfg config.Config, d *db.DB) (*keyring.Ring, error) {
	master, err := masterKey(cfg)
	if err != nil {
		return nil, err
	}
	root, err := openRoot(ctx, d, master)
	if err != nil {
		return nil, explainOther(cfg, err)
	}
	return keyring.New(root)
}
