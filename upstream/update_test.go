package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/internal/leeway"
	"toolfinch/tool"
)

// changed is a server's settings in another version: it is to be made anew.
func changed(s Settings, version int) Settings {
	value := fmt.Sprint(version)
	if s.URL != "" {
		s.Headers = map[string]string{"X-Version": value}
		return s
	}
	s.Env = maps.Clone(s.Env)
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	s.Env["VERSION"] = value
	return s
}

// watched runs Watch, and returns what it tells and what ends it.
func watched(t testing.TB, p *Pool) (changes chan Change, stop func()) {
	t.Helper()
	changes = make(chan Change, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Watch(ctx, changes) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch = %v", err)
		}
	})
	t.Cleanup(stop)
	return changes, stop
}

func TestUpdateAddsRemovesChangesAndKeeps(t *testing.T) {
	kept, other, gone, added := lines(t, "kept", "raw"), lines(t, "other", "raw"), lines(t, "gone", "raw"), lines(t, "added", "raw")
	p := newPool(t, kept, other, gone)
	was := map[string]int{"kept": pidOf(t, p, "kept"), "other": pidOf(t, p, "other"), "gone": pidOf(t, p, "gone")}

	p.Update([]Settings{added, changed(other, 2), kept, lines(t, "kept", "crash")}, nil)
	var order []string
	for _, s := range p.Status() {
		order = append(order, fmt.Sprintf("%s %s %s", s.Server, s.State, s.Transport))
	}
	if got, want := strings.Join(order, ", "), "added queued stdio, other queued stdio, kept ready stdio"; got != want {
		t.Errorf("status = %s, want %s", got, want)
	}
	if pid := pidOf(t, p, "kept"); pid != was["kept"] {
		t.Errorf("the unchanged server is process %d, was %d", pid, was["kept"])
	}
	if pid := pidOf(t, p, "other"); pid == was["other"] {
		t.Error("the changed server is the same process")
	}
	if change := p.Refresh(t.Context(), "added"); change.Err != nil || len(change.Defs) != lineTools {
		t.Errorf("the new server: %+v", change)
	}
	_, call := ask(t, p, "gone", "raw")
	_, complete := p.Complete(t.Context(), "gone", &tool.Call{})
	for name, err := range map[string]error{
		"call": call, "complete": complete, "refresh": p.Refresh(t.Context(), "gone").Err,
		"subscribe": p.Subscribe(t.Context(), "gone", "memo://a"), "unsubscribe": p.Unsubscribe(t.Context(), "gone", "memo://a"),
	} {
		if wantError(t, err, "gone", ErrUnknownServer); err == nil {
			t.Errorf("%s of a removed server went well", name)
		}
	}
	var rpc *tool.RPCError
	if _, err := p.Task(t.Context(), "tasks/get", &tool.Call{Name: "gone/1"}); !errors.As(err, &rpc) {
		t.Errorf("a task of a removed server: %v", err)
	}
	soonRuns(t, gone, 0)
	soonRuns(t, other, 1)

	p.Update([]Settings{gone}, nil)
	mustAsk(t, p, "gone", "raw", "hologram")
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Update([]Settings{kept}, nil)
	_, err := ask(t, p, "kept", "raw")
	wantError(t, err, "kept", ErrUnknownServer)
}

