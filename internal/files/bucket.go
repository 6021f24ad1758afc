package files

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"turnpike/internal/ids"
)

const (
	// bucketTimeout limits how long a bucket may take to respond.
	bucketTimeout = 10 * time.Second
	// slowestUpload is the lowest accepted upload rate in bytes per second.
	// inFlightBytes is how much of an upload is sent concurrently.
	slowestUpload = 256 << 10
	inFlightBytes = uploadParts * uploadPartSize
	// Files above uploadPartSize, minio-go's usual minimum for S3, are sent in
	// parts.
	uploadParts    = 4
	uploadPartSize = 16 << 20
	// bucketRetries is how often minio-go sends a request at most. Jobs retry,
	// too.
	bucketRetries = 3
)

var (
	// errSilent replaces a context's error: the bucket stopped responding, and the
	// request itself was not canceled.
	errSilent   = errors.New("the bucket does not answer")
	errNoBucket = errors.New("the bucket named in files.url does not exist")
)

// orSilent marks an error if an unresponsive bucket caused it.
func orSilent(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errSilent {
		return fmt.Errorf("%w: %v", errSilent, err)
	}
	return err
}

// bucket is S3-compatible storage.
type bucket struct {
	name    string
	core    *minio.Core
	timeout time.Duration
}

// openBucket opens the bucket at an address such as
// s3://name?region=eu-central-1&endpoint=https://minio.internal:9000&use_path_style=true.
func openBucket(address string, timeout time.Duration) (*bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the address is not a URL") // the parser's error quotes it
	}
	options := minio.Options{Secure: true, MaxRetries: bucketRetries, BucketLookup: minio.BucketLookupAuto,
		Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{},
			&credentials.FileAWSCredentials{Profile: u.Query().Get("profile")},
			&credentials.IAM{},
		})}
	host := "s3.amazonaws.com"
	for name, values := range u.Query() {
		switch value := values[0]; name {
		case "region":
			options.Region = value
		case "endpoint":
			at, err := url.Parse(value)
			if err != nil || at.Host == "" || (at.Scheme != "https" && at.Scheme != "http") {
				return nil, errors.New("the endpoint in the address must be an http:// or https:// URL")
			}
			host, options.Secure = at.Host, at.Scheme == "https"
		case "use_path_style":
			pathStyle, err := strconv.ParseBool(value)
			if err != nil {
				return nil, errors.New("use_path_style in the address must be true or false")
			}
			if pathStyle {
				options.BucketLookup = minio.BucketLookupPath
			}
		case "profile":
		default:
			return nil, fmt.Errorf("unknown parameter %q in the address; allowed: endpoint, profile, region, use_path_style", name)
		}
	}
	core, err := minio.NewCore(host, &options)
	if err != nil {
		return nil, err
	}
	return &bucket{name: u.Host, core: core, timeout: timeout}, nil
}

// CheckBucket checks that Turnpike can list a bucket, and write, read and
// delete a small object in it.
func CheckBucket(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bucketTimeout, errSilent)
	defer cancel()
	b, err := openBucket(address, bucketTimeout)
	if err != nil {
		return fmt.Errorf("open the bucket of files.url: %w", err)
	}
	return orSilent(ctx, b.checkAccess(ctx))
}

func (b *bucket) checkAccess(ctx context.Context) error {
	if err := b.reachable(ctx); errors.Is(err, errNoBucket) {
		return err
	} else if err != nil {
		return fmt.Errorf("list the bucket of files.url: %w", err)
	}
	key, text := "doctor/"+ids.New("try"), []byte("turnpike doctor") // no workspace has such an ID
	f := File{Bytes: int64(len(text)), ContentType: "text/plain"}
	if err := b.write(ctx, key, f, bytes.NewReader(text)); err != nil {
		return fmt.Errorf("write to the bucket of files.url: %w", err)
	}
	err := b.compare(ctx, key, text)
	if err != nil {
		err = fmt.Errorf("read from the bucket of files.url: %w", err)
	}
	if failed := b.remove(ctx, key); failed != nil {
		err = errors.Join(err, fmt.Errorf("delete from the bucket of files.url: %w", failed))
	}
	return err
}

