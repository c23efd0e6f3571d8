//go:build unix

package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/e2e/agents"
	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// asGuests runs the test for each agent that can log in, all at once, each in a home of its own.
func asGuests(t *testing.T, name string, h house, test func(*testing.T, agents.Agent, house)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for _, a := range agents.All {
			if a.CanLogIn() {
				t.Run(a.Name, func(t *testing.T) {
					t.Parallel()
					test(t, a, h.guest(t))
				})
			}
		}
	})
}

// logged are the lines of the audit log of an event.
func (h house) logged(t *testing.T, event string) []string {
	t.Helper()
	out, err := h.output(t, "audit", "--json", "--event", event)
	if err != nil && len(out) > 0 { // it ends with 1 where there is none
		t.Fatalf("audit read: %v", err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return line == "" })
}

// answered is what a server behind a URL answered.
type answered struct {
	mu    sync.Mutex // guards codes; not held over anything
	codes []int
}

// watch leads to the URL, and keeps the status codes of the answers.
func watch(t *testing.T, to string) (at string, codes *answered) {
	t.Helper()
	target := must.Get(url.Parse(to))(t)
	codes = &answered{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, ""
		},
		ModifyResponse: func(r *http.Response) error {
			codes.mu.Lock()
			defer codes.mu.Unlock()
			codes.codes = append(codes.codes, r.StatusCode)
			return nil
		},
	})
	t.Cleanup(server.Close)
	return server.URL + target.Path, codes
}

// calledBy checks that there were calls of the principal whose ID begins so, and of no other.
func (h house) calledBy(t *testing.T, principal string, calls int) {
	t.Helper()
	lines := h.logged(t, "tool.call")
	if len(lines) != calls {
		t.Errorf("%d tools were called, want %d", len(lines), calls)
	}
	for _, line := range lines {
		if !strings.Contains(line, `"principal":{"id":"`+principal) {
			t.Errorf("a call of somebody else: %s", line)
		}
	}
}

// Real agents with an API key in their own settings find a tool over HTTP and call it.
// Without the key they are answered 401, and their model is offered nothing.
func TestAgentsWithAKey(t *testing.T) {
	if !long {
		t.Skip("agents run")
	}
	t.Parallel()
	h := newHouse(t, upstreams(t, "files", "memory"), map[string]any{"auth": "keys", "audit": filepath.Join(t.TempDir(), "audit.jsonl")})
	url, _ := h.serveHTTP(t)
	made := must.Get(h.output(t, "key", "create", "team"))(t)
	asGuests(t, "without", h, func(t *testing.T, a agents.Agent, g house) {
		m := &model{}
		watched, got := watch(t, url)
		runAgent(t, a, g, m, agents.Server{URL: watched}, false)
		if len(m.turns) > 0 {
			t.Errorf("the model was offered tools: %+v", m.turns)
		}
		got.mu.Lock()
		defer got.mu.Unlock()
		if !slices.Contains(got.codes, http.StatusUnauthorized) || slices.Min(got.codes) < http.StatusUnauthorized {
			t.Errorf("it was answered %d", got.codes)
		}
	})
	h.calledBy(t, "", 0)
	asGuests(t, "with", h, func(t *testing.T, a agents.Agent, g house) {
		finds(t, a, g, agents.Server{URL: url, Key: strings.TrimSpace(string(made))})
	})
	h.calledBy(t, "key|team|", 3)
}

// Real agents know the URL and nothing else. Each is led to the authorization server by
// the answer 401, registers, logs its user in with a browser, finds a tool and calls it.
// Codex logs in for the scopes in its settings, if there are any.
func TestAgentsLogIn(t *testing.T) {
	if !long {
		t.Skip("agents run")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the browser is opened with xdg-open")
	}
	t.Parallel()
	scopes := []string{"mcp:read", "mcp:write", "mcp:admin"}
	issuer := startAuthServer(t, authserver.Settings{Scopes: append([]string{"mcp:use"}, scopes...)})
	start := func(scopes map[string]any) (h house, url string) {
		h = newHouse(t, upstreams(t, "files", "memory"), map[string]any{
			"auth":  map[string]any{"issuers": []string{issuer.Issuer}, "scopes": scopes},
			"audit": filepath.Join(t.TempDir(), "audit.jsonl"),
		})
		url, _ = h.serveHTTP(t)
		return h, url
	}
	h, url := start(map[string]any{"mcp:use": "destructive"})
	asGuests(t, "one scope", h, func(t *testing.T, a agents.Agent, g house) {
		proxy := agents.Server{URL: url}
		login(t, a, g, issuer, proxy)
		finds(t, a, g, proxy)
	})
	h.calledBy(t, issuer.Issuer+"|alice", 3)
	granted := map[string]bool{} // by client
	for _, event := range issuer.Seen(t) {
		switch {
		case event.What != "granted":
		case event.Params["resource"] != url:
			t.Errorf("a token was asked for %v", event.Params["resource"])
		default:
			granted[event.Client] = true
		}
	}
	if len(granted) != 3 {
		t.Errorf("%d clients got tokens, want 3", len(granted))
	}
	t.Run("scopes of codex", func(t *testing.T) {
		codex := agents.All[3]
		h, url := start(everyScope)
		proxy := agents.Server{URL: url, Scopes: scopes}
		login(t, codex, h, issuer, proxy)
		finds(t, codex, h, proxy)
		h.calledBy(t, issuer.Issuer+"|alice", 1)
	})
}

// login has the agent log in, with a browser that needs nobody.
func login(t *testing.T, a agents.Agent, h house, issuer *authserver.Server, proxy agents.Server) {
	t.Helper()
	opened := filepath.Join(h.home, "opened")
	browser := filepath.Join(h.home, "bin", "xdg-open")
	err := os.Mkdir(filepath.Dir(browser), 0o755)
	if err == nil {
		err = os.WriteFile(browser, fmt.Appendf(nil, "#!/bin/sh\necho \"$1\" >%[1]s.new\nmv %[1]s.new %[1]s\n", opened), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	proxy.Name = "toolfinch"
	command, env := prepare(t, a, agents.Run{Home: h.home, Base: "http://127.0.0.1:9", Login: true, Servers: []agents.Server{proxy}})
	cmd := exec.CommandContext(await.Program(t), command[0], command[1:]...)
	cmd.Dir, cmd.WaitDelay = h.files, 5*time.Second
	cmd.Env = append(append(h.env, env...), "BROWSER="+browser, "PATH="+filepath.Dir(browser)+string(os.PathListSeparator)+os.Getenv("PATH"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &agreeing{to: in, logWriter: newLog(t, a.Name)}
	cmd.Stdout, cmd.Stderr = out, out
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var page []byte
	await.True(t, func() bool {
		page, err = os.ReadFile(opened)
		return err == nil || len(ended) > 0
	})
	if err != nil {
		t.Fatalf("the agent opened no page and ended with %v:\n%s", <-ended, out)
	}
	issuer.Browse(t, strings.TrimSpace(string(page)), "")
	err = await.Value(t, ended) // Gemini CLI says that the command has no answer for a model
	t.Logf("the login ended with %v", err)
}

// agreeing answers the first question with yes.
type agreeing struct {
	*logWriter
	to     io.Writer
	agreed bool
}

func (a *agreeing) Write(p []byte) (int, error) {
	n, err := a.logWriter.Write(p)
	if !a.agreed && strings.Contains(a.String(), "[Y/n]") {
		a.agreed = true
		_, _ = io.WriteString(a.to, "y\n") // the process may have ended
	}
	return n, err
}
