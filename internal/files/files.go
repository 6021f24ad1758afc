// Package files keeps what jobs make: pictures, speech, videos. A file lies
// under its hash, once for each tenant, however many jobs made it. It can be
// had by a signed URL until it expires or its last holder lets go of it.
//
//	claim.go   who holds what, and what is let go
//	folder.go  files on this machine
//	bucket.go  files elsewhere, and how long to wait for them
//	url.go     signed URLs
//	serve.go   what is at them
package files

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"sync/atomic"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

var (
	// ErrFull: there is no room for the file. It can be tried again when there is.
	ErrFull = errors.New("no room for files")
	// ErrGone: the file was removed, or never was.
	ErrGone = errors.New("the file is gone")
	// errMissing is a storage's error for an object that it doesn't have.
	errMissing = errors.New("no such object")
)

// storage holds the bytes of files: a bucket or a directory.
type storage interface {
	// write stores a whole file or nothing.
	write(ctx context.Context, key string, f File, from source) error
	// size returns an object's size, or errMissing.
	size(ctx context.Context, key string) (int64, error)
	// open reads an object from an offset, or returns errMissing.
	open(ctx context.Context, key string, offset int64) (io.ReadCloser, error)
	// remove deletes an object. It may return errMissing.
	remove(ctx context.Context, key string) error
	// reachable fails if the storage itself is missing, not just an object.
	reachable(ctx context.Context) error
}

// source is a file that can be sent again, and in parts.
type source interface {
	io.ReadSeeker
	io.ReaderAt
}

// Owner is the tenant that a file belongs to.
type Owner struct{ WorkspaceID, Environment string }

// File is what is known of a file.
type File struct {
	SHA256      string // in hex
	Bytes       int64
	ContentType string
}

// Options configure a store.
type Options struct {
	DB *db.DB
	// URL is that of a bucket, such as s3://name?region=eu-central-1; empty
	// means the folder.
	URL string
	// Folder is where files are kept without a URL, and in any case where they
	// wait until they are complete.
	Folder string
	// Key signs URLs. Every node has the same.
	Key       []byte
	PublicURL string
	// Retention is for how long files are kept.
	Retention time.Duration
	// FromBucket has downloads come from the bucket itself, if it can sign.
	FromBucket bool
	// Timeout limits how long a bucket may take to answer; zero means 10 seconds.
	// The next bytes of an upload may take longer.
	Timeout time.Duration
	Now     func() time.Time
}

// Store keeps files.
type Store struct {
	db         *db.DB
	key        []byte
	publicURL  string
	retention  time.Duration
	fromBucket bool
	now        func() time.Time

	storage storage
	folder  *folder
	bucket  *bucket // nil if the folder is the storage
	group   *db.Group
	claims  *db.Queue[claim]
	ends    *db.Queue[string]
	closed  atomic.Bool
}

// Retention is for how long a file is kept.
func (s *Store) Retention() time.Duration { return s.retention }

// Open opens the folder or the bucket.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{db: o.DB, key: o.Key, publicURL: o.PublicURL, retention: o.Retention, fromBucket: o.FromBucket,
		now: o.Now}
	// The embedded database is one server's alone, and so is the folder then.
	leftovers := time.Duration(0)
	if o.DB.Engine() != "sqlite" {
		leftovers = staleSpool
	}
	var err error
	if s.folder, err = openFolder(o.Folder, leftovers); err != nil {
		return nil, fmt.Errorf("open the folder of files: %w", err)
	}
	s.storage = s.folder
	if o.URL != "" {
		if s.bucket, err = openBucket(o.URL, cmp.Or(o.Timeout, bucketTimeout)); err != nil {
			return nil, fmt.Errorf("open the bucket of files: %w", err)
		}
		s.storage = s.bucket
	}
	// A group of its own: a claim may wait for a purge, which waits for the
	// bucket, and nothing else should wait with it.
	s.group = db.NewGroup(o.DB)
	s.claims = db.NewQueue(s.group, false, writeClaims)
	s.ends = db.NewQueue(s.group, true, writeEnds)
	return s, nil
}

// Redirects reports whether downloads come from the bucket itself, which is
// another site than ours.
func (s *Store) Redirects() bool { return s.fromBucket }

// Close ends the store; a second time does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.group.Stop()
	return nil
}

// Put stores what r gives, for the holder (a job's id). It is spooled on the
// way, as its name follows from all of it, and never held in memory.
func (s *Store) Put(ctx context.Context, o Owner, holder, contentType string, r io.Reader) (File, error) {
	sum := sha256.New()
	spooled, size, err := s.folder.spool(io.TeeReader(r, sum))
	if err != nil {
		return File{}, fmt.Errorf("spool a file: %w", err)
	}
	defer spooled.discard()
	f := describe(sum, size, contentType)
	return f, s.keep(ctx, o, holder, f, spooled)
}

// PutBytes is Put for content that is already in memory.
func (s *Store) PutBytes(ctx context.Context, o Owner, holder, contentType string, data []byte) (File, error) {
	sum := sha256.New()
	sum.Write(data)
	f := describe(sum, int64(len(data)), contentType)
	return f, s.keep(ctx, o, holder, f, bytes.NewReader(data))
}

// unknownType is that of a file of which nobody said what it is.
const unknownType = "application/octet-stream"

func describe(sum hash.Hash, size int64, contentType string) File {
	if _, _, err := mime.ParseMediaType(contentType); err != nil {
		contentType = unknownType
	}
	return File{SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: size, ContentType: contentType}
}

// keep claims the file, and only then looks whether its bytes are there: from
// the claim on no purge removes them. The other way round, one could do so
// between the two.
func (s *Store) keep(ctx context.Context, o Owner, holder string, f File, from source) error {
	now := s.now()
	c := claim{o, holder, ids.New(uploads), f, now, now.Add(s.retention)}
	if err := s.claims.Add(c).Wait(ctx); err != nil {
		s.ends.Add(c.upload) // it may have been written, or be
		return fmt.Errorf("claim a file: %w", err)
	}
	key := o.key(f.SHA256)
	there, err := s.has(ctx, key, f.Bytes)
	if err != nil {
		return errors.Join(fmt.Errorf("look for a file: %w", err), s.end(ctx, c))
	}
	if !there {
		err = s.storage.write(ctx, key, f, from)
	}
	// What was cut off on the way to a bucket may still come through.
	if err == nil || s.bucket == nil {
		err = errors.Join(err, s.end(ctx, c))
	}
	if err != nil {
		return fmt.Errorf("store a file: %w", err)
	}
	return nil
}

// key is the file's place in the bucket.
func (o Owner) key(sha256 string) string { return o.WorkspaceID + "/" + o.Environment + "/" + sha256 }

// has reports whether the file is stored as a whole.
func (s *Store) has(ctx context.Context, key string, size int64) (bool, error) {
	found, err := s.storage.size(ctx, key)
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil && found == size, err
}

// Read opens a stored file. It must be closed.
func (s *Store) Read(ctx context.Context, o Owner, sha256 string) (io.ReadCloser, error) {
	r, err := s.storage.open(ctx, o.key(sha256), 0)
	if errors.Is(err, errMissing) {
		if err = s.storage.reachable(ctx); err == nil {
			err = ErrGone
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	}
	return r, nil
}
