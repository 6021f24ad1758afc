//go:build !linux

package program

import "os/exec"

// EndWithParent has no counterpart here: cleaning up is all there is.
func EndWithParent(*exec.Cmd) {}
