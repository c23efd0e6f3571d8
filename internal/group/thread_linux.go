package group

import (
	"os/exec"
	"syscall"
)

// EndWithThread makes a command get the signal when the thread that starts it ends, as all threads do when this
// program is killed. Call it after Own and before the start. Only Linux has this.
func EndWithThread(cmd *exec.Cmd, signal syscall.Signal) { cmd.SysProcAttr.Pdeathsig = signal }
