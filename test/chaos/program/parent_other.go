//go:build !linux

package program

import "os/exec"

// EndWithParent does nothing on this platform.
func EndWithParent(*exec.Cmd) {}
