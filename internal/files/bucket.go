package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // s3:// is one of the addresses
	"gocloud.dev/gcerrors"

	"turnpike/internal/ids"
)

const (
	// bucketPatience is how long a bucket may take to answer.
	bucketPatience = 10 * time.Second
	// slowest is the least that a line to a bucket carries, in bytes a second,
	// and underWay what is sent at once.
	slowest  = 256 << 10
	underWay = manager.DefaultUploadConcurrency * manager.DefaultUploadPartSize
	// abortPatience is how long it may take to forget an upload. A server that
	// stops waits for it.
	abortPatience = 4 * time.Second
)

var (
	// errSilent takes the place of a context's error: nobody has left, and no
	// deadline of the caller's is over.
	errSilent   = errors.New("the bucket does not answer")
	errNoBucket = errors.New("there is no such bucket as files.url names")
)

// orSilent says of an error that it is the bucket's silence, if it is.
func orSilent(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errSilent {
		return fmt.Errorf("%w: %v", errSilent, err)
	}
	return err
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

// CheckBucket tells whether a bucket can be reached and listed, and whether a
// small object can be written, read and deleted there: all that a server will
// want of it, and would find out when it first does.
func CheckBucket(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bucketPatience, errSilent)
	defer cancel()
	bucket, err := openBucket(ctx, address)
	if err != nil {
		return fmt.Errorf("open the bucket of files.url: %w", err)
	}
	defer bucket.Close()
	return orSilent(ctx, try(ctx, bucket))
}

func try(ctx context.Context, bucket *blob.Bucket) error {
	there, err := bucket.IsAccessible(ctx)
	if err != nil {
		return fmt.Errorf("look into the bucket of files.url: %w", err)
	}
	if !there {
		return errNoBucket
	}
	key, text := "doctor/"+ids.New("try"), []byte("turnpike doctor") // no workspace has such a name
	if err := bucket.WriteAll(ctx, key, text, &blob.WriterOptions{ContentType: "text/plain"}); err != nil {
		return fmt.Errorf("write into the bucket of files.url: %w", err)
	}
	got, err := bucket.ReadAll(ctx, key)
	if err == nil && !bytes.Equal(got, text) {
		err = errors.New("it is not what was written")
	}
	if err != nil {
		err = fmt.Errorf("read from the bucket of files.url: %w", err)
	}
	if failed := bucket.Delete(ctx, key); failed != nil {
		err = errors.Join(err, fmt.Errorf("delete from the bucket of files.url: %w", failed))
	}
	return err
}

// present tells objects that are missing from a bucket that is: with another
// name in files.url everything would seem to be gone.
func (s *Store) present(ctx context.Context) error {
	if !s.remote {
		_, err := os.Stat(s.folder.spoolPath())
		return err
	}
	there, err := s.bucket.IsAccessible(ctx)
	if err == nil && !there {
		err = errNoBucket
	}
	return err
}

// has reports whether the file is there as a whole.
func (s *Store) has(ctx context.Context, key string, size int64) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, errSilent)
	defer cancel()
	found, err := s.bucket.Attributes(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return false, nil
	}
	return err == nil && found.Size == size, orSilent(ctx, err)
}

// source is a file that can be sent again, and in parts.
type source interface {
	io.ReadSeeker
	io.ReaderAt
}

// watched tells of each of its pieces that is taken.
type watched struct {
	source
	taken func()
}

func (w watched) Read(p []byte) (int, error) {
	w.taken()
	return w.source.Read(p)
}

func (w watched) ReadAt(p []byte, at int64) (int, error) {
	w.taken()
	return w.source.ReadAt(p, at)
}

// upload has the bucket show the whole file or none of it. It may take as long
// as it goes on.
func (s *Store) upload(ctx context.Context, key string, f File, from source) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	// It stores what it has before it answers. And what was read is not there
	// yet: the system takes parts from us sooner than a slow line does.
	patience := 2*s.patience + time.Duration(min(f.Bytes, underWay))*time.Second/slowest
	idle := time.AfterFunc(patience, func() { giveUp(errSilent) })
	defer idle.Stop()
	return orSilent(ctx, s.bucket.Upload(ctx, key, watched{from, func() { idle.Reset(patience) }},
		&blob.WriterOptions{ContentType: f.ContentType, BeforeWrite: tidy}))
}

// tidy has parts removed that were sent before an upload was cut off.
func tidy(as func(any) bool) error {
	var u *manager.Uploader
	if as(&u) {
		u.S3 = tidying{u.S3}
	}
	return nil
}

// tidying gives uploads up in a time of their own: the SDK does so in that of
// the upload, which is over when it was cut off.
type tidying struct{ manager.UploadAPIClient }

func (t tidying) AbortMultipartUpload(ctx context.Context, in *s3.AbortMultipartUploadInput, options ...func(*s3.Options)) (*s3.AbortMultipartUploadOutput, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
	defer cancel()
	return t.UploadAPIClient.AbortMultipartUpload(ctx, in, options...)
}

// opened is a file that is being read. The bucket may take its time for each
// piece, and whoever reads for what is done with it.
type opened struct {
	io.ReadCloser
	ctx     context.Context
	giveUp  context.CancelCauseFunc
	silence *time.Timer
	within  time.Duration
}

// open opens a file from some place on.
func (s *Store) open(ctx context.Context, key string, at int64) (io.ReadCloser, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	silence := time.AfterFunc(s.patience, func() { giveUp(errSilent) })
	defer silence.Stop()
	r, err := s.bucket.NewRangeReader(ctx, key, at, -1, nil)
	if err != nil {
		defer giveUp(nil)
		return nil, orSilent(ctx, err)
	}
	return &opened{r, ctx, giveUp, silence, s.patience}, nil
}

func (o *opened) Read(p []byte) (int, error) {
	o.silence.Reset(o.within)
	n, err := o.ReadCloser.Read(p)
	o.silence.Stop()
	if err == io.EOF {
		return n, err
	}
	return n, orSilent(o.ctx, err)
}

func (o *opened) Close() error {
	defer o.giveUp(nil)
	return o.ReadCloser.Close()
}
