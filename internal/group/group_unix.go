//go:build unix

package group

import (
	"os/exec"
	"syscall"
)

// Own gives a command its own session and process group. Call it before the start.
func Own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// Terminate asks the process group of a started command to end.
func Terminate(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// Kill ends the process group of a started command at once.
func Kill(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
