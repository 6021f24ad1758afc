//go:build !linux

package dbtest

import (
	"syscall"
	"time"
)

// dieWithParent does nothing here: only a SIGKILL to the supervisor itself
// leaves a server behind.
func dieWithParent(*syscall.SysProcAttr) {}

func adoptOrphans() error { return nil }

func reapOrphans(time.Duration) {}
