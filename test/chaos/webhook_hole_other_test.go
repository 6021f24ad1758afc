//go:build !linux

package chaos

import "testing"

// blackHole returns the address of a host that accepts connections and never responds.
// This platform can't drop packets.
func blackHole(t *testing.T) string {
	t.Helper()
	return silentHost(t)
}
