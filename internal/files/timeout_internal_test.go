package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// slowReader takes some time for each byte.
type slowReader struct {
	*bytes.Reader
	each time.Duration
}

func (s slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.each)
	return s.Reader.Read(p[:min(len(p), 1)])
}

func (s slowReader) ReadAt(p []byte, at int64) (int, error) {
	time.Sleep(s.each)
	return s.Reader.ReadAt(p[:min(len(p), 1)], at)
}

// inMemory handles uploads without a network.
type inMemory struct{ stored []byte }

func (m *inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	m.stored = body
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"1"`}}, Body: http.NoBody, Request: r}, nil
}

func TestUploadIsCanceledOnlyWhenItMakesNoProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &inMemory{}
		core, err := minio.NewCore("s3.example.com", &minio.Options{Secure: true, Region: "eu-central-1", Transport: server,
			Creds: credentials.NewStaticV4("id", "secret", "")})
		if err != nil {
			t.Fatal(err)
		}
		b := &bucket{name: "bucket", core: core, timeout: bucketTimeout}
		text := []byte("a long text")
		f := File{Bytes: int64(len(text)), ContentType: "text/plain"}
		if err := b.write(t.Context(), "slow", f, slowReader{bytes.NewReader(text), bucketTimeout}); err != nil {
			t.Errorf("upload that makes slow progress: got %v, want success", err)
		}
		if !bytes.Equal(server.stored, text) {
			t.Errorf("stored %q, want %q", server.stored, text)
		}
		if err := b.write(t.Context(), "silent", f, slowReader{bytes.NewReader(text), time.Hour}); !errors.Is(err, errSilent) {
			t.Errorf("upload that stands still: got %v, want %v", err, errSilent)
		}
	})
}

// hangingReader blocks until its context ends.
type hangingReader struct{ ctx context.Context }

func (h hangingReader) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

// The consumer may pause between two reads.
func TestHangingReadTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		idle := time.AfterFunc(time.Hour, func() { cancel(errSilent) })
		idle.Stop()
		o := &download{io.NopCloser(io.MultiReader(strings.NewReader("beginning"), hangingReader{ctx})), ctx, cancel, idle, bucketTimeout}
		defer o.Close()
		p := make([]byte, 5)
		for range 2 {
			if _, err := o.Read(p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		if _, err := o.Read(p); !errors.Is(err, errSilent) {
			t.Errorf("got %v, want %v", err, errSilent)
		}
	})
}
