package program

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel end the command when we are killed before we
// could do it ourselves. Call it before the command starts.
func EndWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
