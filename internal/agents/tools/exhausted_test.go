package tools

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"turnpike/internal/safehttp"
)

// exhaustedTransport fails its first requests for want of file descriptors.
type exhaustedTransport struct {
	failures int
	bodies   []string
}

func (s *exhaustedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	s.bodies = append(s.bodies, string(body))
	if len(s.bodies) <= s.failures {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestToolCallIsRetriedWhenOutOfFileDescriptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for failures, want := range map[int]int{0: 1, 3: 4, 1000: 1 + exhaustedRetries} {
			base := &exhaustedTransport{failures: failures}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://tool.example", bytes.NewReader([]byte("{}")))
			if err != nil {
				t.Fatal(err)
			}
			_, err = retryExhausted{base}.RoundTrip(req)
			if len(base.bodies) != want || strings.Join(base.bodies, "") != strings.Repeat("{}", want) {
				t.Errorf("sent %q, want %d requests", base.bodies, want)
			}
			if safehttp.Exhausted(err) != (failures > exhaustedRetries) {
				t.Errorf("after %d failures: %v", failures, err)
			}
		}
	})
}
