//go:build unix

package cli

import "syscall"

// maxOpenFiles returns the limit of this process. Go raises the soft limit to
// the hard limit at startup.
func maxOpenFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
