//go:build unix

package app

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile locks a file exclusively, or returns busy.
func lockFile(path string, busy error) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, busy
	}
	return func() { f.Close() }, nil
}

// shareDirectory locks a data directory together with others, and claimDirectory
// exclusively, so that nothing changes during a move. Directories that can't be
// locked, such as some network drives, are used without a lock.
func shareDirectory(directory string) (release func(), err error) {
	return lockDirectory(directory, syscall.LOCK_SH, "a turnpike move is running on %s; wait until it ends")
}

func claimDirectory(directory string) (release func(), err error) {
	return lockDirectory(directory, syscall.LOCK_EX, "a turnpike command is running on %s; wait until it ends")
}

func lockDirectory(directory string, how int, busy string) (release func(), err error) {
	f, err := os.Open(directory)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf(busy, directory)
	}
	return func() { f.Close() }, nil
}
