// Package files stores the output of jobs: images, speech and videos. A file is
// stored under its hash, once per workspace and environment. It is available at
// a signed URL until it expires or its last holder drops it.
//
//	claim.go      holders of files, and purging
//	directory.go  files on this machine
//	bucket.go     files in S3-compatible storage
//	url.go        signed URLs
//	serve.go      downloads
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
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
)

var (
	// ErrFull means that the disk is full. The caller can retry later.
	ErrFull = errors.New("no room for files")
	// ErrGone means that the file was deleted or never existed.
	ErrGone = errors.New("the file is gone")
	// errMissing is a storage's error for a missing object.
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

// source is a file that can be read repeatedly and in parts.
type source interface {
	io.ReadSeeker
	io.ReaderAt
}

// File is the metadata of a file.
type File struct {
	SHA256      string // in hex
	Bytes       int64
	ContentType string
}

// Options configure a store.
type Options struct {
	DB *db.DB
	// URL is the address of a bucket, such as s3://name?region=eu-central-1. If it
	// is empty, files are stored in Dir.
	URL string
	// Dir is the directory for files without a URL, and for spooling incomplete
	// files in any case.
	Dir string
	// Key signs URLs. It is the same on every node.
	Key       []byte
	PublicURL string
	// Retention is how long files are kept.
	Retention time.Duration
	// FromBucket redirects downloads to the bucket.
	FromBucket bool
	// Timeout limits how long a bucket may take to respond; 0 means 10 seconds.
	// Uploads get more time between two reads.
	Timeout time.Duration
	Now     func() time.Time
}

// Store stores files.
type Store struct {
	db         *db.DB
	key        []byte
	publicURL  string
	retention  time.Duration
	fromBucket bool
	now        func() time.Time

	storage   storage
	directory *directory
	bucket    *bucket // nil if the directory is the storage
	group     *db.Group
	claims    *db.Queue[claim]
	ends      *db.Queue[string]
}

// Retention returns how long a file is kept.
func (s *Store) Retention() time.Duration { return s.retention }

// Open opens the directory or the bucket.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{db: o.DB, key: o.Key, publicURL: o.PublicURL, retention: o.Retention, fromBucket: o.FromBucket,
		now: o.Now}
	// With the embedded database, no other node uses the directory.
	leftovers := time.Duration(0)
	if o.DB.Engine() != "sqlite" {
		leftovers = staleSpool
	}
	var err error
	if s.directory, err = openDirectory(o.Dir, leftovers); err != nil {
		return nil, fmt.Errorf("open the files directory: %w", err)
	}
	s.storage = s.directory
	if o.URL != "" {
		if s.bucket, err = openBucket(o.URL, cmp.Or(o.Timeout, bucketTimeout)); err != nil {
			return nil, fmt.Errorf("open the files bucket: %w", err)
		}
		s.storage = s.bucket
	}
	// A separate commit group: a claim may wait for a purge, which waits for the
	// bucket. Nothing else should wait with it.
	s.group = db.NewGroup(o.DB).Named("files")
	s.claims = db.NewQueue(s.group, false, writeClaims)
	s.ends = db.NewQueue(s.group, true, writeEnds).Identify("upload_ends", func(upload string) string { return upload })
	return s, nil
}

// Redirects reports whether downloads come from the bucket, which is a
// different site.
func (s *Store) Redirects() bool { return s.fromBucket }

// Close stops the store. Repeated calls do nothing.
func (s *Store) Close() error {
	s.group.Stop()
	return nil
}

// Put stores the content of r for the holder, a job's ID. It spools the content
// to disk, because its key is the hash of all of it.
func (s *Store) Put(ctx context.Context, t accounts.Tenant, holder, contentType string, r io.Reader) (File, error) {
	sp, err := s.Spool(contentType, r)
	if err != nil {
		return File{}, err
	}
	defer sp.Discard()
	return sp.File, s.Keep(ctx, t, holder, sp)
}

// Spooled is a file on this node's disk that isn't stored yet.
type Spooled struct {
	File
	content spooled
}

// Discard deletes the file, unless it was stored.
func (s *Spooled) Discard() { s.content.discard() }

// Spool copies the content of r to this node's disk. The caller must discard it.
func (s *Store) Spool(contentType string, r io.Reader) (*Spooled, error) {
	sum := sha256.New()
	content, size, err := s.directory.spool(io.TeeReader(r, sum))
	if err != nil {
		return nil, fmt.Errorf("spool a file: %w", err)
	}
	return &Spooled{describe(sum, size, contentType), content}, nil
}

// Keep stores a spooled file for the holder.
func (s *Store) Keep(ctx context.Context, t accounts.Tenant, holder string, sp *Spooled) error {
	return s.keep(ctx, t, holder, sp.File, sp.content)
}

// PutBytes is Put for content that is already in memory.
func (s *Store) PutBytes(ctx context.Context, t accounts.Tenant, holder, contentType string, data []byte) (File, error) {
	sum := sha256.New()
	sum.Write(data)
	f := describe(sum, int64(len(data)), contentType)
	return f, s.keep(ctx, t, holder, f, bytes.NewReader(data))
}

// unknownType is the type of files without a valid content type.
const unknownType = "application/octet-stream"

func describe(sum hash.Hash, size int64, contentType string) File {
	if _, _, err := mime.ParseMediaType(contentType); err != nil {
		contentType = unknownType
	}
	return File{SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: size, ContentType: contentType}
}

// keep claims the file, and then checks whether its bytes exist. From the claim
// on, no purge deletes them. In the other order, a purge could run between the
// two.
func (s *Store) keep(ctx context.Context, t accounts.Tenant, holder string, f File, from source) error {
	now := s.now()
	c := claim{t, holder, ids.New(uploads), f, now, now.Add(s.retention)}
	if err := s.claims.Add(c).Wait(ctx); err != nil {
		s.ends.Add(c.upload) // the claim may still be written
		return fmt.Errorf("claim a file: %w", err)
	}
	key := objectKey(t, f.SHA256)
	there, err := s.has(ctx, key, f.Bytes)
	if err != nil {
		return errors.Join(fmt.Errorf("look up a file: %w", err), s.endUpload(ctx, c))
	}
	if !there {
		err = s.storage.write(ctx, key, f, from)
	}
	// An upload to a bucket may still complete after it was canceled.
	if err == nil || s.bucket == nil {
		err = errors.Join(err, s.endUpload(ctx, c))
	}
	return db.Wrap(err, "store a file")
}

// objectKey returns the file's key in the storage.
func objectKey(t accounts.Tenant, sha256 string) string { return t.Path() + "/" + sha256 }

// has reports whether the file is stored completely.
func (s *Store) has(ctx context.Context, key string, size int64) (bool, error) {
	found, err := s.storage.size(ctx, key)
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil && found == size, err
}

// Read opens a stored file. The caller must close it.
func (s *Store) Read(ctx context.Context, t accounts.Tenant, sha256 string) (io.ReadCloser, error) {
	return s.ReadFrom(ctx, t, sha256, 0)
}

// ReadFrom is Read from an offset.
func (s *Store) ReadFrom(ctx context.Context, t accounts.Tenant, sha256 string, offset int64) (io.ReadCloser, error) {
	r, err := s.storage.open(ctx, objectKey(t, sha256), offset)
	if errors.Is(err, errMissing) {
		if err = s.storage.reachable(ctx); err == nil {
			err = ErrGone
		}
	}
	return r, db.Wrap(err, "read a file")
}
