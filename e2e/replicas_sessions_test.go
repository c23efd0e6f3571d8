//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// A balancer that sticks saves handing requests over, and loses no session with its replica.
func TestABalancerThatSticks(t *testing.T) {
	t.Parallel()
	url, _, _ := grower(t, "up")
	f := fleetOver(t, 2, postgres.Start(t), nil, map[string]any{"mcp_servers": map[string]any{"up": map[string]any{"url": url}}})
	f.stick(t)
	c := f.goClient(t, "client")
	defer c.Close()
	for range 6 {
		if text, err := c.call(t.Context(), "up_echo", map[string]any{"id": "one"}, ""); err != nil || !strings.Contains(text, "one") {
			t.Fatal(text, err)
		}
	}
	if n := f.forwards(t); n > 0 {
		t.Errorf("%v requests were handed over", n)
	}
	id := c.ID()
	for _, r := range f.replicas {
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-r.ended
		await.Nil(t, func() error { // 502 until the balancer looks away
			_, err := c.call(t.Context(), "up_echo", map[string]any{"id": "two"}, "")
			return err
		})
		r.start(t)
	}
	if c.ID() != id {
		t.Error("the client has another session")
	}
}

// When the balancer restarts, calls in flight over it fail, and sessions go on.
func TestABalancerThatRestartsLosesNoSession(t *testing.T) {
	t.Parallel()
	f := fleetOver(t, 2, postgres.Start(t), upstreams(t, "everything"))
	c := f.goClient(t, "client")
	defer c.Close()
	if _, err := c.call(t.Context(), "retrieve_tools", map[string]any{"query": "echo a message", "limit": 1}, ""); err != nil {
		t.Fatal(err)
	}
	id, failed := c.ID(), make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := c.call(ctx, "everything_trigger-long-running-operation", map[string]any{"duration": 300, "steps": 3000}, "p")
		failed <- err
	}()
	await.True(t, func() bool { return c.progress.Load() > 0 })
	f.rebalance()
	if err := await.Value(t, failed); err == nil {
		t.Error("a call in flight over the balancer was answered")
	}
	await.Nil(t, func() error {
		text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": "still here"}, "")
		if err == nil && !strings.Contains(text, "still here") {
			t.Errorf("a call is answered %s", text)
		}
		return err
	})
	if c.ID() != id {
		t.Error("the client has another session")
	}
	for _, r := range f.replicas {
		await.Nil(t, func() error {
			answer, err := http.Get("http://127.0.0.1:" + r.port + "/metrics")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if text, _ := io.ReadAll(answer.Body); !strings.Contains(string(text), "toolfinch_calls_in_flight 0") {
				return errors.New("a call without a client goes on")
			}
			return nil
		})
	}
}

// A rolling restart of all replicas loses no call and no session, and clients notice nothing; also
// where it moves another key to the front.
func TestARollingRestartLosesNothing(t *testing.T) {
	t.Parallel() // most of the time somebody waits
	probe, err := filepath.Abs("../testdata/node/probe.mjs")
	if err != nil {
		t.Fatal(err)
	}
	servers := upstreams(t, "everything")
	servers["probe"] = script(t, probe)
	f := fleetOver(t, 3, postgres.Start(t), servers)
	const clients = 6
	var all []*goClient
	for i := range clients {
		c := f.goClient(t, fmt.Sprint("client-", i))
		if _, err := c.call(t.Context(), "retrieve_tools", map[string]any{"query": "echo a message", "limit": 1}, ""); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	ts := newSDKClient(t, f.replicas[0].house.env)
	ts.do(t, "connect", map[string]any{"url": f.url}, nil)

	for n := range len(f.replicas) { // what cancels a call comes through another replica than the call, if not each time
		if got := ts.try(t, "probe_wait_until_cancelled", map[string]any{}, map[string]any{"abortAfter": 1}); got.Error == nil {
			t.Errorf("a call that the client gave up answered %+v", got)
		}
		await.Nil(t, func() error {
			var reasons []string
			text := ts.call(t, "probe_cancelled_waits", map[string]any{}).text()
			if err := json.Unmarshal([]byte(text), &reasons); err != nil || len(reasons) != n+1 {
				return fmt.Errorf("after %d calls were given up, the server was told %s: %w", n+1, text, err)
			}
			return nil
		})
	}

	for _, r := range f.replicas { // the session lives in one of them
		r.overREST(t, all[0].ID())
	}

	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	var calls, long atomic.Int64
	for i, c := range all {
		ids := []string{c.ID()}
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				said := fmt.Sprintf("client %d call %d", i, n)
				text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": said}, "")
				if err != nil || !strings.Contains(text, said) {
					t.Errorf("%s is answered %s %v", said, text, err)
					return
				}
				calls.Add(1)
			}
			if c.ID() != ids[0] {
				t.Errorf("client %d has another session", i)
			}
		})
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				text, err := c.call(t.Context(), "everything_trigger-long-running-operation", map[string]any{"duration": 1, "steps": 2}, fmt.Sprint(i, "-", n))
				if err != nil || !strings.Contains(text, "completed") {
					t.Errorf("a long call of client %d is answered %s %v", i, text, err)
					return
				}
				long.Add(1)
			}
		})
	}
	working.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			said := fmt.Sprint("typescript ", n)
			if got := ts.call(t, "everything_echo", map[string]any{"message": said}).text(); !strings.Contains(got, said) {
				t.Errorf("%s is answered %s", said, got)
				return
			}
			time.Sleep(20 * time.Millisecond) // this SDK keeps a listener for each call
		}
	})
	progress := func(least int64) {
		t.Helper()
		from := calls.Load()
		await.True(t, func() bool { return calls.Load() >= from+least || t.Failed() })
	}
	progress(50)
	for i, r := range f.replicas {
		r.end(t)
		r.rotate(t)
		progress(20)
		r.start(t)
		progress(20)
		t.Logf("replica %d was replaced after %d calls and %d long ones", i+1, calls.Load(), long.Load())
	}
	stop()
	working.Wait()
	for i, c := range all {
		if c.progress.Load() == 0 {
			t.Errorf("client %d has heard of no progress", i)
		}
		if c.changed.Load() > 1 {
			t.Errorf("client %d was told %d times that its list has changed", i, c.changed.Load())
		}
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Errorf("client %d: %v", i, err)
			continue
		}
		var names []string
		for _, one := range tools.Tools {
			names = append(names, one.Name)
		}
		if !strings.Contains(strings.Join(names, " "), "everything_echo") {
			t.Errorf("client %d is listed %q, without what it had registered", i, names)
		}
		if err := c.Close(); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
}

