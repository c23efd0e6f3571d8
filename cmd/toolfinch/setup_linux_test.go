package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

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
			inside, outside := must.Terminal(t)
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
