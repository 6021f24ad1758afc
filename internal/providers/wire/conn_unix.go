//go:build unix

package wire

import "golang.org/x/sys/unix"

// isEmpty reports whether a read has to wait: nothing has arrived, not even the end.
func (c *conn) isEmpty() bool {
	empty := true
	_ = c.raw.Control(func(fd uintptr) {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		empty = err != nil || ready == 0
	})
	return empty
}