func TestWhichSettingsNeedANewConnection(t *testing.T) {
	prefix := "p"
	for name, test := range map[string]struct {
		edit func(s *Settings)
		same bool
	}{
		"nothing":          {func(*Settings) {}, true},
		"description":      {func(s *Settings) { s.Description = "x" }, true},
		"prefix":           {func(s *Settings) { s.Prefix = &prefix }, true},
		"validate":         {func(s *Settings) { s.Validate = true }, true},
		"call timeout":     {func(s *Settings) { s.CallTimeout = 1 }, true},
		"ask timeout":      {func(s *Settings) { s.AskTimeout = 1 }, true},
		"written defaults": {func(s *Settings) { s.Transport, s.Protocol, s.Isolate = TransportAuto, ProtocolAuto, IsolateAuto }, true},
		"empty, not nil":   {func(s *Settings) { s.Headers = map[string]string{} }, true},
		"command":          {func(s *Settings) { s.Command = "x" }, false},
		"arguments":        {func(s *Settings) { s.Args = []string{"b", "a"} }, false},
		"environment":      {func(s *Settings) { s.Env = map[string]string{"k": "w"} }, false},
		"folder":           {func(s *Settings) { s.Cwd = "x" }, false},
		"URL":              {func(s *Settings) { s.URL = "x" }, false},
		"headers":          {func(s *Settings) { s.Headers = map[string]string{"k": ""} }, false},
		"transport":        {func(s *Settings) { s.Transport = TransportSSE }, false},
		"protocol":         {func(s *Settings) { s.Protocol = ProtocolLegacy }, false},
		"isolation":        {func(s *Settings) { s.Isolate = IsolateNever }, false},
		"connect timeout":  {func(s *Settings) { s.ConnectTimeout = 1 }, false},
	} {
		s := func() Settings {
			return Settings{Name: "s", Command: "c", Args: []string{"a", "b"}, Env: map[string]string{"k": "v"}}
		}
		edited := s()
		test.edit(&edited)
		if got := s().complete().dialsLike(edited.complete()); got != test.same {
			t.Errorf("%s: the same is %t", name, got)
		}
	}
}

func TestATimeoutChangesWithoutANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lines(t, "s", "raw")
		p := newPool(t, s)
		pid := pidOf(t, p, "s")
		s.CallTimeout, s.Description = 300*time.Millisecond, "now in a hurry"
		p.Update([]Settings{s}, nil)
		began := time.Now()
		_, err := ask(t, p, "s", "hang")
		if wantError(t, err, "s", ErrTimeout); time.Since(began) != s.CallTimeout {
			t.Errorf("it ended after %s", time.Since(began))
		}
		if again := pidOf(t, p, "s"); again != pid {
			t.Errorf("process %d, was %d", again, pid)
		}
	})
}

// What the caller does with its maps afterwards is its own affair.
func TestSettingsAreCopied(t *testing.T) {
	s := lines(t, "s", "raw")
	p := newPool(t, s)
	pid := pidOf(t, p, "s")
	s.Env["VERSION"] = "2"
	p.Update([]Settings{s}, nil)
	if again := pidOf(t, p, "s"); again == pid {
		t.Error("a map that was edited in place was not noticed")
	}
}

func TestNoCallIsLostOverUpdates(t *testing.T) {
	same := lines(t, "same", "raw")
	u := newPlainHTTP(t)
	u.calls["raw"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, strange)
	}
	other := u.settings()
	other.Name = "other"
	p := newPool(t, same, other)
	_, stop := watched(t, p)
	pid := pidOf(t, p, "same")
	over := make(chan struct{})
	var calls atomic.Int64
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			server := []string{"same", "other"}[i%2]
			for {
				select {
				case <-over:
					return
				default:
				}
				if got, err := ask(t, p, server, "raw"); err != nil || got != strange {
					t.Errorf("%s: %s, %v", server, got, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for i := range 30 {
		before := calls.Load()
		p.Update([]Settings{changed(other, i), same}, nil)
		await.True(t, func() bool { return calls.Load() > before || t.Failed() })
	}
	close(over)
	callers.Wait()
	if again := pidOf(t, p, "same"); again != pid {
		t.Errorf("the unchanged server is process %d, was %d", again, pid)
	}
	stop()
}

func TestACallInFlightFinishesOnTheOldConnection(t *testing.T) {
	for name, next := range map[string]func(s Settings) []Settings{
		"changed": func(s Settings) []Settings { return []Settings{changed(s, 2)} },
		"removed": func(Settings) []Settings { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := changed(scripted(t, "s", func(p *peer) {
				call := p.read()
				p.put("began", "")
				p.wait("go")
				p.answer(call, `{"version":"`+p.env["VERSION"]+`"}`)
				p.read()
			}), 1)
			p := newPool(t, s)
			slow := make(chan string, 1)
			go func() {
				got, err := ask(t, p, "s", "slow")
				slow <- fmt.Sprint(got, err)
			}()
			trace(t, s, "began")
			p.Update(next(s), nil)
			if name == "removed" {
				_, err := ask(t, p, "s", "slow")
				wantError(t, err, "s", ErrUnknownServer)
			}
			stageOf(s).put("go", "")
			if got := <-slow; got != `{"version":"1"}<nil>` {
				t.Errorf("the call in flight: %s", got)
			}
			if name == "changed" {
				mustAsk(t, p, "s", "slow", `{"version":"2"}`)
			}
			soonRuns(t, s, len(next(s)))
		})
	}
}

func TestACallThatDoesNotFinishIsEnded(t *testing.T) {
	for name, closes := range map[string]bool{"in its time": false, "with the pool, which does not wait for it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := lines(t, "s", "raw")
				p := newPool(t, s)
				began, hung := time.Now(), make(chan error, 1)
				go func() {
					_, err := ask(t, p, "s", "hang")
					hung <- err
				}()
				trace(t, s, "hangs")
				p.Update(nil, nil)
				want := leeway.Of(finishWithin)
				if closes {
					want = 0
					if err := p.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				wantError(t, <-hung, "s", ErrClosed)
				if took := time.Since(began); took != want {
					t.Errorf("it ended after %s, want %s", took, want)
				}
				synctest.Wait()
				if runs(s) != 0 {
					t.Error("it runs still")
				}
			})
		})
	}
}

