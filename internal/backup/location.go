package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/fsync"
)

const (
	namePrefix = "turnpike-"
	nameTime   = "20060102T150405.000Z"
	// partialSuffix marks a backup that isn't complete.
	partialSuffix = ".partial"
	spoolPattern  = ".backup-*"
	// staleAfter is the age at which an incomplete backup is a leftover of a crash.
	staleAfter = 24 * time.Hour
)

// location is a place that holds backups.
type location interface {
	// names lists the complete backups, oldest first.
	names(ctx context.Context) ([]string, error)
	open(ctx context.Context, name, member string) (io.ReadCloser, error)
	// put replaces a small file next to the backups.
	put(ctx context.Context, name string, data []byte) error
	remove(ctx context.Context, name string) error
	// begin starts a backup. Its members are created in the draft's directory.
	begin(ctx context.Context, name string) (draft, error)
	// sweep removes incomplete backups that were started before a time.
	sweep(ctx context.Context, before time.Time) error
}

// draft is a backup in progress.
type draft interface {
	directory() string
	// store makes a member durable that was created in the directory.
	store(ctx context.Context, member string) error
	open(ctx context.Context, member string) (io.ReadCloser, error)
	// commit adds the manifest, which makes the backup complete.
	commit(ctx context.Context, manifest []byte) error
	// discard removes everything unless commit has succeeded.
	discard()
}

// locate opens a directory, or a bucket at an s3:// URL. Members for a bucket are
// spooled in a temporary directory inside spool.
func locate(address, spool string) (location, error) {
	if !strings.Contains(address, "://") {
		full, err := filepath.Abs(address)
		return directory{full}, err
	}
	if !strings.HasPrefix(address, "s3://") {
		return nil, errors.New("the location of the backups is neither a directory nor an s3:// URL")
	}
	b, err := files.OpenBucket(address)
	return bucket{b, spool}, err
}

// split returns the parent of an address, and its last element.
func split(address string) (parent, name string) {
	if !strings.Contains(address, "://") {
		if full, err := filepath.Abs(address); err == nil {
			address = full
		}
		return filepath.Dir(address), filepath.Base(address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return address, ""
	}
	name = path.Base(u.Path)
	u.Path = path.Dir(strings.TrimSuffix(u.Path, "/"))
	return u.String(), name
}

func isName(name string) bool {
	text, ok := strings.CutPrefix(name, namePrefix)
	_, err := time.Parse(nameTime, text)
	return ok && err == nil
}

// directory holds backups on this machine.
type directory struct{ path string }

func (d directory) names(context.Context) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries { // sorted
		if _, err := os.Stat(filepath.Join(d.path, e.Name(), manifestName)); err == nil && isName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (d directory) open(_ context.Context, name, member string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(d.path, name, filepath.FromSlash(member)))
}

func (d directory) put(_ context.Context, name string, data []byte) error {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	partial := filepath.Join(d.path, "."+name+partialSuffix)
	if err := os.WriteFile(partial, data, 0o600); err != nil {
		return err
	}
	return errors.Join(syncFile(partial), os.Rename(partial, filepath.Join(d.path, name)), fsync.Directory(d.path))
}

// remove renames the backup first: one that is partly removed must not look complete.
func (d directory) remove(_ context.Context, name string) error {
	gone := filepath.Join(d.path, "."+name+partialSuffix)
	if err := os.Rename(filepath.Join(d.path, name), gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

func (d directory) sweep(_ context.Context, before time.Time) error {
	return removeOld(filepath.Join(d.path, "."+namePrefix+"*"+partialSuffix), before)
}

// removeOld removes what matches a pattern and hasn't changed since a time.
func removeOld(pattern string, before time.Time) error {
	stale, err := filepath.Glob(pattern)
	for _, name := range stale {
		if info, statErr := os.Stat(name); statErr == nil && info.ModTime().Before(before) {
			err = errors.Join(err, os.RemoveAll(name))
		}
	}
	return err
}

func (d directory) begin(_ context.Context, name string) (draft, error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, err
	}
	partial := filepath.Join(d.path, "."+name+partialSuffix)
	if err := os.Mkdir(partial, 0o700); err != nil {
		return nil, err
	}
	return &directoryDraft{partial, filepath.Join(d.path, name)}, nil
}

type directoryDraft struct{ partial, final string }

func (d *directoryDraft) directory() string { return d.partial }

func (d *directoryDraft) store(_ context.Context, member string) error {
	return syncFile(filepath.Join(d.partial, filepath.FromSlash(member)))
}

func (d *directoryDraft) open(_ context.Context, member string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(d.partial, filepath.FromSlash(member)))
}

func (d *directoryDraft) commit(_ context.Context, manifest []byte) error {
	name := filepath.Join(d.partial, manifestName)
	if err := os.WriteFile(name, manifest, 0o600); err != nil {
		return err
	}
	err := errors.Join(syncFile(name), filepath.WalkDir(d.partial, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = fsync.Directory(p)
		}
		return err
	}))
	if err == nil {
		err = os.Rename(d.partial, d.final)
	}
	if err == nil {
		err = fsync.Directory(filepath.Dir(d.final))
	}
	return err
}

