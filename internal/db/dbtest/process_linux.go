package dbtest

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel stop the server if the supervisor is killed.
// The caller must stay on its thread.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// adoptOrphans makes this process the parent of a killed server's sessions, so
// that it can wait for them. In many containers process 1 doesn't reap them,
// and they stay as zombies.
func adoptOrphans() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// reapOrphans waits until no child is left. No command may be running.
func reapOrphans(patience time.Duration) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR || pid > 0:
		case err != nil: // ECHILD
			return
		default:
			time.Sleep(5 * time.Millisecond)
		}
	}
}
