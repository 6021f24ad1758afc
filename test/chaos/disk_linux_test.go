package chaos

import (
	"testing"

	"golang.org/x/sys/unix"
)

// fullDisk limits the size of the process's files to their current size. Further writes
// fail as on a full disk, without root privileges.
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
