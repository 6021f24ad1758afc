package app

import (
	"fmt"
	"path/filepath"
)

// lockData ensures that only one server uses a data directory: the embedded
// database's caches and queues belong to one process. The lock ends with the process.
func lockData(folder string) (release func(), err error) {
	return lockFile(filepath.Join(folder, "serve.lock"),
		fmt.Errorf("another turnpike serve or move is running on %s; stop it, or choose another directory with --data", folder))
}

// lockRekey ensures that only one command changes the master key of a data
// directory. Otherwise one could replace the other's new key.
func lockRekey(folder string) (release func(), err error) {
	return lockFile(filepath.Join(folder, "rekey.lock"), fmt.Errorf("another turnpike rekey is running on %s; wait until it ends", folder))
}
