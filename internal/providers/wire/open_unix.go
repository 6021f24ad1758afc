//go:build unix

package wire

import (
	"net"
	"syscall"
)

// canTellClosed: a socket can be asked whether the other side has closed it.
const canTellClosed = true

// stillOpen reports whether nothing has come on a connection that nobody asks:
// neither its end, nor bytes that would be taken for the next answer. One on
// which something has cannot be used any more.
func stillOpen(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:])
		nothing = err == syscall.EAGAIN
		return true // whatever came, it is not waited for
	})
	return nothing && err == nil
}
