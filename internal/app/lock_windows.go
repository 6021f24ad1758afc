package app

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// lockData makes sure that one server runs on a data folder; see lock_unix.go.
func lockData(folder string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(folder, "serve.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("another turnpike serve is running on %s, or a move; stop it, or choose another folder with --data", folder)
	}
	return func() { f.Close() }, nil
}

// A folder cannot be locked here: whoever moves a database takes care.
func useFolder(string) (release func(), err error) { return func() {}, nil }
func ownFolder(string) (release func(), err error) { return func() {}, nil }
