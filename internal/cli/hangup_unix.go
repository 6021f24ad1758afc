//go:build unix

package cli

import "os"

// hasTerminal reports whether the process belongs to a terminal that is open.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
