// Package hook runs the owner's commands: bounded in time and output, in a
// process group of their own. It does not decide when one runs.
package hook

import (
	"cmp"
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
	Timeout time.Duration // of the run, then the whole group is killed; 0 means 5s
}

// Run executes the command with env on top of the proxy's environment and returns the beginning of its
// output. The error says how it ended.
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

// runGroup runs the command of build in a process group of its own, and kills the whole group after its
// end, after the timeout (0: 5s), or when ctx ends; the error is then the cause of ctx.
func runGroup(ctx context.Context, timeout time.Duration, build func(context.Context) *exec.Cmd) error {
	timeout = cmp.Or(timeout, 5*time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, timeoutError(timeout))
	defer cancel()

	cmd := build(ctx)
	group.Own(cmd)
	cmd.Cancel = func() error { return group.Kill(cmd) }
	cmd.WaitDelay = time.Second // a grandchild outside of the group may hold the pipe
	err := cmd.Run()
	if cmd.Process != nil {
		_ = group.Kill(cmd) // its background processes end with it
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// timeoutError is the error of a command past its timeout.
type timeoutError time.Duration

func (e timeoutError) Error() string { return "killed after " + time.Duration(e).String() }
