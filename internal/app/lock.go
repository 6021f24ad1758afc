package app

import (
	"fmt"
	"path/filepath"
)

// lockData makes sure that one server runs on a data folder: the embedded
// database's caches and queues are one process's. The lock goes with the
// process, however it ends.
func lockData(folder string) (release func(), err error) {
	return lockFile(filepath.Join(folder, "serve.lock"),
		fmt.Errorf("another turnpike serve is running on %s, or a move; stop it, or choose another folder with --data", folder))
}

// lockRekey makes sure that one changes the master key of a data folder: of two
// at once, one would put its new key in the place of the other's.
func lockRekey(folder string) (release func(), err error) {
	return lockFile(filepath.Join(folder, "rekey.lock"), fmt.Errorf("another turnpike rekey is at work on %s; wait for it", folder))
}
