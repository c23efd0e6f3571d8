//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// outside starts testdata/node/outside.mjs for each TypeScript SDK, and calls f ten times with settings of the server.
func outside(t *testing.T, f func(t *testing.T, settings upstream.Settings)) {
	t.Parallel()
	path, err := filepath.Abs("../testdata/node/outside.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, sdk := range []string{"v1", "v2"} {
		t.Run(sdk, func(t *testing.T) {
			server := exec.CommandContext(t.Context(), node(t), path, sdk)
			out, err := server.StdoutPipe()
			if err == nil {
				err = server.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Wait() })
			port, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				f(t, upstream.Settings{Name: "s", URL: "http://127.0.0.1:" + strings.TrimSpace(port) + "/mcp", ConnectTimeout: await.Bound, CallTimeout: await.Bound, AskTimeout: await.Bound})
			}
		})
	}
}

// answering is a call of a legacy client that can be asked.
func answering() *tool.Call {
	return &tool.Call{Arguments: json.RawMessage(`{}`), Client: &tool.Client{Key: "a", Capabilities: json.RawMessage(`{"elicitation":{}}`),
		Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"action":"accept","content":{"name":"Ada"}}`), nil
		}}}
}

func toolOf(name string) *tool.Def {
	return &tool.Def{ID: tool.ID{Server: "s", Kind: tool.KindTool, Name: name}}
}

// Servers of both TypeScript SDKs drop what they send outside of a call before their stream is open: in ten fresh
// sessions of ten the first call is asked and logged all the same.
func TestTheFirstCallOfASessionLosesNothing(t *testing.T) {
	outside(t, func(t *testing.T, settings upstream.Settings) {
		p := upstream.NewPool([]upstream.Settings{settings}, upstream.Options{})
		logged := 0
		call := answering()
		call.Notify = func(method string, _ json.RawMessage) {
			if method == "notifications/message" {
				logged++
			}
		}
		result, err := p.Call(t.Context(), toolOf("ask"), call)
		if err != nil || !strings.Contains(string(result), "Ada") || logged != 1 {
			t.Errorf("%s, %v, %d log lines", result, err, logged)
		}
		_ = p.Close(t.Context())
	})
}

// A tool that a call adds for its session alone is known when it is called next.
func TestAToolThatACallAddsIsListed(t *testing.T) {
	outside(t, func(t *testing.T, settings upstream.Settings) {
		p := upstream.NewPool([]upstream.Settings{settings}, upstream.Options{})
		var added atomic.Bool
		changes, listed := make(chan upstream.Change), make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			_ = p.Watch(t.Context(), changes)
			close(changes)
		})
		running.Go(func() {
			first := sync.OnceFunc(func() { close(listed) })
			for change := range changes {
				added.Store(slices.ContainsFunc(change.Defs, func(def *tool.Def) bool { return def.ID.Name == "added" }))
				change.Served()
				first()
			}
		})
		<-listed
		if _, err := p.Call(t.Context(), toolOf("add"), answering()); err != nil {
			t.Error(err)
		}
		if !added.Load() { // the server's other stream may be later than the answer
			p.Renew(t.Context(), []string{"s"}, []string{"s"})
		}
		if result, err := p.Call(t.Context(), toolOf("added"), answering()); !added.Load() || err != nil || !strings.Contains(string(result), "it was added") {
			t.Errorf("listed: %t; %s, %v", added.Load(), result, err)
		}
		_ = p.Close(t.Context())
		running.Wait()
	})
}
