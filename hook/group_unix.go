//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// shell runs a command line.
var shell = [2]string{"sh", "-c"}

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
