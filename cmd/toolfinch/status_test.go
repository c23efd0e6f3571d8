package main

import (
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/proxy/web"
)

var update = flag.Bool("update", false, "write the golden files anew")

// busy is a process with everything that status shows.
func busy() web.Status {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	server := func(name, state string, since time.Duration, tools, held int, reason string) web.ServerStatus {
		return web.ServerStatus{Held: held, Upstream: web.Upstream{Name: name, State: state, Since: now.Add(-since), Era: "legacy", Transport: "stdio", Tools: tools, Error: reason}}
	}
	call := func(kind, id string, ago time.Duration, outcome, reason string) web.CallStatus {
		server, _, _ := strings.Cut(id, ".")
		return web.CallStatus{Kind: kind, Began: now.Add(-ago), View: "default", Server: server, Tool: id, Name: id, Client: "claude-code 2.1", Principal: "key|ci", Outcome: outcome, Reason: reason}
	}
	said := func(c web.CallStatus, message string) web.CallStatus { c.Said = message; return c }
	s := web.Status{
		Version: "1.2.3", PID: 4711, Configuration: "/home/ada/toolfinch.yaml", At: "127.0.0.1:8080", Started: now.Add(-27*time.Hour - time.Minute), Now: now,
		Refused: "toolfinch.yaml:3:1: unknown key \"mcp_server\"",
		Views:   []web.ViewStatus{{Name: "default", Tools: 1204}, {Name: "small", Tools: 3}},
		Servers: []web.ServerStatus{
			server("files", "ready", 27*time.Hour, 14, 2, ""),
			server("github", "needs_login", 3*time.Minute, 40, 0, "upstream github: needs a login: run: toolfinch server login github"),
			server("gone", "failed", 90*time.Second, 0, 0, "it wrote \"cannot \x1b[31mfind\u202e the\ndatabase\"; the process ended (exit status 1)"),
			server("slow", "pending", 12*time.Second, 0, 0, ""),
			server("later", "queued", 12*time.Second, 0, 0, ""),
			server("fresh", "pending", 2*time.Second, 0, 0, ""),
		},
		Sessions: web.SessionsStatus{All: 12},
		Calls:    web.CallsStatus{InFlight: 2, Shown: []web.CallStatus{call(identity.EventCall, "files.read_file", 65*time.Second, "", ""), call(identity.EventRead, "files.file:///a", time.Second, "", "")}, Last: []web.LastCalls{{Minutes: 5, Calls: 12, Failed: 1}, {Minutes: 60, Calls: 1300, Failed: 17}}},
		Errors:   []web.CallStatus{said(call(identity.EventCall, "files.stat", time.Second, identity.Failed, "error -32000"), "no\x1b[2J such\nfile"), call(identity.EventCall, "github.search", time.Second, identity.Timeout, "timed out after 60s"), call(identity.EventCall, "files.write_file", time.Hour, identity.ToolError, "")},
		Tokens:   web.TokensStatus{Read: 1000, AllListed: 8000},
		Search:   web.SearchStatus{Model: "all-MiniLM-L6-v2", Indexed: 1204, Embedded: 700},
		Limits:   []web.LimitStatus{{Name: "sessions", Used: 12, Max: 1000, Hits: 3}},
		Replicas: &web.ReplicasStatus{
			Differ: []string{"they run different versions: v1.2.3 (replica-1); v1.2.4 (replica-2)"}, Sessions: new(7),
			Shown: []web.ReplicaStatus{
				{Name: "replica-1", ID: "a", This: true, Version: "v1.2.3", Seconds: 3600, Leads: []string{"files", "github"}},
				{Name: "replica-2", ID: "b", Version: "v1.2.4", Seconds: 60},
			},
		},
	}
	s.Servers[0].PID, s.Servers[0].Stderr = 4712, []string{"is well"}
	s.Servers[2].Stderr = []string{"one", "two", "reading the \x1b]0;x\a settings", "the database", "cannot \x1b[31mfind\u202e the", ""}
	for range 12 {
		s.Sessions.Shown = append(s.Sessions.Shown, web.SessionStatus{View: "default", Client: "claude-code 2.1", Era: "legacy", Principal: "key|ci", Transport: identity.TransportHTTP, Since: now.Add(-time.Hour)})
	}
	return s
}

// The text of a status is what its golden files have: as it is printed, and as a narrow and
// low terminal shows it with --watch.
func TestStatusText(t *testing.T) {
	idle := web.Status{Version: "1.2.3", View: "small", At: "tools.example.com", Started: busy().Started, Now: busy().Now, Views: []web.ViewStatus{{Name: "small"}}}
	shown := found{Running: []web.Status{busy(), idle}, notes: []string{"process 12 uses the same store, with /other.yaml"}}
	for name, text := range map[string][]byte{
		"status.txt":        shown.text(screen{}, true),
		"status_narrow.txt": inFrame(shown.text(screen{terminal: true, columns: 60, rows: 14}, false), screen{terminal: true, columns: 60, rows: 14}),
	} {
		golden := filepath.Join("../../testdata/golden", name)
		got := strings.NewReplacer("\x1b", "ESC", "\r", "").Replace(string(text))
		if *update {
			must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		if want := lines(t, golden); got != want {
			t.Errorf("%s is not what is shown:\n%s", golden, got)
		}
	}
}

func TestLasting(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 900 * time.Millisecond: "0s", 59 * time.Second: "59s", time.Minute: "1m", 61 * time.Second: "1m1s", time.Hour + time.Second: "1h",
		27*time.Hour + 59*time.Minute: "1d3h", 400 * 24 * time.Hour: "400d",
	} {
		if got := lasting(d); got != want {
			t.Errorf("lasting(%s) = %s, want %s", d, got, want)
		}
	}
}

