package safehttp

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// MoreDescriptors is what an operator does about Exhausted.
const MoreDescriptors = "raise LimitNOFILE of its service, or ulimit -n"

// wants are what a machine reports when it has no room for another connection:
// no descriptors for the process, none for any process, no buffers.
var wants = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS}

// Exhausted reports that a connection failed for want of file descriptors here.
// Whoever was to be called knows nothing of it, and is not to blame.
func Exhausted(err error) bool {
	var lookup *net.DNSError
	named := errors.As(err, &lookup)
	for _, want := range wants {
		if errors.Is(err, want) || named && strings.Contains(lookup.Err, want.Error()) { // a lookup keeps the words alone
			return true
		}
	}
	return false
}
