package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"turnpike/internal/fsync"
)

const (
	// SpoolDirectory holds incomplete files. No workspace has this name.
	SpoolDirectory = ".spool"
	// staleSpool is the age at which a spooled file is a leftover, if other nodes
	// may spool into the same directory.
	staleSpool = time.Hour
)

// directory stores files on this machine. It makes a file durable before it
// gets its name, and doesn't copy spooled files.
type directory struct {
	path   string
	synced sync.Map // directories whose own entry is durable
}

// openDirectory creates the directory, and deletes spooled files of a crash
// that are older than leftovers.
func openDirectory(path string, leftovers time.Duration) (*directory, error) {
	f := &directory{path: path}
	if err := os.MkdirAll(f.spoolPath(), 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.spoolPath())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < leftovers {
			continue // deleted meanwhile, or in use by another node
		}
		if err := os.Remove(filepath.Join(f.spoolPath(), e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return f, nil
}

func (f *directory) spoolPath() string { return filepath.Join(f.path, SpoolDirectory) }

// filePath returns an object's path. Keys consist of IDs and a hash.
func (f *directory) filePath(key string) string {
	return filepath.Join(f.path, filepath.FromSlash(key))
}

// orNotExist translates os.ErrNotExist to errMissing.
func orNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", errMissing, err)
	}
	return err
}

func (f *directory) size(_ context.Context, key string) (int64, error) {
	info, err := os.Stat(f.filePath(key))
	if err != nil {
		return 0, orNotExist(err)
	}
	return info.Size(), nil
}

func (f *directory) open(_ context.Context, key string, offset int64) (io.ReadCloser, error) {
	file, err := os.Open(f.filePath(key))
	if err != nil {
		return nil, orNotExist(err)
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (f *directory) remove(_ context.Context, key string) error {
	return orNotExist(os.Remove(f.filePath(key)))
}

func (f *directory) reachable(context.Context) error {
	_, err := os.Stat(f.spoolPath())
	return err
}

// write stores a file under its key. It moves a spooled file instead of copying
// it.
func (f *directory) write(_ context.Context, key string, _ File, from source) error {
	s, ok := from.(spooled)
	if !ok {
		var err error
		if s, _, err = f.spool(from); err != nil {
			return err
		}
		defer s.discard()
	}
	return f.moveTo(s, key)
}

// spooled is a file without a key.
type spooled struct{ *os.File }

// discard deletes the file, unless it was moved.
func (s spooled) discard() {
	_ = s.Close()
	_ = os.Remove(s.Name())
}

// spool copies r into a new file and rewinds it.
func (f *directory) spool(r io.Reader) (spooled, int64, error) {
	file, err := os.CreateTemp(f.spoolPath(), "*")
	if err != nil {
		return spooled{}, 0, orFull(err)
	}
	s := spooled{file}
	n, err := io.Copy(file, r)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.discard()
		return spooled{}, 0, orFull(err)
	}
	return s, n, nil
}

// moveTo moves a spooled file to its key. When it returns, content and name
// survive a crash of the machine.
func (f *directory) moveTo(s spooled, key string) error {
	if err := s.Sync(); err != nil {
		return orFull(err)
	}
	path := f.filePath(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return orFull(err)
	}
	if err := s.Close(); err != nil {
		return orFull(err)
	}
	if err := os.Rename(s.Name(), path); err != nil {
		return orFull(err)
	}
	return f.syncParents(filepath.Dir(path))
}

// syncParents makes the new entry in dir durable, and the entries of dir and
// its parents unless they already are.
func (f *directory) syncParents(dir string) error {
	if err := fsync.Directory(dir); err != nil {
		return orFull(err)
	}
	for dir != f.path {
		if _, done := f.synced.Load(dir); done {
			return nil
		}
		parent := filepath.Dir(dir)
		if err := fsync.Directory(parent); err != nil {
			return orFull(err)
		}
		f.synced.Store(dir, true)
		dir = parent
	}
	return nil
}

// orFull marks the errors of a full disk with ErrFull.
func orFull(err error) error {
	if diskFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