// What is asked at a URL gets the key and nothing else, and every answer that is none says
// what to do. Redirects are not followed: the key is for that address.
func TestStatusAtAURL(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("elsewhere is asked: %s", r.URL) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch view := r.URL.Query().Get("view"); {
		case r.URL.Path != "/at/api/status" || r.Header.Get("Authorization") != "Bearer s3cr3t" && view != "open":
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte(`{"detail":"no \u001b[31mcredentials"}`))
		case view == "moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case view == "none":
			http.NotFound(w, r)
		case view == "page":
			w.Write([]byte("<html>"))
		default:
			w.Write([]byte(`{"version":"9.9","view":"` + view + `","started":"2026-11-01T12:00:00Z","now":"2026-11-01T12:00:05Z"}`))
		}
	}))
	defer server.Close()
	t.Setenv("STATUS_KEY", "s3cr3t")
	t.Setenv("STATUS_BAD_KEY", "two words")
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"--url " + server.URL + "/at --key-env STATUS_KEY", exitOK, "toolfinch 9.9 | 127.0.0.1:"},
		{"--url " + server.URL + "/at/mcp/small/ --key-env STATUS_KEY", exitOK, "view small"},
		{"--url " + server.URL + "/at/mcp/other --key-env STATUS_KEY", exitOK, "view other"},
		{"--url " + server.URL + "/at/mcp --key-env STATUS_KEY --json", exitOK, `"version": "9.9"`},
		{"--url " + server.URL + "/at", exitFailed, `401 Unauthorized: no [31mcredentials; give a key: --key-env`},
		{"--url " + server.URL + "/at/mcp/moved --key-env STATUS_KEY", exitFailed, "302 Found"},
		{"--url " + server.URL + "/at/mcp/none --key-env STATUS_KEY", exitFailed, "is that a toolfinch, of this version or a later one"},
		{"--url " + server.URL + "/at/mcp/page --key-env STATUS_KEY", exitFailed, "is that a toolfinch?"},
		{"--url http://127.0.0.1:1", exitNotRunning, "is toolfinch serve running there?"},
		{"--url ftp://x", exitUsage, "--url must be like https://"},
		{"--url https://user:pass@x", exitUsage, "--url must be like https://"},
		{"--url " + server.URL + " --key-env STATUS_NO_KEY", exitUsage, "there is no key in the variable STATUS_NO_KEY"},
		{"--url " + server.URL + " --key-env STATUS_BAD_KEY", exitUsage, "there is no key in the variable STATUS_BAD_KEY"},
		{"--key-env STATUS_KEY", exitUsage, "--key-env is for --url"},
		{"--watch --interval 1ms --url " + server.URL, exitUsage, "--interval must be at least"},
	} {
		var out, problems strings.Builder
		code := run(append([]string{"status"}, strings.Fields(test.args)...), strings.NewReader(""), &out, &problems)
		if said := out.String() + problems.String(); code != test.code || !strings.Contains(said, test.want) {
			t.Errorf("status %s: exit code %d, want %d, with %q:\n%s", test.args, code, test.code, test.want, said)
		}
	}
}

// A process that does not answer is told of, and delays nobody else; what only has the name
// of a socket, too.
func TestAProcessThatDoesNotAnswer(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", ""))(t) // the path of t.TempDir is too long for a socket
	defer os.RemoveAll(dir)
	config, sockets := filepath.Join(dir, "toolfinch.yaml"), socketDir(dir)
	must.Do(t, os.Mkdir(sockets, 0o700))
	for _, file := range []string{config, filepath.Join(sockets, liveName+"file")} {
		must.Do(t, os.WriteFile(file, []byte("data_dir: .\n"), 0o600))
	}
	listener, err := net.Listen("unix", filepath.Join(sockets, liveName+"hangs_up"))
	if err != nil {
		t.Skip("there are no sockets that are files:", err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	var out, problems strings.Builder
	code := run([]string{"status", "--config", config}, strings.NewReader(""), &out, &problems)
	for _, want := range []string{"no toolfinch runs with", liveName + "hangs_up, does not answer: ", liveName + "file, does not answer: it is no socket"} {
		if code != exitNotRunning || !strings.Contains(problems.String(), want) {
			t.Errorf("exit code %d, want %d, with %q:\n%s%s", code, exitNotRunning, want, &out, &problems)
		}
	}
}
