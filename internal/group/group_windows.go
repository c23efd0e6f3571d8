package group

import "os/exec"

// Own does nothing here: Kill ends one process.
func Own(*exec.Cmd) {}

// Terminate ends the process of a started command at once.
func Terminate(cmd *exec.Cmd) error { return cmd.Process.Kill() }

// Kill ends the process of a started command at once, but not its children.
func Kill(cmd *exec.Cmd) error { return cmd.Process.Kill() }
