// Package durable makes what was written survive a loss of power.
package durable

import (
	"errors"
	"os"
	"runtime"
)

// Folder makes the entries of a folder durable: a file that was synced may have
// no name otherwise.
func Folder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // which has no such thing
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
