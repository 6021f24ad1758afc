//go:build !linux

package chaos

import "testing"

// fullDisk needs to change another process's limits.
func fullDisk(t *testing.T, _ int) outage {
	t.Helper()
	t.Skip("a full disk can be made on Linux only (prlimit): this guarantee is not checked here")
	return outage{}
}
