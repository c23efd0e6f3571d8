// Package hook runs the owner's commands: bounded in time and output, in a
// process group of their own. It does not decide when one runs.
package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"toolfinch/internal/group"
)

// Command is one shell command line of the configuration.
type Command struct {
	Line    string        // run by `sh -c` (`cmd /C` on Windows)
	Timeout time.Duration // the whole group is killed after it; 0 means 5s
}

// Run executes the command with env on top of the proxy's environment and
// returns the beginning of what it printed. The error says how it ended.
func (c Command) Run(ctx context.Context, env []string) (output []byte, err error) {
	var head group.Head
	err = runGroup(ctx, c.Timeout, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, shell[0], shell[1], c.Line)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = &head, &head
		return cmd
	})
	if err != nil {
		return head.Bytes(), fmt.Errorf("hook: %w", err)
	}
	return head.Bytes(), nil
}

// runGroup runs the command that build makes, in a process group of its own,
// and kills the whole group once it has ended, after the timeout (0: 5s), or
// when ctx ends; then the error is the cause of that.
func runGroup(ctx context.Context, timeout time.Duration, build func(context.Context) *exec.Cmd) error {
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, timeoutError(timeout))
	defer cancel()

	cmd := build(ctx)
	group.Own(cmd)
	cmd.Cancel = func() error { return group.Kill(cmd) }
	cmd.WaitDelay = time.Second // a grandchild that left the group may hold the pipe
	err := cmd.Run()
	if cmd.Process != nil {
		_ = group.Kill(cmd) // what it left running in the background ends with it
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// timeoutError is a command that took longer than this.
type timeoutError time.Duration

func (e timeoutError) Error() string { return "killed after " + time.Duration(e).String() }
