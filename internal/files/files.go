// Package files keeps what jobs make: pictures, speech, videos. A file lies
// under its hash, once for each tenant, however many jobs made it. It can be
// had by a signed URL until it expires or its last holder lets go of it.
//
//	claim.go   who holds what, and what is let go
//	folder.go  files on this machine; elsewhere they are in a bucket
//	url.go     signed URLs
//	serve.go   what is at them
package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // s3:// is one of the addresses
	"gocloud.dev/gcerrors"

	"turnpike/internal/db"
)

var (
	// ErrFull: there is no room for the file. It can be tried again when there is.
	ErrFull = errors.New("no room for files")
	// ErrGone: the file was removed, or never was.
	ErrGone = errors.New("the file is gone")
)

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
	Now        func() time.Time
}

// Store keeps files.
type Store struct {
	db         *db.DB
	key        []byte
	publicURL  string
	retention  time.Duration
	fromBucket bool
	now        func() time.Time

	bucket *blob.Bucket
	folder *folder
	remote bool // the bucket is not the folder
	group  *db.Group
	claims *db.Queue[claim]
	closed atomic.Bool
}

// Retention is for how long a file is kept.
func (s *Store) Retention() time.Duration { return s.retention }

// Open opens the folder or the bucket.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{db: o.DB, key: o.Key, publicURL: o.PublicURL, retention: o.Retention, fromBucket: o.FromBucket, now: o.Now, remote: o.URL != ""}
	// The embedded database is one server's alone, and so is the folder then.
	leftovers := time.Duration(0)
	if o.DB.Engine() != "sqlite" {
		leftovers = staleSpool
	}
	var err error
	if s.folder, err = openFolder(o.Folder, leftovers); err != nil {
		return nil, fmt.Errorf("open the folder of files: %w", err)
	}
	if s.remote {
		s.bucket, err = openBucket(ctx, o.URL)
	} else {
		s.bucket, err = s.folder.bucket()
	}
	if err != nil {
		return nil, fmt.Errorf("open the store of files: %w", err)
	}
	// A group of its own: a claim may wait for a purge, which waits for the
	// bucket, and nothing else should wait with it.
	s.group = db.NewGroup(o.DB)
	s.claims = db.NewQueue(s.group, false, writeClaims)
	return s, nil
}

// openBucket opens a bucket by its URL. Amazon's newer checksums are left out
// where the URL does not ask for them: other makes do not know them, the hash
// is in the name, and the SDK writes a line for each answer without one.
func openBucket(ctx context.Context, address string) (*blob.Bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "s3" {
		query := u.Query()
		for _, name := range []string{"request_checksum_calculation", "response_checksum_validation"} {
			if !query.Has(name) {
				query.Set(name, "when_required")
			}
		}
		u.RawQuery = query.Encode()
	}
	bucket, err := blob.OpenBucket(ctx, u.String())
	if err != nil { // its words quote the address, which may have a secret in it
		return nil, errors.New(strings.ReplaceAll(err.Error(), u.String(), u.Redacted()))
	}
	return bucket, nil
}

// bucketPatience is how long a bucket may take to say that it is there.
const bucketPatience = 10 * time.Second

// CheckBucket tells whether a bucket can be reached and listed, which a server
// itself finds out when it first needs it.
func CheckBucket(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, bucketPatience)
	defer cancel()
	bucket, err := openBucket(ctx, address)
	if err != nil {
		return fmt.Errorf("open the bucket of files.url: %w", err)
	}
	defer bucket.Close()
	there, err := bucket.IsAccessible(ctx)
	if err != nil {
		return fmt.Errorf("look into the bucket of files.url: %w", err)
	}
	if !there {
		return errors.New("there is no such bucket as files.url names")
	}
	return nil
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
	return s.bucket.Close()
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
	return f, s.keep(ctx, o, holder, f, func(key string) error {
		if s.remote {
			if _, err := spooled.Seek(0, io.SeekStart); err != nil {
				return err
			}
			return s.upload(ctx, key, f, spooled)
		}
		return s.folder.adopt(spooled, key)
	})
}

// PutBytes is Put for what is in memory already.
func (s *Store) PutBytes(ctx context.Context, o Owner, holder, contentType string, data []byte) (File, error) {
	sum := sha256.New()
	sum.Write(data)
	f := describe(sum, int64(len(data)), contentType)
	return f, s.keep(ctx, o, holder, f, func(key string) error {
		if s.remote {
			return s.upload(ctx, key, f, bytes.NewReader(data))
		}
		spooled, _, err := s.folder.spool(bytes.NewReader(data))
		if err != nil {
			return err
		}
		defer spooled.discard()
		return s.folder.adopt(spooled, key)
	})
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
func (s *Store) keep(ctx context.Context, o Owner, holder string, f File, write func(key string) error) error {
	now := s.now()
	if err := s.claims.Add(claim{o, holder, f, now, now.Add(s.retention)}).Wait(ctx); err != nil {
		return fmt.Errorf("claim a file: %w", err)
	}
	key := o.key(f.SHA256)
	there, err := s.has(ctx, key, f.Bytes)
	if err != nil {
		return fmt.Errorf("look for a file: %w", err)
	}
	if there {
		return nil
	}
	if err := write(key); err != nil {
		return fmt.Errorf("store a file: %w", err)
	}
	return nil
}

// key is the file's place in the bucket.
func (o Owner) key(sha256 string) string { return o.WorkspaceID + "/" + o.Environment + "/" + sha256 }

// has reports whether the file is there as a whole.
func (s *Store) has(ctx context.Context, key string, size int64) (bool, error) {
	found, err := s.bucket.Attributes(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return false, nil
	}
	return err == nil && found.Size == size, err
}

// upload has the bucket show the whole file or none of it.
func (s *Store) upload(ctx context.Context, key string, f File, r io.Reader) error {
	return s.bucket.Upload(ctx, key, r, &blob.WriterOptions{ContentType: f.ContentType})
}

// Read opens a stored file. It must be closed.
func (s *Store) Read(ctx context.Context, o Owner, sha256 string) (io.ReadCloser, error) {
	r, err := s.bucket.NewReader(ctx, o.key(sha256), nil)
	if gcerrors.Code(err) == gcerrors.NotFound || errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read a file: %w", ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	}
	return r, nil
}
