//go:build unix

package cli

import "syscall"

// openFiles is how many files a process may have open. Go has raised the soft
// limit to the hard one when it started, as it does for the server.
func openFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
