package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// openTerminal returns the two ends of a pseudo-terminal: that of the program, and that of the person.
func openTerminal(t *testing.T) (inside, outside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals:", err)
	}
	t.Cleanup(func() { outside.Close() })
	number, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("there are no pseudo-terminals:", err)
	}
	t.Cleanup(func() { inside.Close() })
	return inside, outside
}

// An interrupt and the end of input at the second question write nothing: neither is a no, which would write.
func TestSetupWritesNothingWithoutAnAnswer(t *testing.T) {
	interrupted := errors.New("interrupted")
	for name, test := range map[string]struct {
		typed     string
		interrupt bool
		want      error
	}{
		"an interrupt":     {interrupt: true, want: interrupted},
		"the end of input": {typed: "\x04", want: errNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprintf(`{"mcpServers": {%s, %s}}`, works, fails)
			home, file := aHome(t, before)
			inside, outside := openTerminal(t)
			ctx, cancel := context.WithCancelCause(await.Program(t))
			defer cancel(nil)
			out := &await.Log{}
			root := newRoot("")
			root.SetArgs([]string{"setup", "cursor"})
			root.SetIn(inside)
			root.SetOut(out)
			root.SetErr(out)
			done := make(chan error, 1)
			go func() { done <- root.ExecuteContext(ctx) }()
			asked := func(question string) {
				await.Contains(t, out.String, question+" [y/N] ")
			}
			asked("Do this?")
			must.Get(outside.WriteString("y\n"))(t)
			asked("Move all the same, disabled?")
			must.Get(outside.WriteString(test.typed))(t)
			if test.interrupt {
				cancel(interrupted)
			}
			if err := await.Value(t, done); !errors.Is(err, test.want) {
				t.Errorf("it ended with %v, want %v", err, test.want)
			}
			if got := must.Read(t, file); got != before {
				t.Errorf("the client's file is\n%s", got)
			}
			if _, err := os.Stat(filepath.Join(home, "config")); err == nil {
				t.Error("the folder of the configuration is left")
			}
			if strings.Contains(out.String(), "wrote") {
				t.Errorf("it says\n%s", out)
			}
		})
	}
}
