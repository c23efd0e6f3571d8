//go:build unix

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/e2e/agents"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// model plays a model that has to write a file: it looks for a tool, uses what
// was found, by itself if it is offered now or else through call_tool, and
// ends.
type model struct {
	path, content string
	direct        string // a tool that is offered from the start, and is used without looking for it; "" for none
	remembers     bool   // the tool from a session before, and uses it without looking for it

	mu    sync.Mutex // guards turns; not held over anything
	turns []agents.Turn
}

const (
	surfaced = "files_write_file"
	written  = "Successfully wrote"
)

// Next is the model's: see agents.Model.
func (m *model) Next(t agents.Turn) agents.Move {
	if m.direct != "" {
		return m.nextDirect(t)
	}
	retrieve, agent := t.Tool("retrieve_tools")
	if !agent {
		return agents.Move{Text: "A file"} // agents ask for titles and the like
	}
	m.mu.Lock()
	m.turns = append(m.turns, t)
	before := 0 // results of the session before
	if m.remembers {
		before = len(m.turns[0].Results)
	}
	m.mu.Unlock()
	arguments := map[string]any{"path": m.path, "content": m.content}
	write, offered := t.Tool(surfaced)
	call, _ := t.Tool("call_tool")
	results := t.Results[before:]
	switch n := len(results); {
	case n > 1, n == 1 && m.remembers && strings.Contains(results[0], written):
		return agents.Move{Text: "The file is written."}
	case n == 0 && !m.remembers:
		return agents.Move{Tool: retrieve, Arguments: map[string]any{"query": "write text to a file", "limit": 2}}
	case n == 0: // agents put the same before the names of all tools of a server
		return agents.Move{Tool: agents.Tool{Group: retrieve.Group, Name: strings.Replace(retrieve.Name, "retrieve_tools", surfaced, 1)}, Arguments: arguments}
	case offered:
		return agents.Move{Tool: write, Arguments: arguments}
	}
	return agents.Move{Tool: call, Arguments: map[string]any{"name": surfaced, "arguments": arguments}}
}

// nextDirect is next for a model that leaves a note with the tool it was given.
func (m *model) nextDirect(t agents.Turn) agents.Move {
	leave, offered := t.Tool(m.direct)
	if !offered {
		return agents.Move{Text: "A note"} // agents ask for titles and the like
	}
	m.mu.Lock()
	m.turns = append(m.turns, t)
	m.mu.Unlock()
	if len(t.Results) == 0 {
		return agents.Move{Tool: leave, Arguments: map[string]any{"content": m.content}}
	}
	return agents.Move{Text: "The file is written."}
}

// Real agents look for a tool through the proxy, though they could be listed all 70, and
// use it, with a model that follows a script: at the very first start of servers that
// nobody has listed; over HTTP, two at once; and in a session that is gone on with, where
// the model calls the tool by the name that it remembers. Their lists stay as they begin,
// and the model uses call_tool; what agents that list again called is in the list of the
// next session. With register: at_once these are offered the tool in the very turn in
// which it is found.
func TestAgents(t *testing.T) {
	t.Parallel()
	tried := agents.All
	if !long { // one of each era
		tried = []agents.Agent{agents.All[0], agents.All[2]}
	}
	for _, a := range tried {
		t.Run(a.Name, func(t *testing.T) {
			names := []string{"files", "memory"}
			if long {
				names = append(names, "everything", "github", "slack")
			}
			servers := upstreams(t, names...)
			patient := map[string]any{"start_wait": patience.String(), "shared": true, "keep_running": "1ms"}
			t.Run("first start", func(t *testing.T) {
				h := newHouse(t, servers, patient).sharing()
				if offered, changed := finds(t, a, h, agents.Server{Command: []string{program(t), "serve", "--config", h.config}}); offered || changed != a.Loads {
					t.Errorf("%s is offered from the start: %t, once it is found: %t, want %t", surfaced, offered, changed, a.Loads)
				}
			})
			if a.Relists {
				t.Run("at once", func(t *testing.T) { atOnce(t, a, servers) })
			}
			if !long {
				return
			}
			h := newHouse(t, servers, patient)
			url, _ := h.serveHTTP(t)
			over := agents.Server{URL: url}
			guests := []house{h.guest(t), h.guest(t)}
			t.Run("two at once", func(t *testing.T) {
				for i, g := range guests {
					t.Run(fmt.Sprint(i), func(t *testing.T) {
						t.Parallel()
						if offered, now := finds(t, a, g, over); now != (offered || a.Loads) { // the other one may have called it before
							t.Errorf("%s is offered from the start: %t, once it is found: %t", surfaced, offered, now)
						}
					})
				}
			})
			if a.CanResume() && !t.Failed() {
				t.Run("resumed", func(t *testing.T) { remembers(t, a, guests[0], over, a.Relists || a.Loads) })
			}
		})
	}
}

// atOnce has an agent that lists again find a tool that is registered with the answer. On
// a busy machine an agent may take in the new list a turn later, and its model uses
// call_tool; so one turn in three suffices.
func atOnce(t *testing.T, a agents.Agent, servers map[string]server) {
	for range 3 {
		h := newHouse(t, servers, map[string]any{"start_wait": patience.String(), "shared": true, "keep_running": "1ms", "clients": map[string]any{"*": map[string]any{"register": "at_once"}}}).sharing()
		if _, same := finds(t, a, h, agents.Server{Command: []string{program(t), "serve", "--config", h.config}}); same {
			return
		}
	}
	t.Errorf("%s was never offered in the turn in which it was found", surfaced)
}

