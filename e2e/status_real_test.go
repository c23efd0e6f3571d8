//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy/web"
)

// A published server is killed while status is watched, and comes back; a client is
// connected, a call runs, another fails, and one server never was: status says so.
func TestStatusOfRealServers(t *testing.T) {
	t.Parallel()
	servers := upstreams(t, "memory")
	probe := must.Get(filepath.Abs("../testdata/node/probe.mjs"))(t)
	servers["probe"] = script(t, probe)
	h := newHouse(t, servers)
	s := served{house: h}
	link := filepath.Join(h.home, "node")
	must.Do(t, os.Symlink(node(t), link))
	s.reconfigure(t, func(config map[string]any) {
		all := config["mcp_servers"].(map[string]any)
		all["memory"].(map[string]any)["command"] = link
		all["gone"] = map[string]any{"command": filepath.Join(h.home, "no such program")}
	})
	if out, err := h.output(t, "status"); err == nil || len(out) > 0 {
		t.Errorf("where nothing runs, status prints %q, %v", out, err)
	}
	life := s.start(t)
	url, pid, log := life.url, life.pid, life.log
	s.base, s.pid, s.log = strings.TrimSuffix(url, "/mcp"), pid, log
	s.waitServers(t, 2)
	c := newSDKClient(t, h.env)
	c.do(t, "connect", map[string]any{"url": url}, nil)
	c.list(t)

	now := s.status(t)
	if one := serverIn(now, "gone"); one.State != "failed" || !strings.Contains(one.Error, "no such program") {
		t.Errorf("a server that never was is %+v", one)
	}
	if now.PID != pid || now.Configuration != h.config || now.Version == "" || now.Calls.InFlight != 0 {
		t.Errorf("the process is %+v", now)
	}
	if len(now.Sessions.Shown) != 1 || now.Sessions.Shown[0].Era != "legacy" || now.Sessions.Shown[0].Transport != "http" || now.Sessions.Shown[0].Client == "" {
		t.Errorf("the client that is connected is %+v", now.Sessions)
	}

	watched := s.watch(t)
	watched.shows(t, `(?m)^memory +ready +\S+ +[1-9]\d* +0 `)

	t.Run("a call that runs", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/api/proxy/execute", strings.NewReader(`{"tool_id":"probe_cancelled_waits","arguments":{}}`))
			request.Header.Set("Content-Type", "application/json")
			if response, err := http.DefaultClient.Do(request); err == nil {
				response.Body.Close()
			}
		}()
		await.Nil(t, func() error {
			if calls := s.status(t).Calls; calls.InFlight != 1 || len(calls.Shown) != 1 || calls.Shown[0].Tool != "probe.cancelled_waits" {
				return fmt.Errorf("the calls in flight are %+v", calls)
			}
			return nil
		})
		watched.shows(t, `(?m)^RUNNING .*\nprobe\.cancelled_waits `)
		cancel()
		<-ended
		await.True(t, func() bool { return s.status(t).Calls.InFlight == 0 })
	})

	t.Run("a server that is killed", func(t *testing.T) {
		must.Do(t, os.Remove(link))
		kill(t, pid, "server-memory")
		s.execute(t, "memory_search_nodes", `{"query":"Ada"}`).wants(t, "a call of it", 502, "memory")
		watched.shows(t, `(?m)^!  memory +failed for \S+: .*\n(.*\n)*SERVER .*\n(.*\n)*memory +failed `)
		watched.shows(t, `(?m)^LAST ERRORS .*\nmemory\.search_nodes +\S+ +failed `)
		failed := s.status(t)
		if len(failed.Errors) != 1 || failed.Errors[0].Tool != "memory.search_nodes" || failed.Errors[0].Outcome != "failed" || !strings.Contains(failed.Errors[0].Reason, "memory") {
			t.Errorf("the last errors are %+v", failed.Errors)
		}
		if hour := failed.Calls.Last[1]; hour.Minutes != 60 || hour.Failed != 1 || hour.Calls < 2 {
			t.Errorf("the calls of the last hour are %+v", hour)
		}
		must.Do(t, os.Symlink(node(t), link))
		s.ask(t, "POST", "/api/servers/memory/reconnect", "").wants(t, "its reconnect, mended", 200)
		watched.shows(t, `(?m)^memory +ready +\S+ +[1-9]\d* +1 `)
	})
}

// status is that of the one process that runs.
func (s served) status(t *testing.T) web.Status {
	t.Helper()
	out, err := s.output(t, "status", "--json")
	var found struct{ Running []web.Status }
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil || len(found.Running) != 1 {
		t.Fatalf("status: %v in %s", err, out)
	}
	return found.Running[0]
}

func serverIn(s web.Status, name string) web.ServerStatus {
	at := slices.IndexFunc(s.Servers, func(one web.ServerStatus) bool { return one.Name == name })
	if at < 0 {
		return web.ServerStatus{}
	}
	return s.Servers[at]
}

// frames is what status --watch has printed.
type frames struct{ text *await.Log }

// watch runs toolfinch status --watch until the end of the test.
func (s served) watch(t *testing.T) frames {
	t.Helper()
	w := frames{&await.Log{}}
	cmd := exec.Command(program(t), "status", "--watch", "--interval", "200ms", "--config", s.config)
	cmd.Env, cmd.Stdout = s.env, w.text
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("status --watch ended with %v", cmd.ProcessState)
		}
	})
	return w
}

// shows waits until the last frame is one that the pattern matches.
func (w frames) shows(t *testing.T, pattern string) {
	t.Helper()
	matches := regexp.MustCompile(pattern)
	await.Nil(t, func() error {
		all := strings.Split(w.text.String(), "\ntoolfinch ")
		for _, frame := range all[max(0, len(all)-2):] { // the last may not be whole
			if matches.MatchString(frame) {
				return nil
			}
		}
		return fmt.Errorf("nothing is shown that matches %s:\n%s", pattern, all[len(all)-1])
	})
}
