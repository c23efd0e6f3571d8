package hook

import (
	"context"
	"os/exec"
)

func shell(ctx context.Context, line string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", line)
}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
