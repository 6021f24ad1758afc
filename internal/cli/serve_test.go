package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestListenErrorsIncludeAdvice(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, inUse := net.Listen("tcp", taken.Addr().String())
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"in use":        {fmt.Errorf("listen: %w", inUse), "stop the process that uses it"},
		"a low port":    {&net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EACCES)}, "CAP_NET_BIND_SERVICE"},
		"another error": {&os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, ""},
	} {
		got := withListenAdvice(c.err)
		if !errors.Is(got, c.err) || (got.Error() != c.err.Error()) != (c.want != "") || !strings.Contains(got.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, got, c.want)
		}
	}
}
