package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"turnpike/internal/backup"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/fsync"
	"turnpike/internal/keyring"
)

// Backup makes a backup of a store, whether or not servers run.
func Backup(ctx context.Context, s *Store, cfg config.Config, version string) (*backup.Manifest, error) {
	o, err := backupOptions(s, cfg, version, time.Now)
	if err != nil {
		return nil, err
	}
	return backup.Create(ctx, o)
}

// backupOptions describes a backup to backup.to.
func backupOptions(s *Store, cfg config.Config, version string, now func() time.Time) (o backup.Options, err error) {
	o = backup.Options{DB: s.DB, To: string(cfg.Backup.To), Keep: cfg.Backup.Keep, Spool: cfg.Data, Version: version, MasterKey: s.fingerprint, Signer: s.Ring, Now: now}
	if o.Recipients, err = cfg.Backup.AgeRecipients(); err != nil {
		return o, err
	}
	o.Files, err = files.OpenObjects(string(cfg.Files.URL), filepath.Join(cfg.Data, filesDirectory))
	return o, err
}

// runBackups makes scheduled backups.
func (i *instance) runBackups(ctx context.Context) {
	backup.Run(ctx, func() *backup.Schedule { return i.settings.Load().backups }, i.reloaded)
}

// backupSchedule returns nil if backups aren't scheduled.
func (i *instance) backupSchedule(cfg config.Config) (*backup.Schedule, error) {
	if cfg.Backup.To == "" {
		return nil, nil
	}
	o, err := backupOptions(i.store, cfg, i.version, i.now)
	return &backup.Schedule{Options: o, Interval: cfg.Backup.Interval, Node: i.node.ID}, err
}

// Restored is the result of a restore.
type Restored struct {
	backup.Hold
	Manifest *backup.Manifest
	To       string              // the data directory or the address of the database
	Revoked  []backup.Revocation // after the backup, as far as it is known
}

// RestoreOptions are what to restore, and how.
type RestoreOptions struct {
	From            string
	Unauthenticated bool // also what this server didn't sign
	Identities      []age.Identity
}

// Authenticate returns the keys of the server that made a backup, after it has checked its signature. Without it,
// anyone who can write to the location could add a database in which they are an owner.
func Authenticate(src *backup.Source, master []byte) (*keyring.Ring, error) {
	if !src.Signed() {
		return nil, errors.New("the backup isn't signed: it is of an earlier version, or someone removed the signature; if no one else can write to this location, pass --unauthenticated")
	}
	root, err := keyring.Unwrap(src.Manifest.RootKey, master)
	if err != nil {
		return nil, fmt.Errorf("authenticate the backup: %w", err)
	}
	ring, err := keyring.New(root)
	if err == nil && !src.IsSignedBy(ring) {
		err = errors.New("the signature of the backup is wrong: someone changed the backup; use another one")
	}
	return ring, err
}

// Restore restores a backup into an empty data directory or PostgreSQL database.
// The new database is held. After an error, the target is as empty as before.
func Restore(ctx context.Context, cfg config.Config, o RestoreOptions) (out *Restored, err error) {
	src, err := backup.Open(ctx, o.From)
	if err != nil {
		return nil, err
	}
	if src.Identities = o.Identities; src.Manifest.Encrypted && len(o.Identities) == 0 {
		return nil, errors.New("the backup is encrypted: pass --identity with the file of an age key")
	}
	master, err := RestoreKey(cfg, src.Manifest)
	if err != nil {
		return nil, err
	}
	var revoked []backup.Revocation
	if ring, err := Authenticate(src, master); err == nil {
		revoked, err = src.Revoked(ctx, ring)
		if err != nil {
			return nil, err
		}
	} else if !o.Unauthenticated {
		return nil, err
	}
	defer func() {
		if out != nil {
			out.Revoked = revoked
		}
	}()
	if err := createDataDirectory(cfg.Data); err != nil {
		return nil, err
	}
	unlock, err := lockData(cfg.Data)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := requireEmptyDirectory(cfg); err != nil {
		return nil, err
	}
	staging, err := os.MkdirTemp(cfg.Data, ".restore-*")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the restore: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	if cfg.DatabaseURL != "" {
		fresh, err := openTarget(ctx, cfg) // before the backup is copied, which may take long
		if err != nil {
			return nil, err
		}
		defer fresh.Close()
		return restorePostgres(ctx, cfg, &restore{src, staging, master}, fresh)
	}
	return restoreSQLite(ctx, cfg, &restore{src, staging, master})
}

