package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"turnpike/internal/files"
	"turnpike/internal/fsync"
)

// storage holds objects: a bucket or a directory.
type storage interface {
	// Write stores a whole file or nothing.
	Write(ctx context.Context, key string, from *os.File) error
	// Open reads an object. It returns files.ErrGone if the object doesn't exist.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	ReadAt(ctx context.Context, key string, p []byte, offset int64) error
	// Each calls use for every key with a prefix that ends with a slash.
	Each(ctx context.Context, prefix string, use func(key string) error) error
	Remove(ctx context.Context, key string) error
}

func openStorage(address string) (storage, error) {
	if strings.Contains(address, "://") {
		return files.OpenBucket(address)
	}
	full, err := filepath.Abs(address)
	return directory{full}, err
}

// directory holds objects on this machine, or in a shared directory.
type directory struct{ path string }

func (d directory) name(key string) string { return filepath.Join(d.path, filepath.FromSlash(key)) }

func orGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return files.ErrGone
	}
	return err
}

// Write copies the file next to its final place, and then renames it.
func (d directory) Write(_ context.Context, key string, from *os.File) error {
	name := d.name(key)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	to, err := os.CreateTemp(filepath.Dir(name), ".partial-*")
	if err != nil {
		return err
	}
	_, err = from.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(to.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	for dir := filepath.Dir(name); err == nil; dir = filepath.Dir(dir) {
		if err = fsync.Directory(dir); dir == d.path || dir == filepath.Dir(dir) {
			break
		}
	}
	return err
}

func (d directory) Open(_ context.Context, key string) (io.ReadCloser, error) {
	f, err := os.Open(d.name(key))
	if err != nil {
		return nil, orGone(err)
	}
	return f, nil
}

func (d directory) ReadAt(_ context.Context, key string, p []byte, offset int64) error {
	f, err := os.Open(d.name(key))
	if err != nil {
		return orGone(err)
	}
	defer f.Close()
	_, err = f.ReadAt(p, offset)
	return err
}

func (d directory) Each(_ context.Context, prefix string, use func(key string) error) error {
	err := filepath.WalkDir(d.name(prefix), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		key, err := filepath.Rel(d.path, path)
		if err != nil {
			return err
		}
		return use(filepath.ToSlash(key))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove deletes an object, and its directories if they are empty then.
func (d directory) Remove(_ context.Context, key string) error {
	name := d.name(key)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(name); dir != d.path && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
	}
	return nil
}

// object is an object for random access.
type object struct {
	ctx     context.Context
	storage storage
	key     string
}

func (o object) ReadAt(p []byte, offset int64) (int, error) {
	if err := o.storage.ReadAt(o.ctx, o.key, p, offset); err != nil {
		return 0, err
	}
	return len(p), nil
}
