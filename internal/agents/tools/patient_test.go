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

// scarce is a transport on a machine that has no descriptors for the first calls.
type scarce struct {
	without int
	bodies  []string
}

func (s *scarce) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	s.bodies = append(s.bodies, string(body))
	if len(s.bodies) <= s.without {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestNoToolIsBlamedForWantOfDescriptors: the model would be told that a tool
// is broken which was never asked.
func TestNoToolIsBlamedForWantOfDescriptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for without, want := range map[int]int{0: 1, 3: 4, 1000: 1 + patience} {
			base := &scarce{without: without}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://tool.example", bytes.NewReader([]byte("{}")))
			if err != nil {
				t.Fatal(err)
			}
			_, err = patient{base}.RoundTrip(req)
			if len(base.bodies) != want || strings.Join(base.bodies, "") != strings.Repeat("{}", want) {
				t.Errorf("tried with %q, want %d times", base.bodies, want)
			}
			if safehttp.Exhausted(err) != (without > patience) {
				t.Errorf("without %d it is %v", without, err)
			}
		}
	})
}
