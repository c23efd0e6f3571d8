//go:build unix

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/web"
)

// stdioAgent is an agent that has started toolfinch, and speaks the legacy era.
type stdioAgent struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser

	mu      sync.Mutex // guards the fields below
	last    int
	answers map[int]chan json.RawMessage
	gone    bool // toolfinch has closed its output
}

// agent starts toolfinch as an agent does. extra is for its environment.
func (h house) agent(t testing.TB, name string, extra ...string) *stdioAgent {
	t.Helper()
	return h.agentWith(t, name, "", extra...)
}

// agentWith is agent, with a root; "" for an agent that cannot be asked for roots.
func (h house) agentWith(t testing.TB, name, root string, extra ...string) *stdioAgent {
	t.Helper()
	cmd := exec.Command(program(t), "serve", "--config", h.config)
	cmd.Env, cmd.Stderr = append(slices.Clone(h.env), extra...), newLog(t, name)
	a := &stdioAgent{cmd: cmd, answers: map[int]chan json.RawMessage{}}
	a.in = must.Get(cmd.StdinPipe())(t)
	a.out = must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() { a.in.Close(); _ = cmd.Wait() })
	go func() {
		for lines := bufio.NewReader(a.out); ; {
			line, err := lines.ReadBytes('\n')
			if rawjson.Text(rawjson.Member(line, "method")) == "roots/list" {
				_, _ = fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":%q}]}}`+"\n", rawjson.Member(line, "id"), "file://"+root) // fails once the agent has left
			}
			a.mu.Lock()
			if id, ok := rawjson.Int(rawjson.Member(line, "id")); ok && rawjson.Member(line, "method") == nil && a.answers[id] != nil {
				a.answers[id] <- line
			}
			if a.gone = err != nil; a.gone {
				for _, answer := range a.answers {
					close(answer)
				}
				a.answers = nil
			}
			a.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	capabilities := `{}`
	if root != "" {
		capabilities = `{"roots":{}}`
	}
	must.Get(a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":`+capabilities+`,"clientInfo":{"name":"`+name+`","version":"1"}}`)())(t)
	must.Get(io.WriteString(a.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"))(t)
	return a
}

// ask sends a request; wait returns the result of its answer.
func (a *stdioAgent) ask(method, params string) (wait func() (json.RawMessage, error)) {
	a.mu.Lock()
	a.last++
	id, answer := a.last, make(chan json.RawMessage, 1)
	if a.gone {
		close(answer)
	} else {
		a.answers[id] = answer
	}
	a.mu.Unlock()
	_, err := fmt.Fprintf(a.in, `{"method":%q,"params":%s,"jsonrpc":"2.0","id":%d}`+"\n", method, params, id)
	return func() (json.RawMessage, error) {
		if err != nil {
			return nil, err
		}
		line, ok := <-answer
		if !ok {
			return nil, fmt.Errorf("%s is never answered", method)
		}
		if refused := rawjson.Member(line, "error"); refused != nil {
			return nil, fmt.Errorf("%s", refused)
		}
		return rawjson.Member(line, "result"), nil
	}
}

// call calls a tool through call_tool.
func (a *stdioAgent) call(name, arguments string) (wait func() (json.RawMessage, error)) {
	return a.ask("tools/call", `{"name":"call_tool","arguments":{"name":"`+name+`","arguments":`+arguments+`}}`)
}

// shared returns the status of the toolfinches in the background.
func (h house) shared(t *testing.T) []web.Status {
	t.Helper()
	out, _, _ := h.run(t, "", "status", "--json")
	var found struct{ Running []web.Status }
	must.Do(t, json.Unmarshal([]byte(out), &found))
	return found.Running
}

// sharing is a house whose agents share a toolfinch, until the last one leaves.
func sharing(t testing.TB, more map[string]any) house {
	t.Helper()
	settings := map[string]any{"shared": true, "keep_running": "1ms"}
	for key, value := range more {
		settings[key] = value
	}
	return newHouse(t, map[string]server{
		"everything": script(t, module(t, "@modelcontextprotocol/server-everything/dist/index.js")),
		"files":      script(t, module(t, "@modelcontextprotocol/server-filesystem/dist/index.js")),
	}, settings).sharing()
}

// What a relay adds to a message and its answer: compare both, and take the median of some -count.
func BenchmarkRelay(b *testing.B) {
	for name, shared := range map[string]string{"alone": "MCPPROXY_SHARED=false", "relay": "MCPPROXY_SHARED=true"} {
		b.Run(name, func(b *testing.B) {
			a := sharing(b, nil).agent(b, "ada", shared)
			for b.Loop() {
				must.Get(a.ask("ping", "{}")())(b)
			}
		})
	}
}

// Agents get one copy of each server, the owner sees the calls of all, and what one is asked the other is not.
func TestAgentsShareOneToolfinch(t *testing.T) {
	t.Parallel()
	h := sharing(t, nil)
	var agents []*stdioAgent
	for _, name := range []string{"ada", "bob", "cy"} {
		agents = append(agents, h.agent(t, name))
	}
	for _, a := range agents {
		if got := must.Get(a.call("everything_echo", `{"message":"hello"}`)())(t); !strings.Contains(string(got), "Echo: hello") {
			t.Fatalf("echo answers %s", got)
		}
	}
	all := h.shared(t)
	if len(all) != 1 || !all[0].Shared || all[0].Sessions.All != 3 || all[0].Calls.Last[0].Calls != 3 {
		t.Fatalf("status says %+v", all)
	}
	for _, s := range all[0].Servers {
		if s.PID == 0 {
			t.Errorf("%s has no process", s.Name)
		}
	}
	servers := 0
	for _, p := range processes() {
		if strings.Contains(p.command, h.files) || strings.Contains(p.command, "server-everything") && strings.Contains(environmentOf(p.pid), h.home) {
			servers++
		}
	}
	if servers != 2 {
		t.Errorf("%d server processes run for three agents, want 2", servers)
	}
	if link, _ := h.said(t, "ui", "--no-browser"); !strings.HasPrefix(link, "http://127.0.0.1:") {
		t.Errorf("ui says %q", link)
	}
	if log, _ := h.said(t, "logs", "--lines", "1000"); strings.Count(log, `"tool called"`) != 3 {
		t.Errorf("the log has not all calls:\n%s", log)
	}
	// An agent in another environment gets another one, and the owner is told why.
	other := h.agent(t, "dee", "HTTPS_PROXY=http://127.0.0.1:1")
	must.Get(other.call("everything_echo", `{"message":"hello"}`)())(t)
	all = h.shared(t)
	if len(all) != 2 || !slices.ContainsFunc(all, func(s web.Status) bool {
		return len(s.Beside) == 1 && strings.HasSuffix(s.Beside[0], "differs in the variable HTTPS_PROXY")
	}) {
		t.Errorf("status says %+v", all)
	}
}

// Each agent has its own copy of a server that asks for roots, and sees its own roots there; other servers are shared.
func TestAgentsKeepTheirRoots(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]server{
		"files":  script(t, module(t, "@modelcontextprotocol/server-filesystem/dist/index.js")),
		"memory": script(t, module(t, "@modelcontextprotocol/server-memory/dist/index.js")),
	}, map[string]any{"shared": true, "keep_running": "1ms"}).sharing()
	roots, agents := map[string]string{"ada": t.TempDir(), "bob": t.TempDir()}, map[string]*stdioAgent{}
	for name, root := range roots {
		must.Do(t, os.WriteFile(filepath.Join(root, "note.txt"), []byte("of "+name), 0o600))
		agents[name] = h.agentWith(t, name, root)
	}
	reads := func(name, of string) bool {
		read := agents[name].call("files_read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(roots[of], "note.txt")))
		return strings.Contains(string(must.Get(read())(t)), "of "+of)
	}
	for name := range agents {
		await.True(t, func() bool { return reads(name, name) }) // the server asks for roots when its client has begun
	}
	for range 3 {
		for name, a := range agents {
			must.Get(a.call("memory_read_graph", `{}`)())(t)
			for of := range roots {
				if reads(name, of) != (of == name) {
					t.Errorf("%s reads in the root of %s: %t", name, of, of != name)
				}
			}
		}
	}
	if all := h.shared(t); len(all) != 1 || all[0].Sessions.All != 2 {
		t.Errorf("status says %+v", all)
	}
	copies := map[string]int{}
	for _, p := range processes() {
		for _, server := range []string{"server-filesystem", "server-memory"} {
			if strings.Contains(p.command, server) && strings.Contains(environmentOf(p.pid), h.home) {
				copies[server]++
			}
		}
	}
	if copies["server-filesystem"] < 2 || copies["server-memory"] != 1 {
		t.Errorf("processes of servers: %v", copies)
	}
}

func environmentOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return string(text)
}

// toldOfEnd is in the error of a call whose toolfinch has ended.
const toldOfEnd = "may or may not have been carried out"

// When a shared toolfinch is killed, every call is answered or told, and the next ones work.
func TestAKilledToolfinchIsReplaced(t *testing.T) {
	t.Parallel()
	h := sharing(t, nil)
	var agents []*stdioAgent
	for _, name := range []string{"ada", "bob", "cy"} {
		a := h.agent(t, name)
		must.Get(a.call("everything_echo", `{"message":"hello"}`)())(t)
		agents = append(agents, a)
	}
	before := h.shared(t)
	if len(before) != 1 {
		t.Fatalf("%d run", len(before))
	}
	killed := make(chan struct{})
	var load errgroup.Group
	var under sync.WaitGroup // long calls that toolfinch does not have yet
	for _, a := range agents {
		under.Add(1)
		load.Go(func() error {
			long := a.call("everything_trigger-long-running-operation", `{"duration":30,"steps":2}`)
			_, err := a.call("everything_echo", `{"message":"behind it"}`)()
			under.Done()
			if err != nil {
				return err
			}
			for told := false; !told; {
				got, err := a.call("everything_echo", `{"message":"again"}`)()
				switch {
				case err != nil && !strings.Contains(err.Error(), toldOfEnd):
					return err
				case err == nil && !strings.Contains(string(got), "Echo: again"):
					return fmt.Errorf("echo answers %s", got)
				}
				select {
				case <-killed:
					if _, err := long(); err == nil || !strings.Contains(err.Error(), toldOfEnd) {
						return fmt.Errorf("the long call is told %v", err)
					}
					told = true
				default:
				}
			}
			_, err = a.call("everything_echo", `{"message":"after"}`)()
			return err
		})
	}
	under.Wait()
	must.Do(t, syscall.Kill(before[0].PID, syscall.SIGKILL))
	close(killed)
	must.Do(t, load.Wait())
	if after := h.shared(t); len(after) != 1 || after[0].PID == before[0].PID || after[0].Sessions.All != 3 {
		t.Errorf("status says %+v", after)
	}
}

// A relay ends with its agent, and a shared toolfinch with its last relay.
func TestARelayEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	h := sharing(t, nil)
	a := h.agent(t, "ada")
	wait := a.call("everything_trigger-long-running-operation", `{"duration":600,"steps":2}`)
	a.in.Close()
	a.out.Close()
	_, _ = wait()
	await.Nil(t, func() error {
		if all := h.shared(t); len(all) > 0 {
			return fmt.Errorf("%d still run", len(all))
		}
		return nil
	})
}

// An agent that is started while an older program serves gets the newer one.
func TestANewerProgramTakesOver(t *testing.T) {
	t.Parallel()
	h := sharing(t, map[string]any{"keep_running": "24h"})
	old := h.agent(t, "ada")
	must.Get(old.ask("tools/list", "{}")())(t)
	newer := filepath.Join(t.TempDir(), "toolfinch")
	must.Do(t, os.WriteFile(newer, append(must.Get(os.ReadFile(program(t)))(t), 0), 0o755))
	cmd := exec.Command(newer, "serve", "--config", h.config)
	cmd.Env = h.env
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bob","version":"1"}}}` + "\n")
	if out := must.Get(cmd.Output())(t); !strings.Contains(string(out), `"serverInfo"`) {
		t.Fatalf("the newer program answers %s", out)
	}
	all := h.shared(t)
	if len(all) != 2 || !slices.ContainsFunc(all, func(s web.Status) bool {
		return len(s.Beside) == 1 && strings.HasSuffix(s.Beside[0], "differs in the program")
	}) {
		t.Fatalf("status says %+v", all)
	}
	old.in.Close()
	await.Nil(t, func() error { // the older one does not wait for other agents
		if all := h.shared(t); len(all) != 1 {
			return fmt.Errorf("%d run", len(all))
		}
		return nil
	})
	out, _ := h.said(t, "stop")
	if !strings.Contains(out, "ends, with 0 agents connected") {
		t.Errorf("stop says %q", out)
	}
}