func TestWhatClientsWantIsHandedOn(t *testing.T) {
	first, second := newModernHTTP(t), newModernHTTP(t)
	updated := make(chan string, 10)
	logged := make(chan string, 10)
	asker := newAsker(t, "asker")
	asker.Name = "legacy"
	p := newPoolWith(t, nil, Events{
		Updated: func(server, uri string, _ json.RawMessage) { updated <- server + " " + uri },
		Log: func(server, client string, _ bool, params json.RawMessage) {
			logged <- fmt.Sprintf("%s %q %s", server, client, params)
		},
	}, first.settings(), asker)
	for _, server := range []string{"s", "legacy"} {
		if err := p.Subscribe(t.Context(), server, "memo://a"); err != nil {
			t.Fatal(err)
		}
	}
	p.SetLogLevel("notice")
	added := newAsker(t, "asker")
	added.Name = "added"
	p.Update([]Settings{second.settings(), changed(asker, 2), added}, nil)

	if change := p.Refresh(t.Context(), "s"); change.Err != nil {
		t.Fatal(change.Err)
	}
	await.Contains(t, second.filter, `"resourceSubscriptions":["memo://a"]`)
	second.say("notifications/resources/updated", `,"uri":"memo://a"`)
	if got := <-updated; got != "s memo://a" {
		t.Errorf("updated %s", got)
	}
	seen := func(server string) string {
		got, err := p.Call(t.Context(), def(server, "seen"), &tool.Call{Arguments: json.RawMessage(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	await.Contains(t, func() string { return seen("legacy") }, `"resources/subscribe"`)
	for _, server := range []string{"legacy", "added"} {
		if got := seen(server); !strings.Contains(got, `"level":"notice"`) {
			t.Errorf("%s does not know the log level: %s", server, got)
		}
	}
	second.say("notifications/message", `,"level":"info"`)
	if got := <-logged; !strings.HasPrefix(got, `s "" {`) {
		t.Errorf("logged %s", got)
	}
	if transport := p.Status()[0].Transport; transport != "streamable-http" {
		t.Errorf("transport %s", transport)
	}
}

// A subscription that comes while a server is being changed reaches its successor.
func TestSubscriptionsBesideUpdates(t *testing.T) {
	m := newModernHTTP(t)
	p := newPool(t, m.settings())
	var subscribing sync.WaitGroup
	for i := range 20 {
		subscribing.Go(func() {
			if err := p.Subscribe(t.Context(), "s", fmt.Sprintf("memo://%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 10 {
		p.Update([]Settings{changed(m.settings(), i)}, nil)
		mustAsk(t, p, "s", "ask", "{}")
	}
	subscribing.Wait()
	if got := len(p.now.Load().byName["s"].subscriptions.all()); got != 20 {
		t.Errorf("the last server knows of %d subscriptions, want 20", got)
	}
	await.True(t, func() bool { return strings.Count(m.filter(), "memo://") == 20 })
}

func TestManySubscriptionsAtOnceAreFewStreams(t *testing.T) {
	m := newModernHTTP(t)
	p := newPool(t, m.settings())
	uris := make([]string, 50)
	for i := range uris {
		uris[i] = fmt.Sprintf("memo://%d", i)
	}
	var subscribing sync.WaitGroup
	for _, uri := range uris {
		subscribing.Go(func() {
			if err := p.Subscribe(t.Context(), "s", uri); err != nil {
				t.Error(err)
			}
		})
	}
	subscribing.Wait()
	await.True(t, func() bool { return strings.Count(m.filter(), "memo://") == 50 })
	many := m.subscriptions()
	for _, uri := range uris[1:] { // one after the other: nobody waits for them
		if err := p.Unsubscribe(t.Context(), "s", uri); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, func() bool { return strings.HasSuffix(m.filter(), `"resourceSubscriptions":["memo://0"]}`) })
	if ends := m.subscriptions() - many; many > 25 || ends > 25 { // how many depends on the machine
		t.Errorf("50 subscriptions took %d streams, and their end %d", many, ends)
	}
}

func TestWatchFollowsUpdates(t *testing.T) {
	p := newPool(t, Settings{Name: "s", Command: "no-such-program"})
	changes, stop := watched(t, p)
	if change := <-changes; change.Err == nil {
		t.Fatalf("change = %+v", change)
	}
	// It was backing off; other settings are tried at once.
	s, added := lines(t, "s", "raw"), lines(t, "added", "pages")
	p.Update([]Settings{s, added}, nil)
	tools := map[string]int{}
	for len(tools) < 2 {
		if change := <-changes; change.Err == nil {
			tools[change.Server] = len(change.Defs)
		}
	}
	if tools["s"] != lineTools || tools["added"] != 5 {
		t.Errorf("tools = %v", tools)
	}
	// A server that came later is watched as well as any.
	mustAsk(t, p, "s", "change", "ok")
	if change := <-changes; len(change.Defs) != lineTools+1 {
		t.Errorf("change = %+v", change)
	}
	p.Update(nil, nil)
	p.Update([]Settings{s}, nil) // back again, before the first has quite left
	if change := <-changes; change.Server != "s" || len(change.Defs) != lineTools {
		t.Errorf("change = %+v", change)
	}
	p.Update(nil, nil)
	stop()
	if len(changes) > 0 {
		t.Errorf("a removed server has told %+v", <-changes)
	}
}

// What is told last of a server is what its last settings lead to.
func TestAServersPastIsNotToldLast(t *testing.T) {
	var versions []Settings
	for n := range 2 {
		m := newMCP()
		for i := range n {
			m.AddTool(mcp.NewTool(fmt.Sprint("more", i)), nil)
		}
		r := newRestartable(t, func() http.Handler { return mcpserver.NewStreamableHTTPServer(m) })
		versions = append(versions, r.settings("s", "/mcp"))
	}
	p := newPool(t, versions[0])
	changes, stop := watched(t, p)
	for i := range 40 {
		p.Update([]Settings{versions[(i+1)%2]}, nil)
		if i%4 == 0 {
			<-changes
		}
	}
	p.Update([]Settings{versions[1]}, nil)
	var last Change
	await.True(t, func() bool {
		select {
		case last = <-changes:
		default:
		}
		return len(last.Defs) == 3 && p.Status()[0].Tools == 3
	})
	stop()
	for len(changes) > 0 {
		last = <-changes
	}
	if len(last.Defs) != 3 {
		t.Errorf("the last change has %d tools, want 3", len(last.Defs))
	}
}

func TestWatchUpdateAndCloseInAllOrders(t *testing.T) {
	for _, orders := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {0, 1, 3}, {0, 3, 1}, {1, 0, 3}, {1, 3}, {3, 1}, {3, 2, 1}} {
		synctest.Test(t, func(t *testing.T) { // which notices whatever is left
			s := scripted(t, "s", func(p *peer) { // the list hangs
				for {
					p.read()
				}
			})
			p := newPoolOf(t, Options{}, s, Settings{Name: "none", Command: "no-such-program"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			steps := []func(){
				func() { go func() { ended <- p.Watch(ctx, make(chan Change)) }() },
				func() {
					p.Update([]Settings{changed(s, 2), {Name: "added", Command: "no-such-program"}}, nil)
				},
				func() {
					if err := p.Close(t.Context()); err != nil {
						t.Error(err)
					}
				},
				cancel,
			}
			for _, i := range orders {
				steps[i]()
			}
			if !slices.Contains(orders, 0) {
				steps[0]()
			}
			if err := <-ended; err != nil { // closed or cancelled: it ends
				t.Errorf("Watch = %v", err)
			}
			p.Update(nil, nil)
		})
	}
}

func TestRapidUpdatesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newPlainHTTP(t)
		silent := scripted(t, "silent", func(p *peer) {
			for {
				p.read()
			}
		})
		remote, own, stays := u.settings(), newAsker(t, "asker"), lines(t, "stays", "raw")
		own.Name, own.Isolate = "own", IsolateAlways
		p := newPool(t, stays)
		changes, stop := watched(t, p)
		pid := pidOf(t, p, "stays")
		over := make(chan struct{})
		var beside sync.WaitGroup
		beside.Go(func() { // what else a pool does
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-changes:
				default:
				}
				_, _ = p.Call(t.Context(), def("own", "echo"), &tool.Call{Client: asked(fmt.Sprint(n % 3)), Arguments: json.RawMessage(`{}`)})
				p.SetLogLevel("info")
				p.RootsChanged(fmt.Sprint(n % 3))
				p.Forget(fmt.Sprint(n % 3))
				p.Status()
			}
		})
		var updating sync.WaitGroup
		for worker := range 2 {
			updating.Go(func() {
				for i := range 50 {
					all := []Settings{changed(silent, i), stays, changed(remote, i/2), changed(own, i/20)}
					p.Update(all[:2+(i+worker)%3], nil)
				}
			})
		}
		updating.Wait()
		if again := pidOf(t, p, "stays"); again != pid {
			t.Errorf("the unchanged server is process %d, was %d", again, pid)
		}
		close(over)
		beside.Wait()
		p.Update([]Settings{stays}, nil)
		time.Sleep(closeWithin)
		p.mu.Lock()
		if n := len(p.leaving) + runs(silent) + runs(own); n > 0 || runs(stays) != 1 {
			t.Errorf("%d are left", n)
		}
		p.mu.Unlock()
		stop()
		if runs(stays) != 0 {
			t.Error("it runs still")
		}
	})
}

// BenchmarkEnter is what it costs a call that the servers may change meanwhile.
func BenchmarkEnter(b *testing.B) {
	p := newPool(b, lines(b, "s", "raw"))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.enter("s").uses.exit()
		}
	})
}

// BenchmarkUpdate is an Update of 100 servers that changes nothing.
func BenchmarkUpdate(b *testing.B) {
	settings := make([]Settings, 100)
	for i := range settings {
		settings[i] = lines(b, fmt.Sprint(i), "raw")
	}
	p := newPool(b, settings...)
	b.ReportAllocs()
	for b.Loop() {
		p.Update(settings, nil)
	}
}

// A server whose configuration cannot be used is never started, and says why.
func TestAServerWithAFault(t *testing.T) {
	s := lines(t, "s", "raw")
	s.Fault = "variable TOKEN is not set"
	p := newPool(t, s)
	changes, _ := watched(t, p)
	_, err := ask(t, p, "s", "raw")
	wantError(t, err, "s", ErrNotConnected)
	for where, err := range map[string]error{"a call": err, "Watch": await.Value(t, changes).Err, "Status": p.Status()[0].Err, "Refresh": p.Refresh(t.Context(), "s").Err} {
		if err == nil || !strings.HasSuffix(err.Error(), "the configuration cannot be used: variable TOKEN is not set") {
			t.Errorf("%s: %v", where, err)
		}
	}
}
