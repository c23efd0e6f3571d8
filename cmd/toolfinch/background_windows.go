package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// inBackground gives a command a hidden console, which its servers inherit, and a process group of its own, so that it outlives its agent's.
func inBackground(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW}
}
