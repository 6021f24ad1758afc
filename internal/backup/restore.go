package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"turnpike/internal/db"
	"turnpike/internal/files"
)

// Source is a complete backup.
type Source struct {
	Manifest *Manifest
	// Identities decrypt an encrypted backup.
	Identities []age.Identity

	read sealed
	at   location
	name string
}

// Open opens a backup. from is the backup, or a location of backups, whose newest
// it opens.
func Open(ctx context.Context, from string) (*Source, error) {
	at, err := locate(from, "")
	if err != nil {
		return nil, err
	}
	names, err := at.names(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the backups: %w", err)
	}
	s := &Source{at: at}
	if len(names) > 0 {
		s.name = names[len(names)-1]
	} else {
		parent, name := split(from)
		if s.at, err = locate(parent, ""); err != nil {
			return nil, err
		}
		s.name = name
	}
	text, err := readAll(ctx, s.at, s.name, manifestName)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, files.ErrGone) {
		return nil, fmt.Errorf("there is no complete backup in this location: no %s was found; check --from", manifestName)
	}
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if s.read, err = unseal(text); err != nil {
		return nil, err
	}
	if s.Manifest, err = s.read.manifest(); err != nil {
		return nil, err
	}
	if want := len(db.Migrations()); s.Manifest.Schema > want {
		return nil, fmt.Errorf("the backup has schema version %d but this program supports only %d; restore it with Turnpike %s or a later version",
			s.Manifest.Schema, want, s.Manifest.Version)
	}
	return s, nil
}

func readAll(ctx context.Context, at location, name, member string) ([]byte, error) {
	r, err := at.open(ctx, name, member)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r) //budget:own the backup of this server
}

// Signed reports whether the backup has a signature, as those of earlier versions don't.
func (s *Source) Signed() bool { return s.read.signature != nil }

// IsSignedBy reports whether the server with the root key made the backup.
func (s *Source) IsSignedBy(by Signer) bool { return s.read.isSignedBy(by) }

func (s *Source) open(ctx context.Context, member string) (io.ReadCloser, error) {
	return s.at.open(ctx, s.name, member)
}

// Verify reads every member and checks that it is intact.
func (s *Source) Verify(ctx context.Context) error {
	for _, m := range s.Manifest.Members {
		if err := verify(ctx, s.open, m, io.Discard); err != nil {
			return err
		}
	}
	return nil
}

// Fetch copies the backup into a directory, and verifies it. It returns the path
// of the database. If to isn't nil, files go there instead.
func (s *Source) Fetch(ctx context.Context, into string, to *files.Objects) (database string, err error) {
	database = filepath.Join(into, databaseName)
	// The database is the first member, and describes the files.
	stored := map[string]files.File{}
	for _, m := range s.Manifest.Members {
		plain := s.Manifest.plain(m)
		path := filepath.Join(into, filepath.FromSlash(plain))
		if err := s.fetch(ctx, m, path); err != nil {
			return "", explain(err, into)
		}
		key, isFile := strings.CutPrefix(plain, filesPrefix)
		switch {
		case !isFile:
			stored, err = storedFiles(ctx, path)
		case to != nil:
			err = upload(ctx, to, path, key, stored[key])
		}
		if err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(database); err != nil {
		return "", errManifest
	}
	return database, nil
}

// fetch verifies a member before it decrypts it.
func (s *Source) fetch(ctx context.Context, m Member, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if !s.Manifest.Encrypted {
		return createSynced(path, func(f io.Writer) error { return verify(ctx, s.open, m, f) })
	}
	encrypted := path + encryptedSuffix
	if err := createSynced(encrypted, func(f io.Writer) error { return verify(ctx, s.open, m, f) }); err != nil {
		return err
	}
	from, err := os.Open(encrypted)
	if err != nil {
		return err
	}
	err = createSynced(path, func(f io.Writer) error {
		plain, err := age.Decrypt(from, s.Identities...)
		if err != nil {
			return fmt.Errorf("decrypt %s: %w; pass --identity with the file of the key", m.Path, err)
		}
		_, err = io.Copy(f, plain)
		return err
	})
	return errors.Join(err, from.Close(), os.Remove(encrypted))
}

func createSynced(path string, write func(f io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Sync(), f.Close())
}

func storedFiles(ctx context.Context, path string) (map[string]files.File, error) {
	f, err := db.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Check(ctx); err != nil {
		return nil, err
	}
	list, err := listFiles(ctx, f)
	stored := make(map[string]files.File, len(list))
	for _, s := range list {
		stored[s.key] = s.File
	}
	return stored, err
}

func upload(ctx context.Context, to *files.Objects, path, key string, file files.File) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = to.Write(ctx, key, file, f)
	return errors.Join(err, f.Close(), os.Remove(path))
}
