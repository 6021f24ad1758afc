package program

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel kill the command if this process dies before it can.
// Call it before the command starts.
func EndWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
