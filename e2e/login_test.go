//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// protectedHouse is a house with one server, which wants logins.
func protectedHouse(t *testing.T, modern bool) (house, *authserver.Server, *authserver.Protected) {
	t.Helper()
	as := opaque(t)
	rs := authserver.Protect(t, as, modern)
	h := newHouse(t, nil)
	h.configure(t, map[string]any{"notes": map[string]any{"url": rs.At(), "description": "Notes of a person"}})
	return h, as, rs
}

// opaque is an authorization server whose tokens servers ask it about.
func opaque(t *testing.T) *authserver.Server {
	t.Helper()
	yes := true
	return startAuthServer(t, authserver.Settings{Clients: []authserver.Client{authserver.Inspector}, Now: authserver.Now{Opaque: &yes}})
}

// login runs toolfinch server login, whose user goes where its URL leads, and returns what it printed.
func (h house) login(t *testing.T, browse func(page string), args ...string) string {
	t.Helper()
	return h.loginFrom(t, nil, browse, args...)
}

// loginFrom is login with a standard input.
func (h house) loginFrom(t *testing.T, stdin io.Reader, browse func(page string), args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t), program(t), append([]string{"server", "login", "notes", "--config", h.config}, args...)...)
	cmd.Env, cmd.Stdin = h.env, stdin
	var said bytes.Buffer
	cmd.Stderr = &said
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	var printed strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		printed.WriteString(lines.Text() + "\n")
		if at := strings.TrimSpace(lines.Text()); strings.HasPrefix(at, "http") {
			browse(at)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("toolfinch server login: %v\n%s%s", err, &printed, &said)
	}
	return printed.String() + said.String()
}

func TestLogin(t *testing.T) {
	t.Parallel()
	h, as, rs := protectedHouse(t, true)
	browse := func(page string) { as.Browse(t, page, "") }
	run := h.start(t)
	run.log.wait(t, 0, "the upstream needs a login", "toolfinch server login notes")

	const how, startPage = "run `toolfinch server login notes`", "/oauth/callback?login="
	t.Run("while it runs", func(t *testing.T) {
		list, _ := h.said(t, "server", "list")
		client := newSDKClient(t, h.env)
		client.do(t, "connect", map[string]any{"url": run.url}, nil)
		missing := client.call(t, "retrieve_tools", map[string]any{"query": "notes of a person"}).text()
		for what, text := range map[string]string{
			"servers": list, "reindex": h.fails(t, "reindex"), "validate": h.fails(t, "validate"), "retrieve_tools": missing,
		} {
			if !strings.Contains(text, how) || !strings.Contains(text, "needs") || strings.Contains(text, " 401") {
				t.Errorf("%s says: %s", what, text)
			}
		}

		said := h.login(t, browse, "--no-browser")
		if !strings.Contains(said, "logged in to notes at "+as.Issuer) || !strings.Contains(said, "mcp:read") || !strings.Contains(said, "renewed before that") {
			t.Errorf("login says: %s", said)
		}
		waitConnected(t, run.url) // it notices by itself
		if text := client.call(t, "call_tool", map[string]any{"name": "notes_whoami", "arguments": map[string]any{}}).text(); text != "alice" {
			t.Errorf("whoami: %s", text)
		}
		for _, token := range rs.Seen() {
			notInFiles(t, h.home, token)
		}
	})
	status, _ := h.said(t, "login", "--status", "--json")
	var logins struct {
		Logins []struct {
			Server, Issuer string
			Renewed        bool
		}
	}
	if err := json.Unmarshal([]byte(status), &logins); err != nil || len(logins.Logins) != 1 || logins.Logins[0].Issuer != as.Issuer || !logins.Logins[0].Renewed {
		t.Errorf("login --status: %s", status)
	}

	run.stop(t)
	run = h.start(t) // with what is stored
	waitConnected(t, run.url)

	t.Run("processes that renew one token", func(t *testing.T) {
		rs.RefuseSeen()
		as.Seen(t)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if out, err := h.output(t, "call", "notes.whoami", "--json", "{}"); err != nil || !strings.Contains(string(out), "alice") {
					t.Errorf("call: %s, %v", out, err)
				}
			})
		}
		all.Wait()
		renewed := 0
		for _, e := range as.Seen(t) {
			if e.Params["grant_type"] == "refresh_token" {
				renewed++
			}
		}
		if renewed != 1 {
			t.Errorf("the token was renewed %d times", renewed)
		}
	})

	t.Run("logout", func(t *testing.T) {
		if out, _ := h.said(t, "server", "login", "notes", "--logout"); !strings.Contains(out, "deleted and revoked") {
			t.Errorf("logout says: %s", out)
		}
		if out := h.fails(t, "call", "notes.whoami", "--json", "{}"); !strings.Contains(out, how+", or open http://127.0.0.1:") || !strings.Contains(out, startPage) || strings.Contains(out, as.Issuer) {
			t.Errorf("call says: %s", out)
		}
		if out, _ := h.said(t, "server", "login", "notes", "--logout"); !strings.Contains(out, "there was no login") {
			t.Errorf("logout says: %s", out)
		}
	})

	t.Run("a browser gets the URL and nothing else", func(t *testing.T) {
		got := filepath.Join(h.home, "browser.txt")
		browser := h.file(t, "browser", "#!/bin/sh\nprintf '%s\\n' \"$#\" \"$1\" > "+got+"\n")
		must.Do(t, os.Chmod(browser, 0o700))
		h.with("BROWSER="+browser).login(t, browse)
		await.Nil(t, func() error { // nobody waits for the browser
			text, err := os.ReadFile(got)
			if err != nil || !strings.HasPrefix(string(text), "1\nhttp://127.0.0.1:") || !strings.Contains(string(text), startPage) {
				return fmt.Errorf("the browser got %s, %w", text, err)
			}
			return nil
		})
	})

	t.Run("the browser is on another machine", func(t *testing.T) {
		terminal, typed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.Close()
		defer typed.Close()
		said := h.loginFrom(t, terminal, func(page string) {
			asked, err := url.Parse(page)
			if err != nil || !strings.HasPrefix(page, as.Issuer) {
				t.Errorf("the page is %s, %v", page, err)
				return
			}
			fmt.Fprintf(typed, "what?\n%s\n", as.Browse(t, page, asked.Query().Get("redirect_uri")))
		}, "--no-browser")
		if !strings.Contains(said, "paste the address") || !strings.Contains(said, "that is not the address") || !strings.Contains(said, "logged in to notes") {
			t.Errorf("login says: %s", said)
		}
	})

	t.Run("device", func(t *testing.T) {
		if said := h.login(t, browse, "--device"); !strings.Contains(said, "with the code ") || !strings.Contains(said, "logged in to notes") {
			t.Errorf("login says: %s", said)
		}
	})

	t.Run("the redirect comes to the running proxy", func(t *testing.T) {
		h.said(t, "server", "login", "notes", "--logout")
		again := newSDKClient(t, h.env)
		again.do(t, "connect", map[string]any{"url": run.url}, nil)
		text := again.try(t, "call_tool", map[string]any{"name": "notes_whoami", "arguments": map[string]any{}}).text()
		_, at, found := strings.Cut(text, "or open ")
		at, _, _ = strings.Cut(at, " ")
		if !found || !strings.HasPrefix(at, strings.TrimSuffix(run.url, "/mcp")+startPage) {
			t.Fatalf("the call says: %s", text)
		}
		as.Browse(t, at, "")
		if text := again.call(t, "call_tool", map[string]any{"name": "notes_whoami", "arguments": map[string]any{}}).text(); text != "alice" {
			t.Errorf("whoami: %s", text)
		}
	})
	run.stop(t)
}

