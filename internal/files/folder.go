package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

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

func (f *folder) bucket() (*blob.Bucket, error) {
	return fileblob.OpenBucket(f.path, &fileblob.Options{Metadata: fileblob.MetadataDontWrite, NoTempDir: true})
}

// spooled is a file that nobody knows yet.
type spooled struct{ *os.File }

// discard removes it, unless it was adopted.
func (s spooled) discard() {
	_ = s.Close()
	_ = os.Remove(s.Name())
}

// spool writes what r gives into a file of its own.
func (f *folder) spool(r io.Reader) (spooled, int64, error) {
	file, err := os.CreateTemp(f.spoolPath(), "*")
	if err != nil {
		return spooled{}, 0, orFull(err)
	}
	s := spooled{file}
	n, err := io.Copy(file, r)
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
	path := filepath.Join(f.path, filepath.FromSlash(key))
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
