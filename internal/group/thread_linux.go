package group

import (
	"os/exec"
	"syscall"
)

// EndWithThread has a command that Own was given, and that is not started yet, get the signal when the
// thread that starts it ends: all threads do when this program is killed. Only Linux has this.
func EndWithThread(cmd *exec.Cmd, signal syscall.Signal) { cmd.SysProcAttr.Pdeathsig = signal }
