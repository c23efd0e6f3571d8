package group

import (
	"os/exec"
	"syscall"
)

// EndWithThread makes a command, after Own and before its start, get the signal when the thread that
// starts it ends: all threads end when this program is killed. Only Linux has this.
func EndWithThread(cmd *exec.Cmd, signal syscall.Signal) { cmd.SysProcAttr.Pdeathsig = signal }
