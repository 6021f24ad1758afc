//go:build unix

package app

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile holds a file alone, or returns busy.
func lockFile(path string, busy error) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, busy
	}
	return func() { f.Close() }, nil
}

// useFolder holds a data folder together with others, and ownFolder alone: while
// everything is moved away nobody may begin to change it. What cannot be locked,
// as on some network drives, is used all the same.
func useFolder(folder string) (release func(), err error) {
	return lockFolder(folder, syscall.LOCK_SH, "a turnpike move is at work on %s; wait for it")
}

func ownFolder(folder string) (release func(), err error) {
	return lockFolder(folder, syscall.LOCK_EX, "a turnpike command is at work on %s; wait for it")
}

func lockFolder(folder string, how int, busy string) (release func(), err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf(busy, folder)
	}
	return func() { f.Close() }, nil
}
