//go:build !linux

package chaos

import "testing"

// fullDisk is skipped: this platform can't change the limits of another process.
func fullDisk(t *testing.T, _ int) outage {
	t.Helper()
	t.Skip("a full disk can be made on Linux only (prlimit): this guarantee is not checked here")
	return outage{}
}
