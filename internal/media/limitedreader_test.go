package media

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

func TestOversizedProviderFileFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		left int64
		fits bool
	}{{0, false}, {4, false}, {5, true}, {6, true}} {
		for _, from := range []io.Reader{strings.NewReader("12345"), iotest.OneByteReader(strings.NewReader("12345")), iotest.DataErrReader(strings.NewReader("12345"))} {
			got, err := io.ReadAll(&limitedReader{from, c.left})
			var f *providers.Failure
			if c.fits && (err != nil || string(got) != "12345") || !c.fits && (!errors.As(err, &f) || f.Kind != providers.KindProtocol || int64(len(got)) > c.left) {
				t.Errorf("of at most %d bytes: %q, %v", c.left, got, err)
			}
		}
	}
}

// The source of a video may be large, and the connection to the bucket slow.
func TestLargeFileGetsMoreTimeToStore(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]time.Duration{1 << 10: 10 * time.Second, 32 << 20: 138 * time.Second} {
		o := &Draft{Job: &Job{}, size: size, store: func(ctx context.Context) error {
			until, ok := ctx.Deadline()
			if left := time.Until(until); !ok || left > want || left < want-5*time.Second {
				t.Errorf("%d bytes may take %v", size, left)
			}
			return context.DeadlineExceeded
		}}
		if err := new(Service).StoreFile(t.Context(), o); !fault.Is(err, fault.StorageUnavailable) {
			t.Errorf("what took longer is %v", err)
		}
		o.store = func(context.Context) error { return context.Canceled }
		if err := new(Service).StoreFile(t.Context(), o); !errors.Is(err, context.Canceled) {
			t.Errorf("error after the client left: got %v", err)
		}
	}
}
