package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
)

// Objects reads and writes stored files without their rows, for backups.
type Objects struct{ storage storage }

// OpenObjects opens the storage of files: the bucket, or the directory if the URL
// is empty. It creates nothing.
func OpenObjects(address, directoryPath string) (*Objects, error) {
	if address == "" {
		return &Objects{&directory{path: directoryPath}}, nil
	}
	b, err := openBucket(address, bucketTimeout)
	if err != nil {
		return nil, fmt.Errorf("open the files bucket: %w", err)
	}
	return &Objects{b}, nil
}

// Open reads a file. It returns ErrGone if the file doesn't exist.
func (o *Objects) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := o.storage.open(ctx, key, 0)
	if errors.Is(err, errMissing) {
		return nil, ErrGone
	}
	return r, err
}

// Write stores a file, unless it is already there.
func (o *Objects) Write(ctx context.Context, key string, f File, from *os.File) error {
	if found, err := o.storage.size(ctx, key); err == nil && found == f.Bytes {
		return nil
	} else if err != nil && !errors.Is(err, errMissing) {
		return err
	}
	return o.storage.write(ctx, key, f, from)
}

// Bucket is S3-compatible storage for objects that aren't files of workspaces.
type Bucket struct {
	bucket *bucket
	prefix string // empty, or with a slash at its end
}

// OpenBucket opens the bucket at an address in the form of files.url, which may
// also have a path: the prefix of all keys.
func OpenBucket(address string) (*Bucket, error) {
	b, err := openBucket(address, bucketTimeout)
	if err != nil {
		return nil, fmt.Errorf("open the bucket: %w", err)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the address of the bucket is not a URL")
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Bucket{b, prefix}, nil
}

// Write uploads a file as a whole or not at all.
func (b *Bucket) Write(ctx context.Context, key string, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	return b.bucket.write(ctx, b.prefix+key, File{Bytes: info.Size(), ContentType: unknownType}, from)
}

// Open reads an object. It returns ErrGone if the object doesn't exist.
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := b.bucket.open(ctx, b.prefix+key, 0)
	if errors.Is(err, errMissing) {
		return nil, ErrGone
	}
	return r, err
}

// ReadAt reads len(p) bytes of an object. It returns ErrGone if the object doesn't
// exist, and io.ErrUnexpectedEOF if it is shorter.
func (b *Bucket) ReadAt(ctx context.Context, key string, p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	r, err := b.bucket.openPart(ctx, b.prefix+key, offset, int64(len(p)))
	if errors.Is(err, errMissing) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.ReadFull(r, p)
	return err
}

// Each calls use for every key with a prefix, in order.
func (b *Bucket) Each(ctx context.Context, prefix string, use func(key string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	for o := range b.bucket.core.Client.ListObjects(ctx, b.bucket.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return o.Err
		}
		if err := use(strings.TrimPrefix(o.Key, b.prefix)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Remove deletes an object.
func (b *Bucket) Remove(ctx context.Context, key string) error {
	return b.bucket.remove(ctx, b.prefix+key)
}

// DiskFull reports whether the disk, a quota or the file size limit is exhausted.
func DiskFull(err error) bool { return diskFull(err) }
