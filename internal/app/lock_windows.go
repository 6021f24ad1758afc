package app

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks a file exclusively, or returns busy.
func lockFile(path string, busy error) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err != nil {
		f.Close()
		return nil, busy
	}
	return func() { f.Close() }, nil
}

// Windows can't lock directories: don't use a database while you move it.
func shareDirectory(string) (release func(), err error) { return func() {}, nil }
func claimDirectory(string) (release func(), err error) { return func() {}, nil }
