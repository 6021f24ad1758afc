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

// TestClosedTerminalStopsTheServerInGoodOrder is not parallel: a signal is the
// whole process's.
func TestClosedTerminalStopsTheServerInGoodOrder(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("started to outlive its terminal")
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
			t.Errorf("exit code %d", got)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
}