// A client that is not ours is asked to open the page of a login by the call that needs
// one, and its call succeeds once its user has been there.
func TestACallOpensThePageOfALogin(t *testing.T) {
	t.Parallel()
	h, as, _ := protectedHouse(t, true)
	browse := func(page string) { as.Browse(t, page, "") }
	for name, settings := range openers() {
		t.Run(name, func(t *testing.T) {
			h.login(t, browse, "--no-browser")
			run := h.start(t)
			waitConnected(t, run.url) // so that its tools are known
			h.said(t, "server", "login", "notes", "--logout")
			settings["url"], settings["name"] = run.url, "notes_whoami"
			opened, text := h.opens(t, settings, browse)
			if !strings.Contains(opened, "/oauth/callback?login=") || text != "alice" {
				t.Errorf("it opened %q and got %q", opened, text)
			}
			run.stop(t)
		})
	}
}

// openers are clients that testdata/node/opener.mjs can be.
func openers() map[string]map[string]any {
	return map[string]map[string]any{
		"SDK 1":             {"sdk": 1},
		"SDK 2":             {"sdk": 2},
		"SDK 2, 2026-07-28": {"sdk": 2, "modern": true},
	}
}

// opens runs testdata/node/opener.mjs, whose user logs in at the page that the call asks to be opened.
// It returns that page and the text of the result.
func (h house) opens(t *testing.T, settings map[string]any, login func(page string)) (opened, text string) {
	t.Helper()
	given, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(await.Context(t), node(t), "../testdata/node/opener.mjs", string(given))
	cmd.Env = h.env
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	said := json.NewDecoder(out)
	for {
		var message struct {
			Open, Failed string
			Result       *struct{ Content []struct{ Text string } }
		}
		if err := said.Decode(&message); err != nil {
			t.Fatalf("the client: %v", err)
		}
		switch {
		case message.Open != "":
			opened = message.Open
			login(opened)
			_, _ = in.Write([]byte("it is open\n"))
		case message.Result == nil || len(message.Result.Content) == 0:
			t.Fatalf("the call: %s %+v", message.Failed, message.Result)
		default:
			return opened, message.Result.Content[0].Text
		}
	}
}

// notInFiles fails the test where a file below a folder has the text in it.
func notInFiles(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // sockets, and files that went meanwhile
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(text)) {
			t.Errorf("%s has a token in it", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
