//go:build !linux

package dbtest

import (
	"syscall"
	"time"
)

// dieWithParent does nothing here. Only a SIGKILL of the supervisor leaves a
// server running.
func dieWithParent(*syscall.SysProcAttr) {}

func adoptOrphans() error { return nil }

func reapOrphans(time.Duration) {}
