//go:build unix

package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServeNotifiesSystemd(t *testing.T) {
	l := dataDirectory(t)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", socket.LocalAddr().String())
	t.Setenv("WATCHDOG_USEC", "20000")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	context.AfterFunc(ctx, func() { socket.Close() })
	expect := func(states ...string) {
		t.Helper()
		for _, want := range states {
			for got := ""; got != want; {
				buffer := make([]byte, 100)
				n, err := socket.Read(buffer)
				if err != nil {
					t.Fatalf("no %s: %v", want, err)
				}
				got = string(buffer[:n])
			}
		}
	}
	code := make(chan int, 1)
	var out, errOut strings.Builder
	go func() {
		code <- Main([]string{"serve", "--listen", "127.0.0.1:0", "--data", l.Data}, strings.NewReader(""), &out, &errOut)
	}()
	expect("READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect("STOPPING=1")
	if got := <-code; got != 0 {
		t.Fatalf("got exit code %d, want 0: %s%s", got, &out, &errOut)
	}
}
