//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inBackground gives a command a session of its own, so that it outlives its agent's terminal and process group.
func inBackground(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