// A call that lasts longer than cluster.drain ends with a reason, and its session goes on.
func TestACallThatOutlastsADrain(t *testing.T) {
	t.Parallel() // most of the time somebody waits
	f := fleetOver(t, 2, postgres.Start(t), upstreams(t, "everything"))
	type outcome struct {
		revision, text string
		err            error
	}
	outcomes := make(chan outcome, 2)
	clients := map[string]*goClient{}
	for _, revision := range []string{legacyRevision, modernRevision} {
		c := goClientAt(t, f.url, revision, revision)
		clients[revision] = c
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			text, err := c.call(ctx, "everything_trigger-long-running-operation", map[string]any{"duration": 300, "steps": 3000}, "p")
			outcomes <- outcome{revision, text, err}
		}()
		await.True(t, func() bool { return c.progress.Load() > 0 || len(outcomes) > 0 })
	}
	for i, r := range f.replicas { // one or both may have both calls
		r.end(t)
		if i == 0 {
			r.start(t)
		}
	}
	for revision, c := range clients {
		if o := await.Value(t, outcomes); !strings.Contains(fmt.Sprint(o.text, o.err), "may or may not have happened") {
			t.Errorf("a call of %s ends with %s %v", o.revision, o.text, o.err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", revision, err)
		}
	}
}

// Of a replica that is killed only the calls in flight are lost; sessions go on elsewhere, with
// what is kept for them.
func TestAKilledReplicaLosesNoSession(t *testing.T) {
	t.Parallel()
	everything := script(t, module(t, everythingJS), "stdio")
	f := fleetOver(t, 3, postgres.Start(t), nil, map[string]any{"mcp_servers": map[string]any{"everything": map[string]any{
		"command": everything.Command, "args": everything.Args, "connect_timeout": everything.ConnectTimeout, "output_cache": true,
	}}})
	const clients = 12
	var all []*goClient
	var kept []string // the token of a large answer for each
	for i := range clients {
		c := f.goClient(t, fmt.Sprint("client-", i))
		if _, err := c.call(t.Context(), "retrieve_tools", map[string]any{"query": "echo a message", "limit": 1}, ""); err != nil {
			t.Fatal(err)
		}
		text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": strings.Repeat(fmt.Sprintf("line of %d\n", i), 3000)}, "")
		token := tokenIn.FindString(text)
		if err != nil || token == "" {
			t.Fatalf("a large answer is %.500s %v", text, err)
		}
		all, kept = append(all, c), append(kept, token)
	}
	// Each has a call in flight when a replica is lost.
	var working sync.WaitGroup
	var lost, done atomic.Int64
	for _, c := range all {
		working.Go(func() {
			text, err := c.call(t.Context(), "everything_trigger-long-running-operation", map[string]any{"duration": 20, "steps": 20}, "p"+c.ID())
			switch {
			case err != nil:
				lost.Add(1)
				t.Logf("a call is lost: %v", err)
			case strings.Contains(text, "completed"):
				done.Add(1)
			default:
				t.Errorf("a call is answered %s", text)
			}
		})
	}
	for _, c := range all {
		await.True(t, func() bool { return c.progress.Load() > 0 })
	}
	if err := f.replicas[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.replicas[0].ended
	for i, c := range all {
		// A request that haproxy had on its way to the replica is answered by nobody.
		await.Nil(t, func() error {
			said := fmt.Sprint("after the end ", i)
			text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": said}, "")
			if err == nil && !strings.Contains(text, said) {
				t.Errorf("%s is answered %s", said, text)
			}
			return err
		})
		for whose, token := range kept {
			text, err := c.call(t.Context(), "read_output", map[string]any{"token": token, "offset": 20_000}, "")
			if reads := strings.Contains(text, fmt.Sprintf("line of %d\\n", whose)); err != nil || reads != (whose == i) {
				t.Errorf("client %d reads what is kept for client %d: %.300s %v", i, whose, text, err)
			}
		}
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Errorf("client %d: %v", i, err)
			continue
		}
		text, _ := json.Marshal(tools.Tools)
		if !strings.Contains(string(text), "everything_echo") {
			t.Errorf("client %d has lost what it had registered", i)
		}
	}
	working.Wait()
	t.Logf("%d calls were lost, %d answered", lost.Load(), done.Load())
	if lost.Load() == 0 || done.Load() == 0 {
		t.Errorf("%d calls were lost with a replica, %d answered: both are wanted", lost.Load(), done.Load())
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}
