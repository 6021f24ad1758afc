package app

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile holds a file alone, or returns busy.
func lockFile(path string, busy error) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err != nil {
		f.Close()
		return nil, busy
	}
	return func() { f.Close() }, nil
}

// A folder cannot be locked here: whoever moves a database takes care.
func useFolder(string) (release func(), err error) { return func() {}, nil }
func ownFolder(string) (release func(), err error) { return func() {}, nil }
