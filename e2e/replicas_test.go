//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// serveReplica starts toolfinch, which may be killed. The test's end ends it.
func (h house) serveReplica(t *testing.T) (url string, pid int, end func(syscall.Signal)) {
	t.Helper()
	url, cmd, ended, log := h.launch(t)
	over := false
	end = func(signal syscall.Signal) {
		if over {
			return
		}
		over = true
		children := descendants(cmd.Process.Pid)
		_ = cmd.Process.Signal(signal)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("toolfinch did not end\n%s", log)
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s", log)
		}
		noneLeft(t, children)
	}
	t.Cleanup(func() { end(syscall.SIGTERM) })
	return url, cmd.Process.Pid, end
}

// Three toolfinches over one database: each server is listed by one of them, and what
// that lists all have; a server with placement one has one process, which all use; and
// when the leader is killed or the database restarted, it goes on.
func TestReplicasOverPostgres(t *testing.T) {
	db := postgres.New(t)
	url := db.Database(t)
	probe, err := filepath.Abs("../testdata/node/probe.mjs")
	if err != nil {
		t.Fatal(err)
	}
	memoryFile := filepath.Join(t.TempDir(), "memory.jsonl")
	servers := map[string]any{
		"everything": script(t, module(t, "@modelcontextprotocol/server-everything/dist/index.js"), "stdio"),
		"memory": map[string]any{"command": node(t), "args": []string{module(t, "@modelcontextprotocol/server-memory/dist/index.js")},
			"env": map[string]string{"MEMORY_FILE_PATH": memoryFile}, "connect_timeout": patience.String(), "placement": "one"},
		"probe": map[string]any{"command": node(t), "args": []string{probe}, "connect_timeout": patience.String(), "changes": "allow", "placement": "one"},
	}
	type replica struct {
		house
		name, url string
		pid       int
		end       func(syscall.Signal)
		client    *sdkClient
	}
	var all []*replica
	for _, name := range []string{"one", "two", "three"} {
		at := freeAddress(t)
		h := newHouse(t, nil, map[string]any{
			"store": url, "mcp_servers": servers, "direct_below": 100_000,
			"cluster": map[string]any{"name": name, "listen": at, "address": at, "drain": "1s", "keys": []string{"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}},
		})
		r := &replica{house: h, name: name}
		r.url, r.pid, r.end = h.serveReplica(t)
		r.client = newSDKClient(t, h.env)
		r.client.do(t, "connect", map[string]any{"url": r.url}, nil)
		all = append(all, r)
	}
	// leaders are who leads each server, once each is led by exactly one of all.
	leaders := func() (by map[string]string) {
		t.Helper()
		await.Nil(t, func() error {
			out, err := all[0].output(t, "replicas", "--json")
			var got struct {
				Replicas []struct {
					Name  string
					Leads []string
				}
			}
			if err != nil || json.Unmarshal(out, &got) != nil || len(got.Replicas) != len(all) {
				return fmt.Errorf("%w %s", err, out)
			}
			by = map[string]string{}
			for _, r := range got.Replicas {
				for _, server := range r.Leads {
					if by[server] != "" { // for a moment: who gives a server up says so a moment later
						return fmt.Errorf("%s is led by %s and %s", server, by[server], r.Name)
					}
					by[server] = r.Name
				}
			}
			if len(by) != len(servers) {
				return fmt.Errorf("leaders are %v", by)
			}
			return nil
		})
		return by
	}
	// equal waits until all list the same tools, some of each server and these.
	equal := func(want ...string) {
		t.Helper()
		await.True(t, func() bool {
			lists := map[string]bool{}
			for _, r := range all {
				got := names(r.client.list(t))
				slices.Sort(got)
				for _, prefix := range slices.Concat(slices.Collect(maps.Keys(servers)), want) {
					if !slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
						return false
					}
				}
				lists[strings.Join(got, " ")] = true
			}
			return len(lists) == 1
		})
	}
	running := func(program string) (n int) {
		for _, r := range all {
			n += len(runningBelow(r.pid, program))
		}
		return n
	}
	// shared says that what is written over one replica is read over all.
	shared := func(entity string) {
		t.Helper()
		all[0].client.call(t, "memory_create_entities", map[string]any{"entities": []any{map[string]any{"name": entity, "entityType": "bird", "observations": []string{}}}})
		for _, r := range all {
			if got := r.client.call(t, "memory_read_graph", map[string]any{}).text(); !strings.Contains(got, entity) {
				t.Errorf("over %s the graph is %s", r.name, got)
			}
		}
		if n := running("server-memory"); n != 1 {
			t.Errorf("%d processes of server-memory, want 1", n)
		}
	}
	// learn has the probe learn a trick once it runs with its leader alone: a process that is about to end
	// takes what it has learned with it.
	learn := func(r *replica, trick string) {
		t.Helper()
		await.True(t, func() bool {
			by := leaders()
			return !slices.ContainsFunc(all, func(r *replica) bool {
				return (len(runningBelow(r.pid, "probe.mjs")) == 1) != (r.name == by["probe"])
			})
		})
		r.client.call(t, "probe_learn_trick", map[string]any{"name": trick, "description": "A trick."})
		equal("probe_" + trick)
	}

	by := leaders()
	equal()
	if n := running("server-everything"); n != len(all) {
		t.Errorf("%d processes of server-everything, want one in each replica", n)
	}
	shared("finch")
	learn(all[1], "sing")
	out, err := all[0].output(t, "servers")
	if err != nil || !strings.Contains(string(out), "all, "+by["everything"]+" lists it") {
		t.Errorf("servers: %v\n%s", err, out)
	}

	killed := slices.IndexFunc(all, func(r *replica) bool { return r.name == by["memory"] })
	all[killed].client.do(t, "close", nil, nil)
	all[killed].end(syscall.SIGKILL)
	all = slices.Delete(all, killed, killed+1)
	shared("sparrow") // calls wait for the next leader
	if again := leaders(); again["memory"] == by["memory"] {
		t.Errorf("after %s was killed it leads %v", by["memory"], again)
	}
	equal()

	db.Restart(t)
	leaders()
	learn(all[1], "fly")
	shared("wren")
}
