package safehttp

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

func TestExhaustedDescriptorsAreRecognized(t *testing.T) {
	t.Parallel()
	dial := func(call string, err error) error {
		return &failure{stage: connecting, err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(call, err)}}
	}
	const explanation = "no connection could be made: this server has too many open files"
	for _, c := range []struct {
		err     error
		ours    bool
		class   string
		explain string
	}{
		{dial("socket", syscall.EMFILE), true, "connect", explanation},
		{&url.Error{Op: "Post", Err: dial("socket", syscall.ENFILE)}, true, "connect", explanation},
		{fmt.Errorf("call: %w", dial("socket", syscall.ENOBUFS)), true, "connect", explanation},
		// A lookup keeps only the message.
		{&failure{stage: resolving, err: &net.DNSError{Name: "example.com", Err: "dial udp 127.0.0.53:53: socket: too many open files", IsTemporary: true}}, true, "connect", explanation},
		{&net.DNSError{Name: "example.com", Err: "server misbehaving"}, false, "dns", "the name example.com could not be looked up"},
		{dial("connect", syscall.ECONNREFUSED), false, "connect", "the server refused the connection"},
		{errors.New("an answer about too many open files"), false, "other", "the request failed"},
		{nil, false, "", ""},
	} {
		if Exhausted(c.err) != c.ours || Class(c.err) != c.class || Explain(c.err) != c.explain {
			t.Errorf("ours %v, Class %q and Explain %q; the error is %v", Exhausted(c.err), Class(c.err), Explain(c.err), c.err)
		}
	}
}
