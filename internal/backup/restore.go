package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"turnpike/internal/db"
	"turnpike/internal/files"
)

// Source is a complete backup.
type Source struct {
	Manifest *Manifest
	at       location
	name     string
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
	r, err := s.at.open(ctx, s.name, manifestName)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, files.ErrGone) {
		return nil, fmt.Errorf("there is no complete backup in this location: no %s was found; check --from", manifestName)
	}
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	defer r.Close()
	text, err := io.ReadAll(r) //budget:own the backup of this server
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if s.Manifest, err = decodeManifest(text); err != nil {
		return nil, err
	}
	if want := len(db.Migrations()); s.Manifest.Schema > want {
		return nil, fmt.Errorf("the backup has schema version %d but this program supports only %d; restore it with Turnpike %s or a later version",
			s.Manifest.Schema, want, s.Manifest.Version)
	}
	return s, nil
}

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
	// The database is the first member, and has the types of the files.
	types := map[string]string{}
	for _, m := range s.Manifest.Members {
		path := filepath.Join(into, filepath.FromSlash(m.Path))
		if err := s.fetch(ctx, m, path); err != nil {
			return "", explain(err, into)
		}
		key, isFile := strings.CutPrefix(m.Path, filesPrefix)
		switch {
		case !isFile:
			types, err = contentTypes(ctx, path)
		case to != nil:
			err = upload(ctx, to, path, key, files.File{SHA256: m.SHA256, Bytes: m.Bytes, ContentType: types[key]})
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

func (s *Source) fetch(ctx context.Context, m Member, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = verify(ctx, s.open, m, f)
	return errors.Join(err, f.Sync(), f.Close())
}

func contentTypes(ctx context.Context, path string) (map[string]string, error) {
	f, err := db.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Check(ctx); err != nil {
		return nil, err
	}
	stored, err := listFiles(ctx, f)
	types := make(map[string]string, len(stored))
	for _, s := range stored {
		types[s.key] = s.ContentType
	}
	return types, err
}

func upload(ctx context.Context, to *files.Objects, path, key string, file files.File) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = to.Write(ctx, key, file, f)
	return errors.Join(err, f.Close(), os.Remove(path))
}
