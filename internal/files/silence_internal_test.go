package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gocloud.dev/blob/memblob"
)

// slowly is a file on a slow line: each piece takes as long.
type slowly struct {
	*bytes.Reader
	each time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.each)
	return s.Reader.Read(p[:min(len(p), 1)])
}

// TestAnUploadMayTakeAsLongAsItGoesOn, and is given up when it does not.
func TestAnUploadMayTakeAsLongAsItGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{bucket: memblob.OpenBucket(nil), patience: bucketPatience}
		defer s.bucket.Close()
		text := []byte("a long text")
		f := File{Bytes: int64(len(text)), ContentType: "text/plain"}
		if err := s.upload(t.Context(), "slow", f, slowly{bytes.NewReader(text), bucketPatience}); err != nil {
			t.Errorf("a slow one: %v", err)
		}
		if got, err := s.bucket.ReadAll(t.Context(), "slow"); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%q, %v", got, err)
		}
		if err := s.upload(t.Context(), "silent", f, slowly{bytes.NewReader(text), time.Hour}); !errors.Is(err, errSilent) {
			t.Errorf("one that stands still: %v", err)
		}
	})
}

// hangs is a body of which nothing comes.
type hangs struct{ ctx context.Context }

func (h hangs) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

// TestAReadThatHangsIsGivenUp; what whoever reads does in between may take its
// time.
func TestAReadThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, giveUp := context.WithCancelCause(t.Context())
		silence := time.AfterFunc(time.Hour, func() { giveUp(errSilent) })
		silence.Stop()
		o := &opened{io.NopCloser(io.MultiReader(strings.NewReader("beginning"), hangs{ctx})), ctx, giveUp, silence, bucketPatience}
		defer o.Close()
		p := make([]byte, 5)
		for range 2 {
			if _, err := o.Read(p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		if _, err := o.Read(p); !errors.Is(err, errSilent) {
			t.Errorf("it ended with %v", err)
		}
	})
}
