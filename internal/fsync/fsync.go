// Package fsync makes directory entries survive a power failure.
package fsync

import (
	"errors"
	"os"
	"runtime"
)

// Directory syncs a directory. Without it, a file that was synced itself may
// lose its name in a power failure.
func Directory(path string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows can't sync directories
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
