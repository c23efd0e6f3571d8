// Package hook runs the owner's shell commands: bounded in time and output,
// in a process group of their own. It does not decide when one runs.
package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Command is one shell command line of the configuration.
type Command struct {
	Line    string        // run by `sh -c` (`cmd /C` on Windows)
	Timeout time.Duration // the whole group is killed after it; 0 means 5s
}

// maxOutput is how much of a command's output is kept, in bytes.
const maxOutput = 4 << 10

// Run executes the command with env on top of the proxy's environment and
// returns the beginning of what it printed. The error says how it ended.
func (c Command) Run(ctx context.Context, env []string) (output []byte, err error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("killed after %s", timeout))
	defer cancel()

	cmd := shell(ctx, c.Line)
	cmd.Env = append(os.Environ(), env...)
	var head head
	cmd.Stdout, cmd.Stderr = &head, &head
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = time.Second // a grandchild that left the group may hold the pipe
	err = cmd.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		_ = killGroup(cmd) // what it left running in the background ends with it
		return head.b, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return head.b, fmt.Errorf("hook: %w", err)
}

// head keeps the first maxOutput bytes.
type head struct{ b []byte }

func (h *head) Write(p []byte) (int, error) {
	if room := maxOutput - len(h.b); room > 0 {
		h.b = append(h.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
