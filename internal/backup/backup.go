// Package backup copies the database and the files of a running server to a
// directory or a bucket, and restores them.
//
//	backup.go    creates, verifies and rotates backups
//	manifest.go  the description of a backup
//	location.go  directories and buckets that hold backups
//	restore.go   reads a backup
//	hold.go      keeps a restored server from working before an operator allows it
//	schedule.go  the schedule, and the record of the last good backup
//
// A backup is a directory or a key prefix with manifest.json, turnpike.db (a
// SQLite database, also for a server on PostgreSQL) and files/.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/files"
)

// Options describe what to back up, and where to.
type Options struct {
	DB *db.DB
	// Files reads the server's files.
	Files *files.Objects
	// To is a directory, or an s3:// URL in the form of files.url with a prefix as
	// its path.
	To string
	// Keep is how many backups to keep, the new one included; 0 keeps all.
	Keep int
	// Spool is the directory for members on their way to a bucket.
	Spool string
	// Version is the version of this program.
	Version string
	// MasterKey returns the fingerprint of the master key of a copy of the database, and the root key that
	// the master key protects there.
	MasterKey func(ctx context.Context, copied db.Querier) (fingerprint, wrappedRoot string, err error)
	Signer    Signer
	// Recipients are keys of age, one of which decrypts the members; none leaves them in clear.
	Recipients []age.Recipient
	Now        func() time.Time
}

// Create makes a backup while servers run, verifies it by reading it, records it
// in the database and removes old ones.
func Create(ctx context.Context, o Options) (*Manifest, error) {
	at, err := locate(o.To, o.Spool)
	if err != nil {
		return nil, err
	}
	started := o.Now().UTC()
	m := &Manifest{Encrypted: len(o.Recipients) > 0, Format: format, Name: nameAt(started), Version: o.Version, Engine: o.DB.Engine(), StartedAt: started}
	d, err := at.begin(ctx, m.Name)
	if err != nil {
		return nil, explain(fmt.Errorf("start the backup: %w", err), o.To)
	}
	defer d.discard()
	if err := write(ctx, o, m, d); err != nil {
		return nil, explain(err, o.To)
	}
	if err := recordSuccess(ctx, o.DB, m); err != nil {
		return m, fmt.Errorf("the backup is complete, but it could not be recorded in the database: %w", err)
	}
	if err := rotate(ctx, at, o.Keep, started); err != nil {
		return m, fmt.Errorf("the backup is complete, but old ones could not be removed: %w", err)
	}
	return m, nil
}

// write creates the members and the manifest. The database comes first: a file
// without a row does no harm.
func write(ctx context.Context, o Options, m *Manifest, d draft) error {
	directory := d.directory()
	if m.Encrypted { // the location has no database in clear, not even for a moment
		spool, err := os.MkdirTemp(o.Spool, spoolPattern)
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(spool) }()
		directory = spool
	}
	path := filepath.Join(directory, databaseName)
	if err := o.DB.Backup(ctx, path); err != nil {
		return err
	}
	f, err := db.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if m.Schema, err = f.Check(ctx); err != nil {
		return fmt.Errorf("check the copy of the database: %w", err)
	}
	if m.MasterKey, m.RootKey, err = o.MasterKey(ctx, f); err != nil {
		return err
	}
	stored, err := listFiles(ctx, f)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if m.Encrypted {
		if err := o.encrypt(path, filepath.Join(d.directory(), databaseName)); err != nil {
			return fmt.Errorf("encrypt the database: %w", err)
		}
	}
	if err := m.add(ctx, d, databaseName); err != nil {
		return err
	}
	for _, s := range stored {
		if err := copyFile(ctx, o, m, d, s); err != nil {
			return fmt.Errorf("copy the file %s: %w", s.key, err)
		}
	}
	for _, member := range m.Members {
		if err := verify(ctx, d.open, member, io.Discard); err != nil {
			return fmt.Errorf("verify the backup: %w", err)
		}
	}
	m.FinishedAt = o.Now().UTC()
	text, err := encode(m, o.Signer)
	if err != nil {
		return err
	}
	return d.commit(ctx, text)
}

// storedFile is a row of the table of files.
type storedFile struct {
	key string
	files.File
}

func listFiles(ctx context.Context, q db.Querier) ([]storedFile, error) {
	return db.List(ctx, q, func(r db.Row) (s storedFile, err error) {
		var t accounts.Tenant
		err = db.Scan(r, &t.WorkspaceID, &t.Environment, &s.SHA256, &s.Bytes, &s.ContentType)
		s.key = t.Path() + "/" + s.SHA256
		return s, err
	}, "SELECT workspace_id, environment, sha256, bytes, content_type FROM files ORDER BY workspace_id, environment, sha256")
}

// copyFile copies a file of the server. A missing one may have expired since the
// copy of the database, or be on another node.
func copyFile(ctx context.Context, o Options, m *Manifest, d draft, s storedFile) error {
	from, err := o.Files.Open(ctx, s.key)
	if errors.Is(err, files.ErrGone) {
		m.MissingFiles++
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	member := filesPrefix + s.key
	if err := o.create(filepath.Join(d.directory(), filepath.FromSlash(member)), from); err != nil {
		return err
	}
	return m.add(ctx, d, member)
}

// encryptedSuffix is of the names of encrypted members.
const encryptedSuffix = ".age"

// create writes a new file that only its owner can read. It is encrypted if there are recipients.
func (o Options) create(path string, from io.Reader) error {
	if len(o.Recipients) > 0 {
		path += encryptedSuffix
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(o.copy(f, from), f.Close())
}

func (o Options) copy(to io.Writer, from io.Reader) error {
	if len(o.Recipients) == 0 {
		_, err := io.Copy(to, from)
		return err
	}
	w, err := age.Encrypt(to, o.Recipients...)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, from)
	return errors.Join(err, w.Close())
}

func (o Options) encrypt(path, to string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(o.create(to, f), f.Close())
}

// add adds a file in the draft's directory to the backup.
func (m *Manifest) add(ctx context.Context, d draft, path string) error {
	if m.Encrypted {
		path += encryptedSuffix
	}
	f, err := os.Open(filepath.Join(d.directory(), filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	member := Member{Path: path}
	sum := sha256.New()
	member.Bytes, err = io.Copy(sum, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	member.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := d.store(ctx, path); err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	m.Members = append(m.Members, member)
	return nil
}

// verify copies a member and compares its size and hash.
func verify(ctx context.Context, open func(ctx context.Context, member string) (io.ReadCloser, error), want Member, to io.Writer) error {
	r, err := open(ctx, want.Path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, files.ErrGone) {
		return fmt.Errorf("%s is missing from the backup; use another backup", want.Path)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), r)
	if err != nil {
		return err
	}
	if n != want.Bytes || hex.EncodeToString(sum.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("%s is corrupt: its size or checksum differs from the manifest; use another backup", want.Path)
	}
	return nil
}

// rotate removes all complete backups but the newest, and leftovers of crashes.
func rotate(ctx context.Context, at location, keep int, now time.Time) error {
	if keep <= 0 {
		return nil
	}
	names, err := at.names(ctx)
	if err != nil {
		return err
	}
	for len(names) > keep {
		if err := at.remove(ctx, names[0]); err != nil {
			return err
		}
		names = names[1:]
	}
	return at.sweep(ctx, now.Add(-staleAfter))
}