// RestoreKey returns the master key, which must be the one of the backup. Unlike
// a first start, a restore creates none.
func RestoreKey(cfg config.Config, m *backup.Manifest) ([]byte, error) {
	path := filepath.Join(cfg.Data, masterKeyFile)
	if _, err := os.Stat(path); cfg.MasterKey == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("backups don't contain the master key: copy it to %s, or set TURNPIKE_MASTER_KEY; its fingerprint must be %s", path, m.MasterKey)
	}
	master, err := masterKey(cfg)
	if err != nil {
		return nil, err
	}
	got, err := keyring.Fingerprint(master)
	if err == nil && got != m.MasterKey {
		err = fmt.Errorf("wrong master key: the backup needs the one with the fingerprint %s, and this one has %s; if the master key was changed since, use the older key", m.MasterKey, got)
	}
	return master, err
}

// requireEmptyDirectory fails if the data directory has a database or files.
func requireEmptyDirectory(cfg config.Config) error {
	if _, err := os.Stat(filepath.Join(cfg.Data, databaseFile)); err == nil {
		return fmt.Errorf("%s already has a database; restore into an empty directory with --data, or move the old files away", cfg.Data)
	}
	if cfg.Files.URL != "" {
		return nil // objects are named by their content
	}
	entries, err := os.ReadDir(filepath.Join(cfg.Data, filesDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != files.SpoolDirectory {
			return fmt.Errorf("%s already has files; restore into an empty directory with --data, or move the old files away", cfg.Data)
		}
	}
	return err
}

// restore is a restore in progress.
type restore struct {
	src     *backup.Source
	staging string
	master  []byte
}

// fetch copies the backup to the staging directory, and its files to the bucket
// if there is one. It migrates the database and holds it.
func (r *restore) fetch(ctx context.Context, cfg config.Config) (_ *Restored, _ *db.DB, err error) {
	var to *files.Objects
	if cfg.Files.URL != "" {
		if to, err = files.OpenObjects(string(cfg.Files.URL), ""); err != nil {
			return nil, nil, err
		}
	}
	path, err := r.src.Fetch(ctx, r.staging, to)
	if err != nil {
		return nil, nil, fmt.Errorf("restore %s: %w", r.src.Manifest.Name, err)
	}
	d, err := db.Open(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	m := r.src.Manifest
	out := &Restored{Hold: backup.Hold{Backup: m.Name, BackupAt: m.StartedAt, RestoredAt: time.Now().UTC()}, Manifest: m}
	if _, err = openRoot(ctx, d, r.master); err == nil {
		_, err = d.Migrate(ctx)
	}
	if err == nil {
		err = backup.SetHold(ctx, d, out.Hold)
	}
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return out, d, nil
}

// restoreSQLite moves the database to its place last: without it, the directory
// counts as empty.
func restoreSQLite(ctx context.Context, cfg config.Config, r *restore) (*Restored, error) {
	out, d, err := r.fetch(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d.Close() // moves the log into the database
	out.To = cfg.Data
	if err := r.placeFiles(cfg); err != nil {
		return nil, err
	}
	if err := os.Rename(filepath.Join(r.staging, databaseFile), filepath.Join(cfg.Data, databaseFile)); err != nil {
		return nil, err
	}
	return out, fsync.Directory(cfg.Data)
}

func restorePostgres(ctx context.Context, cfg config.Config, r *restore, fresh *db.DB) (*Restored, error) {
	out, old, err := r.fetch(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	out.To = db.RedactedAddress(string(cfg.DatabaseURL))
	if err := r.placeFiles(cfg); err != nil {
		return nil, err
	}
	m := &mover{progress: func(int64, int64) {}}
	err = m.copyAll(ctx, old, fresh, func(*db.Tx) error { return nil })
	if errors.Is(err, db.ErrInDoubt) {
		return nil, fmt.Errorf("restore to PostgreSQL: %w; the commit got no response. Check with turnpike doctor: if the server is held, the restore is complete. If not, delete %s and restore again", err, filepath.Join(cfg.Data, filesDirectory))
	}
	if err != nil {
		return nil, fmt.Errorf("restore to PostgreSQL: %w", errors.Join(err, r.returnFiles(cfg)))
	}
	return out, nil
}

// placeFiles moves the files of the backup to the data directory.
func (r *restore) placeFiles(cfg config.Config) error {
	from, to := filepath.Join(r.staging, filesDirectory), filepath.Join(cfg.Data, filesDirectory)
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil // none, or in the bucket
	}
	if err := os.RemoveAll(to); err != nil { // it is empty
		return err
	}
	return os.Rename(from, to)
}

// returnFiles undoes placeFiles.
func (r *restore) returnFiles(cfg config.Config) error {
	if cfg.Files.URL != "" {
		return nil
	}
	err := os.Rename(filepath.Join(cfg.Data, filesDirectory), filepath.Join(r.staging, filesDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
