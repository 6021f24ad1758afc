package program

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end the server when the test is killed before
// it could clean up.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
