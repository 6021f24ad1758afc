package wire

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"testing"
)

// TestLargeResponseIsReadWithoutCopies covers images in base64. A buffer that
// grows by doubling would take three times as much memory.
func TestLargeResponseIsReadWithoutCopies(t *testing.T) {
	answer := bytes.Repeat([]byte("x"), 16<<20)
	read := func(announced int64) (spent uint64, err error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := ReadAll(&http.Response{Body: io.NopCloser(bytes.NewReader(answer)), ContentLength: announced})
		runtime.ReadMemStats(&after)
		if err == nil && !bytes.Equal(got, answer) {
			t.Errorf("announced as %d bytes, it was read as %d", announced, len(got))
		}
		return after.TotalAlloc - before.TotalAlloc, err
	}
	if spent, err := read(int64(len(answer))); err != nil || spent > uint64(len(answer))*5/2 { // with the race detector growing buffers are allocated twice
		t.Errorf("it took %d MiB (%v)", spent>>20, err)
	}
	for _, announced := range []int64{-1, 10, 2 << 20, maxResponse + 1} { // the actual length counts, not the announced one
		if _, err := read(announced); err != nil {
			t.Errorf("announced as %d bytes: %v", announced, err)
		}
	}
}
