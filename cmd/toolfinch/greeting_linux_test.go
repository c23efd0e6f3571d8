package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"toolfinch/internal/await"
)

// openTerminal returns the two ends of a pseudo-terminal of 100 columns: what a program has,
// and what a person sees of it.
func openTerminal(t *testing.T) (inside, outside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals:", err)
	}
	t.Cleanup(func() { outside.Close() })
	fd := int(outside.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100})
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

// A person at a terminal is told what is served and what to do next; an agent, or what
// reads the log, is not.
func TestServeOnATerminal(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "toolfinch.yaml")
	text := "data_dir: data\ntool_views:\n  small: {tools: {clock: {current_time: {}}}}\nmcp_servers:\n  clock: {command: toolfinch, args: [demo-server, clock, demo]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("toolfinch")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, args  string
		typed       bool // standard input is the terminal, too
		wants, nots []string
	}{
		{"HTTP", "--port 0", false, []string{
			`toolfinch \S+  toolfinch.yaml`, `(?m)^  serves +http://127\.0\.0\.1:\d+/mcp +the views together`, `(?m)^ +http://127\.0\.0\.1:\d+/mcp/small +the view small`,
			`(?m)^  servers +1 server +clock`, `(?m)^  tools +`, `(?m)^  toolfinch connect +`, `(?m)^  toolfinch status --watch +`, `(?m)^  Ctrl-C +ends it`,
		}, []string{"msg=serving", "msg=listening"}},
		{"stdio, by a person", "", true, []string{`(?m)^  serves +standard input and output`, `An MCP client is waited for`, `toolfinch serve --port 8080`}, []string{"msg=serving", "/mcp"}},
		{"stdio, by an agent that shows the log", "", false, []string{"msg=serving"}, []string{"Ctrl-C"}},
		{"for what reads the log", "--port 0 --log-format json", true, []string{`"msg":"listening"`}, []string{"Ctrl-C"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inside, outside := openTerminal(t)
			seen := &await.Log{}
			go io.Copy(seen, outside)
			ctx, cancel := context.WithTimeout(t.Context(), await.Bound)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, append([]string{"serve", "--config", config}, strings.Fields(test.args)...)...)
			cmd.Dir, cmd.Stderr = dir, inside
			quiet, agent, err := os.Pipe() // an agent that says nothing
			if err != nil {
				t.Fatal(err)
			}
			defer agent.Close()
			defer quiet.Close()
			cmd.Stdin = quiet
			if test.typed {
				cmd.Stdin = inside
			}
			cmd.WaitDelay = await.Bound
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await.Nil(t, func() error {
				for _, want := range test.wants {
					if !regexp.MustCompile(want).MatchString(plainly(seen)) {
						return fmt.Errorf("%s is not shown:\n%s", want, plainly(seen))
					}
				}
				return nil
			})
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			for _, not := range test.nots {
				if strings.Contains(plainly(seen), not) {
					t.Errorf("%s is shown:\n%s", not, plainly(seen))
				}
			}
		})
	}
}

// plainly is what a terminal shows, without colours.
func plainly(seen *await.Log) string {
	return regexp.MustCompile(`\x1b\[[0-9;]*m|\r`).ReplaceAllString(seen.String(), "")
}
