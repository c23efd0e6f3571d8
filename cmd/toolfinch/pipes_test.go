//go:build unix

package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"toolfinch/internal/await"
)

// Where toolfinch is killed, servers get the end of their standard input, of which some take no
// notice. On Linux they are told to end all the same.
func TestServersEndWithAToolfinchThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process of the end of its parent")
	}
	t.Parallel()
	h := newPlainHouse(t, nil)
	up := filepath.Join(h.home, "up")
	h.configure(t, map[string]any{"deaf": map[string]any{"command": "sh", "args": []string{"-c", "touch " + up + "; exec sleep 600"}}})
	cmd := exec.Command(program(t), "serve", "--config", h.config, "--port", "0")
	cmd.Env = h.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return isThere(up) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the test's end waits for the server
}

// An agent that leaves closes the pipes of what it has started in any order. That ends a proxy as
// it should end, with its servers, and not by a signal at the next line of the log.
func TestPipesThatNobodyReads(t *testing.T) {
	t.Parallel()
	for _, closed := range []string{"standard error", "standard output"} {
		t.Run(closed, func(t *testing.T) {
			h := newPlainHouse(t, nil)
			cmd := exec.Command(program(t), "serve", "--config", h.config)
			cmd.Env = h.env
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			errors, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ask := func(id int, method, params string) {
				if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
					t.Fatal(err)
				}
			}
			lines := bufio.NewScanner(out)
			answer := func(id int) string {
				for lines.Scan() {
					var message struct{ ID int }
					if err := json.Unmarshal(lines.Bytes(), &message); err == nil && message.ID == id {
						return lines.Text()
					}
				}
				t.Fatalf("request %d has no answer: %v", id, lines.Err())
				return ""
			}
			ask(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"leaving","version":"1"}}`)
			answer(1)
			if closed == "standard error" {
				if err := errors.Close(); err != nil {
					t.Fatal(err)
				}
				for id := range 3 { // each is logged
					ask(id+2, "tools/call", `{"name":"call_tool","arguments":{"name":"math_evaluate","arguments":{"expression":"1+2"}}}`)
					if got := answer(id + 2); !strings.Contains(got, "3") {
						t.Errorf("math_evaluate answers %s", got)
					}
				}
				in.Close()
			} else {
				if err := out.Close(); err != nil {
					t.Fatal(err)
				}
				ask(2, "ping", `{}`)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			if err := await.Value(t, ended); err != nil {
				t.Errorf("toolfinch ended with %v", err)
			}
		})
	}
}
