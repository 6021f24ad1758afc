package app

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// fullListener has no file descriptors for a while.
type fullListener struct {
	net.Listener
	times int
}

func (l *fullListener) Accept() (net.Conn, error) {
	if l.times--; l.times < 0 {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

func TestExhaustedDescriptorsAreLoggedWithAdvice(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logs := newServerLog(slog.New(slog.NewTextHandler(&out, nil)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = (&http.Server{ErrorLog: logs}).Serve(&fullListener{l, 2})
	logs.Print("http: TLS handshake error from 192.0.2.1:4711: EOF")
	logs.Print("http: Accept error: accept tcp: software caused connection abort; retrying in 5ms")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("logged was %q", lines)
	}
	for _, line := range lines {
		// Without the delay the lines are equal, and the log suppresses
		// repetitions.
		if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "LimitNOFILE") || !strings.Contains(line, "too many open files") || strings.Contains(line, "retrying") {
			t.Errorf("logged was %s", line)
		}
	}
}
