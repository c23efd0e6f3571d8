package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/web"
)

// A person at a terminal is told what is served and what to do next; an agent, or what
// reads the log, is not.
func TestServeOnATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "toolfinch.yaml")
	text := "data_dir: data\nauth: keys\ntool_views:\n  small: {tools: {clock: {current_time: {}}}}\nmcp_servers:\n  clock: {command: toolfinch, args: [demo-server, clock, demo]}\n"
	must.Do(t, os.WriteFile(config, []byte(text), 0o600))
	for _, test := range []struct {
		name, args  string
		typed       bool // standard input is the terminal, too
		wants, nots []string
	}{
		{"HTTP", "--port 0", false, []string{
			`toolfinch \S+  toolfinch.yaml`, `(?m)^  serves +http://127\.0\.0\.1:\d+/mcp +the views together`, `(?m)^ +http://127\.0\.0\.1:\d+/mcp/small +the view small`,
			`(?m)^  servers +1 server +clock`, `(?m)^  tools +`, `(?m)^  page     http://127\.0\.0\.1:\d+/ui/login\?link=[A-Z0-9]+\n +lets one browser in, .*; toolfinch ui makes another$`, `(?m)^  toolfinch connect +`, `(?m)^  toolfinch status --watch +`, `(?m)^  Ctrl-C +ends it`,
		}, []string{"msg=serving", "msg=listening"}},
		{"HTTP at every address", "--listen 0.0.0.0:0", false, []string{`(?m)^  serves +http://127\.0\.0\.1:\d+/mcp +the views together`, `(?m)^ +and at the other addresses of this machine$`}, nil},
		{"stdio, by a person", "", true, []string{`(?m)^  serves +standard input and output`, `An MCP client is waited for`, `toolfinch serve --port 8080`}, []string{"msg=serving", "/mcp"}},
		{"stdio, by an agent that shows the log", "", false, []string{"msg=serving"}, []string{"Ctrl-C"}},
		{"for what reads the log", "--port 0 --log-format json", true, []string{`"msg":"listening"`}, []string{"Ctrl-C"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inside, outside := must.Terminal(t)
			seen := &await.Log{}
			go io.Copy(seen, outside)
			cmd := exec.CommandContext(await.Context(t), program(t), append([]string{"serve", "--config", config}, strings.Fields(test.args)...)...)
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
			must.Do(t, cmd.Start())
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

// A person at a terminal is shown what a configuration of the folder starts, and is asked once. Only a yes is trust.
func TestTrustIsAskedAtATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "data_dir: data\nmcp_servers:\n  theirs: {command: sh, args: [-c, touch started], env: {TOKEN: t0ken-secret}}\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "toolfinch.yaml"), []byte(text), 0o600))
	for _, test := range []struct {
		typed string
		code  int
		asked bool
	}{{"n\n", 2, true}, {"y\n", 0, true}, {"", 0, false}} {
		inside, outside := must.Terminal(t)
		seen := &await.Log{}
		go io.Copy(seen, outside)
		cmd := exec.CommandContext(await.Context(t), program(t), "servers")
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, inside, inside, inside
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME=", "XDG_CONFIG_HOME=")
		must.Do(t, cmd.Start())
		if test.asked {
			await.True(t, func() bool { return strings.Contains(plainly(seen), "Do you trust it? [y/N] ") })
			if text := plainly(seen); !strings.Contains(text, "theirs: sh -c touch started") || strings.Contains(text, "t0ken") {
				t.Errorf("it is asked with\n%s", text)
			}
			must.Get(outside.WriteString(test.typed))(t)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != test.code {
			t.Errorf("%q: exit code %d\n%s", test.typed, code, plainly(seen))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
		t.Error("the server was started")
	}
}

// Who closes the terminal ends what serves there; SIGHUP alone has the configuration read again.
func TestServeEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	inside, outside := must.Terminal(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "toolfinch.yaml")
	must.Do(t, os.WriteFile(config, []byte("data_dir: data\n"), 0o600))
	cmd := exec.CommandContext(await.Context(t), program(t), "serve", "--config", config, "--port", "0")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, inside, inside, inside
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, cmd.Start())
	inside.Close()
	seen := ""
	shown := func(text string) { // nobody reads it when it is closed: that would keep it open
		for buffer := make([]byte, 4096); !strings.Contains(seen, text); {
			n, err := outside.Read(buffer)
			if err != nil {
				t.Fatalf("%q is not shown: %v\n%s", text, err, seen)
			}
			seen += string(buffer[:n])
		}
	}
	shown("Ctrl-C")
	_ = cmd.Process.Signal(syscall.SIGHUP)
	shown("configuration reloaded")
	outside.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// plainly is what a terminal shows, without colours.
func plainly(seen *await.Log) string {
	return regexp.MustCompile(`\x1b\[[0-9;]*m|\r`).ReplaceAllString(seen.String(), "")
}

// On a terminal status --watch draws in place, on a screen of its own, which is gone after
// Ctrl-C.
func TestStatusIsDrawnInPlace(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		status := web.Status{Version: "1.2.3", Started: time.Now(), Now: time.Now()}
		for n := range 60 { // more than a screen has
			status.Servers = append(status.Servers, web.ServerStatus{Upstream: web.Upstream{Name: fmt.Sprintf("server-%d", n), State: "ready"}})
		}
		_ = rawjson.Write(w, status, "")
	}))
	defer server.Close()
	inside, outside := must.Terminal(t)
	seen := &await.Log{}
	go io.Copy(seen, outside)
	cmd := exec.CommandContext(await.Context(t), program(t), "status", "--watch", "--interval", "200ms", "--url", server.URL)
	cmd.Stdout, cmd.Stderr = inside, inside
	must.Do(t, cmd.Start())
	for range 3 {
		await.Value(t, asked)
	}
	await.True(t, func() bool { return strings.Count(seen.String(), "\x1b[H") >= 2 })
	if text := seen.String(); !strings.HasPrefix(text, "\x1b[?1049h") || strings.Contains(text, "\x1b[?1049l") || !regexp.MustCompile(`\.\.\. and \d+ more lines`).MatchString(text) {
		t.Errorf("it is not drawn in place, or not cut to the screen: %q", text)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	await.True(t, func() bool {
		return regexp.MustCompile(`\x1b\[\?1049l.*interrupted: it runs on`).MatchString(seen.String())
	})
}
