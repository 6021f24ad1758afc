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

	"turnpike/internal/durable"
)

const (
	// spoolFolder holds what is not complete yet. No workspace has such a name.
	spoolFolder = ".spool"
	// staleSpool is the age at which a spooled file is a leftover, where other
	// nodes may be spooling into the same folder.
	staleSpool = time.Hour
)

// folder keeps files on this machine. They are read and removed like those of
// any bucket; writing is done here, so that a file is durable before it has its
// name, and is not copied to get it.
type folder struct {
	path   string
	synced sync.Map // folders whose own entry is durable
}

// openFolder makes the folder and removes what a crash left of unfinished
// files, if it is older than leftovers.
func openFolder(path string, leftovers time.Duration) (*folder, error) {
	f := &folder{path: path}
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
			continue // gone meanwhile, or somebody's
		}
		if err := os.Remove(filepath.Join(f.spoolPath(), e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return f, nil
}

func (f *folder) spoolPath() string { return filepath.Join(f.path, spoolFolder) }

// filePath returns where an object is. Its key has IDs and a hash only.
func (f *folder) filePath(key string) string { return filepath.Join(f.path, filepath.FromSlash(key)) }

// orNotExist translates the file system's "no such file".
func orNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", errMissing, err)
	}
	return err
}

func (f *folder) size(_ context.Context, key string) (int64, error) {
	info, err := os.Stat(f.filePath(key))
	if err != nil {
		return 0, orNotExist(err)
	}
	return info.Size(), nil
}

func (f *folder) open(_ context.Context, key string, offset int64) (io.ReadCloser, error) {
	file, err := os.Open(f.filePath(key))
	if err != nil {
		return nil, orNotExist(err)
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (f *folder) remove(_ context.Context, key string) error {
	return orNotExist(os.Remove(f.filePath(key)))
}

func (f *folder) reachable(context.Context) error {
	_, err := os.Stat(f.spoolPath())
	return err
}

// write stores a file under its key. A spooled one is moved and not copied.
func (f *folder) write(_ context.Context, key string, _ File, from source) error {
	s, ok := from.(spooled)
	if !ok {
		var err error
		if s, _, err = f.spool(from); err != nil {
			return err
		}
		defer s.discard()
	}
	return f.adopt(s, key)
}

// spooled is a file that nobody knows yet.
type spooled struct{ *os.File }

// discard removes it, unless it was adopted.
func (s spooled) discard() {
	_ = s.Close()
	_ = os.Remove(s.Name())
}

// spool copies r into a new file and rewinds it.
func (f *folder) spool(r io.Reader) (spooled, int64, error) {
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

// adopt gives a spooled file its name. When it returns, a crash of the machine
// loses neither.
func (f *folder) adopt(s spooled, key string) error {
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
	return f.syncUp(filepath.Dir(path))
}

// syncUp makes the new entry in dir durable, and dir's own and its parents'
// where that was not done before.
func (f *folder) syncUp(dir string) error {
	if err := durable.Folder(dir); err != nil {
		return orFull(err)
	}
	for dir != f.path {
		if _, done := f.synced.Load(dir); done {
			return nil
		}
		parent := filepath.Dir(dir)
		if err := durable.Folder(parent); err != nil {
			return orFull(err)
		}
		f.synced.Store(dir, true)
		dir = parent
	}
	return nil
}

// orFull marks the errors of a full disk.
func orFull(err error) error {
	if diskFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
