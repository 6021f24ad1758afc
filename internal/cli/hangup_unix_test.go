//go:build unix

package cli

import (
	"bufio"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Not parallel, because the whole process gets the signal.
func TestSIGHUPStopsTheServerGracefully(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored")
	}
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Main([]string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--log-level", "error"}, strings.NewReader(""), w, io.Discard)
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || !strings.Contains(line, "is listening on") {
		t.Fatal(line, err)
	}
	go io.Copy(io.Discard, r)
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-code:
		if got != 0 {
			t.Errorf("got exit code %d, want 0", got)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the server did not stop")
	}
}
