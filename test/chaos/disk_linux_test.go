package chaos

import (
	"testing"

	"golang.org/x/sys/unix"
)

// fullDisk makes every file that the process writes end where it is: writes
// beyond fail, as on a disk that is full, and nobody needs to be root for it.
func fullDisk(t *testing.T, pid int) outage {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &before); err != nil {
		t.Fatal(err)
	}
	return outage{
		begin: func() error { return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: before.Max}, nil) },
		end:   func() error { return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &before, nil) },
	}
}