// guest is another user of the house's servers, with a home of his own and a folder
// in that of the house.
func (h house) guest(t *testing.T) house {
	t.Helper()
	home := t.TempDir()
	files := must.Get(os.MkdirTemp(h.files, "guest-"))(t)
	g := house{home: home, config: h.config, files: files, env: environment(t, home)}
	g.leavesNothing(t)
	return g
}

// finds has the agent look for a tool that writes files, and write one with it. It
// reports whether the tool was offered from the start, and in the turn in which it was
// found.
func finds(t *testing.T, a agents.Agent, h house, proxy agents.Server) (fromStart, sameTurn bool) {
	m := &model{path: filepath.Join(h.files, "note.txt"), content: "Written by " + a.Name + ".\n"}
	talk(t, a, h, m, proxy, false)

	if len(m.turns) != 3 {
		t.Fatalf("the model was asked %d times, want 3: %+v", len(m.turns), m.turns)
	}
	_, fromStart = m.turns[0].Tool(surfaced)
	_, sameTurn = m.turns[1].Tool(surfaced)
	if got := m.turns[1].Results[0]; !strings.Contains(got, surfaced) {
		t.Errorf("retrieve_tools answered the model with %s", got)
	}
	m.wrote(t, m.turns[2])
	if a.Loads {
		m.keepsPrefix(t)
	}
	return fromStart, sameTurn
}

// keepsPrefix checks that no request changes what the provider has read of the request before: the tools that it
// reads first, the instructions and the messages.
func (m *model) keepsPrefix(t *testing.T) {
	t.Helper()
	var before []string
	for i, turn := range m.turns {
		var request struct {
			Tools            []json.RawMessage
			System, Messages json.RawMessage
		}
		must.Do(t, json.Unmarshal(turn.Request, &request))
		var now []string
		for _, raw := range request.Tools {
			if !strings.Contains(string(raw), `"defer_loading":true`) { // the provider reads these where a message refers to them
				now = append(now, string(raw))
			}
		}
		now = append(now, string(request.System))
		if i > 0 && !slices.Equal(before, now) {
			t.Errorf("request %d begins with other tools or instructions than the one before: %s, before: %s", i, now, before)
		}
		before = now
	}
}

// remembers goes on with the agent's last session. The model calls the tool by the
// name that it had then. An agent refuses a name that its new session is not listed,
// so it must be listed what it called; listed says whether it is.
func remembers(t *testing.T, a agents.Agent, h house, proxy agents.Server, listed bool) {
	m := &model{path: filepath.Join(h.files, "note.txt"), content: "Written again by " + a.Name + ".\n", remembers: true}
	talk(t, a, h, m, proxy, true)
	if _, offered := m.turns[0].Tool(surfaced); offered != listed {
		t.Errorf("%s is offered from the start: %t, want %t", surfaced, offered, listed)
	}
	if direct := len(m.turns) == 2; direct != listed {
		t.Errorf("the model was asked %d times: %+v", len(m.turns), m.turns)
	}
	m.wrote(t, m.turns[len(m.turns)-1])
}

// wrote checks that the tool has written the file, by what it said and by what is there.
func (m *model) wrote(t *testing.T, now agents.Turn) {
	t.Helper()
	if got := now.Results[len(now.Results)-1]; !strings.Contains(got, written) {
		t.Errorf("%s answered the model with %s", surfaced, got)
	}
	if got, err := os.ReadFile(m.path); err != nil || string(got) != m.content {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// talk runs the agent with the model to its end, and checks that its work is done. One that a busy
// machine kept from connecting to its servers goes on without them: it offers no tools, and is run again.
func talk(t *testing.T, a agents.Agent, h house, m *model, proxy agents.Server, resumed bool) {
	t.Helper()
	said := ""
	for range 3 {
		if said = runAgent(t, a, h, m, proxy, resumed); len(m.turns) > 0 {
			break
		}
	}
	if !strings.Contains(said, "The file is written.") {
		t.Error("the agent does not print the model's last words")
	}
}

// runAgent runs the agent with the model to its end and returns what it printed.
func runAgent(t *testing.T, a agents.Agent, h house, m *model, proxy agents.Server, resumed bool) string {
	t.Helper()
	endpoint := httptest.NewServer(a.Endpoint(m))
	defer endpoint.Close()
	proxy.Name = "toolfinch"
	command, env := prepare(t, a, agents.Run{Home: h.home, Base: endpoint.URL, Prompt: "Write a note into a file.",
		Servers: []agents.Server{proxy}, Resumed: resumed})

	cmd := exec.CommandContext(await.Program(t), command[0], command[1:]...)
	// The folder of an agent is its root, outside of which the server of files allows nothing.
	cmd.Dir, cmd.Env = h.files, append(h.env, env...)
	cmd.WaitDelay = patience // for what it started, which may have its standard error
	out, err := cmd.CombinedOutput()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent printed:\n%s", out)
			for _, turn := range m.turns {
				t.Logf("%+v", turn)
			}
		}
	})
	if err != nil {
		t.Fatalf("the agent ended with %v", err)
	}
	return string(out)
}

// prepare is the agent's own, with the packages of the tests.
func prepare(t *testing.T, a agents.Agent, r agents.Run) (command, env []string) {
	t.Helper()
	r.Modules = modules(t)
	command, env, err := a.Prepare(r)
	if errors.Is(err, fs.ErrNotExist) {
		missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return command, env
}
