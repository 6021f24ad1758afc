//go:build unix

package app

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockData makes sure that one server runs on a data folder: the embedded
// database's caches and queues are one process's. The lock goes with the
// process, however it ends.
func lockData(folder string) (release func(), err error) {
	path := filepath.Join(folder, "serve.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another turnpike serve is running on %s; stop it, or choose another folder with --data", folder)
	}
	return func() { f.Close() }, nil
}