func (d *directoryDraft) discard() { _ = os.RemoveAll(d.partial) }

func syncFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// bucket holds backups in S3-compatible storage.
type bucket struct {
	*files.Bucket
	spool string
}

// each calls use for every object of backups, with the name of its backup.
func (b bucket) each(ctx context.Context, use func(name, member string) error) error {
	return b.Each(ctx, namePrefix, func(key string) error {
		if name, member, ok := strings.Cut(key, "/"); ok && isName(name) {
			return use(name, member)
		}
		return nil
	})
}

func (b bucket) names(ctx context.Context) (names []string, err error) {
	err = b.each(ctx, func(name, member string) error {
		if member == manifestName {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

func (b bucket) open(ctx context.Context, name, member string) (io.ReadCloser, error) {
	return b.Open(ctx, path.Join(name, member))
}

func (b bucket) put(ctx context.Context, name string, data []byte) error {
	if err := os.MkdirAll(b.spool, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(b.spool, spoolPattern)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = b.Write(ctx, name, f)
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// remove deletes the manifest first: a backup that is partly removed must not
// look complete.
func (b bucket) remove(ctx context.Context, name string) error {
	if err := b.Remove(ctx, name+"/"+manifestName); err != nil {
		return err
	}
	return b.Each(ctx, name+"/", func(key string) error { return b.Remove(ctx, key) })
}

func (b bucket) sweep(ctx context.Context, before time.Time) error {
	if err := removeOld(filepath.Join(b.spool, spoolPattern), before); err != nil {
		return err
	}
	complete, err := b.names(ctx)
	if err != nil {
		return err
	}
	return b.each(ctx, func(name, member string) error {
		if slices.Contains(complete, name) || name >= nameAt(before) {
			return nil
		}
		return b.Remove(ctx, name+"/"+member)
	})
}

func (b bucket) begin(_ context.Context, name string) (draft, error) {
	if err := os.MkdirAll(b.spool, 0o700); err != nil {
		return nil, err
	}
	local, err := os.MkdirTemp(b.spool, spoolPattern)
	return &bucketDraft{b, name, local, false}, err
}

type bucketDraft struct {
	bucket
	name      string
	local     string
	committed bool
}

func (d *bucketDraft) directory() string { return d.local }

func (d *bucketDraft) store(ctx context.Context, member string) error {
	local := filepath.Join(d.local, filepath.FromSlash(member))
	f, err := os.Open(local)
	if err != nil {
		return err
	}
	err = d.Write(ctx, d.name+"/"+member, f)
	return errors.Join(err, f.Close(), os.Remove(local))
}

func (d *bucketDraft) open(ctx context.Context, member string) (io.ReadCloser, error) {
	return d.Open(ctx, d.name+"/"+member)
}

func (d *bucketDraft) commit(ctx context.Context, manifest []byte) error {
	if err := os.WriteFile(filepath.Join(d.local, manifestName), manifest, 0o600); err != nil {
		return err
	}
	if err := d.store(ctx, manifestName); err != nil {
		return err
	}
	r, err := d.open(ctx, manifestName)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(r) //budget:own it was just written
	if err != nil || !bytes.Equal(got, manifest) {
		return errors.Join(errManifest, err)
	}
	d.committed = true
	return nil
}

func (d *bucketDraft) discard() {
	_ = os.RemoveAll(d.local)
	if d.committed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = d.remove(ctx, d.name) // otherwise sweep does
}

func nameAt(t time.Time) string { return namePrefix + t.UTC().Format(nameTime) }

// explain adds advice to the error of a full disk.
func explain(err error, where string) error {
	if files.DiskFull(err) || db.IsFull(err) {
		return fmt.Errorf("the disk is full: free some space, or choose another location than %s: %w", where, err)
	}
	return err
}
