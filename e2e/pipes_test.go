//go:build unix

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
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
	must.Do(t, cmd.Start())
	await.True(t, func() bool { return isThere(up) })
	must.Do(t, cmd.Process.Kill())
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
			errors := must.Get(cmd.StderrPipe())(t)
			c := speakWith(t, cmd)
			c.ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"leaving","version":"1"}}`)
			if closed == "standard error" {
				must.Do(t, errors.Close())
				for range 3 { // each is logged
					if got := c.ask(t, "tools/call", `{"name":"call_tool","arguments":{"name":"math_evaluate","arguments":{"expression":"1+2"}}}`); !strings.Contains(string(got), "3") {
						t.Errorf("math_evaluate answers %s", got)
					}
				}
				c.in.Close()
			} else {
				must.Do(t, c.out.Close())
				c.send(t, "ping", `{}`)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			if err := await.Value(t, ended); err != nil {
				t.Errorf("toolfinch ended with %v", err)
			}
		})
	}
}

// speaker speaks MCP with a command, line by line and byte for byte.
type speaker struct {
	in    io.WriteCloser
	out   io.ReadCloser
	lines *bufio.Reader
	sent  int // requests
}

// speakWith starts the command.
func speakWith(t *testing.T, cmd *exec.Cmd) *speaker {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, cmd.Start())
	return &speaker{in: in, out: out, lines: bufio.NewReader(out)}
}

// send makes a request, whose ID is how many there were.
func (s *speaker) send(t *testing.T, method, params string) {
	t.Helper()
	s.sent++
	must.Get(fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.sent, method, params))(t)
}

// ask makes a request and returns the message that answers it.
func (s *speaker) ask(t *testing.T, method, params string) json.RawMessage {
	t.Helper()
	s.send(t, method, params)
	for {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s is not answered: %v", method, err)
		}
		var message struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(line, &message) == nil && message.Method == "" && string(message.ID) == fmt.Sprint(s.sent) {
			return line
		}
	}
}