func (b *bucket) compare(ctx context.Context, key string, want []byte) error {
	r, err := b.open(ctx, key, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1)) //budget:own as long as what was written
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the content differs from the written content")
	}
	return err
}

// reachable fails if the bucket is missing. With a wrong name in files.url,
// every file would seem to be deleted.
func (b *bucket) reachable(ctx context.Context) error {
	exists, err := b.core.BucketExists(ctx, b.name)
	if err == nil && !exists {
		err = errNoBucket
	}
	return err
}

// orMissing translates S3's NoSuchKey error to errMissing.
func orMissing(err error) error {
	if err != nil && minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return fmt.Errorf("%w: %w", errMissing, err)
	}
	return err
}

func (b *bucket) size(ctx context.Context, key string) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.timeout, errSilent)
	defer cancel()
	found, err := b.core.StatObject(ctx, b.name, key, minio.StatObjectOptions{})
	return found.Size, orSilent(ctx, orMissing(err))
}

// remove deletes an object. S3 doesn't report a missing one.
func (b *bucket) remove(ctx context.Context, key string) error {
	return b.core.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{})
}

// progressReader calls progress on every read of a source.
type progressReader struct {
	source
	progress func()
}

func (p progressReader) Read(b []byte) (int, error) {
	p.progress()
	return p.source.Read(b)
}

func (p progressReader) ReadAt(b []byte, at int64) (int, error) {
	p.progress()
	return p.source.ReadAt(b, at)
}

// write uploads a file as a whole or not at all. The upload may take as long as
// it makes progress.
func (b *bucket) write(ctx context.Context, key string, f File, from source) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The bucket stores everything before it responds. On a slow connection, bytes
	// that were read may still be in the operating system's buffers.
	timeout := 2*b.timeout + time.Duration(min(f.Bytes, inFlightBytes))*time.Second/slowestUpload
	idle := time.AfterFunc(timeout, func() { cancel(errSilent) })
	defer idle.Stop()
	_, err := b.core.Client.PutObject(ctx, b.name, key, progressReader{from, func() { idle.Reset(timeout) }}, f.Bytes,
		minio.PutObjectOptions{ContentType: f.ContentType, PartSize: uploadPartSize, NumThreads: uploadParts})
	return orSilent(ctx, err)
}

// download is an object being read. Each read has a timeout; the time between
// two reads doesn't count.
type download struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	idle    *time.Timer
	timeout time.Duration
}

func (b *bucket) open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	return b.openPart(ctx, key, offset, 0)
}

// openPart reads a number of bytes of an object, or all from the offset on if it is 0.
func (b *bucket) openPart(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(b.timeout, func() { cancel(errSilent) })
	defer idle.Stop()
	var options minio.GetObjectOptions
	if offset > 0 || size > 0 {
		end := int64(0)
		if size > 0 {
			end = offset + size - 1
		}
		if err := options.SetRange(offset, end); err != nil {
			cancel(nil)
			return nil, err
		}
	}
	r, _, _, err := b.core.GetObject(ctx, b.name, key, options)
	if err != nil {
		defer cancel(nil)
		return nil, orSilent(ctx, orMissing(err))
	}
	return &download{r, ctx, cancel, idle, b.timeout}, nil
}

func (d *download) Read(p []byte) (int, error) {
	d.idle.Reset(d.timeout)
	n, err := d.ReadCloser.Read(p)
	d.idle.Stop()
	if err == io.EOF {
		return n, err
	}
	return n, orSilent(d.ctx, err)
}

func (d *download) Close() error {
	defer d.cancel(nil)
	return d.ReadCloser.Close()
}

// signedURL returns the bucket's own URL of an object. It is signed for each
// download, since one signed with a role's credentials may expire before
// Turnpike's.
func (b *bucket) signedURL(ctx context.Context, key string, f File, disposition string, life time.Duration) (string, error) {
	u, err := b.core.Presign(ctx, http.MethodGet, b.name, key, life,
		url.Values{"response-content-type": {f.ContentType}, "response-content-disposition": {disposition}})
	if err != nil {
		return "", err
	}
	return u.String(), nil
}
