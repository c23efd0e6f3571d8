//go:build linux

package proxy_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/configs"
	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/postgres"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/trust/audit"
	"toolfinch/trust/inbound"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
	"toolfinch/view"
)

// replica is one of several proxies over a database.
type replica struct {
	*proxy.Proxy
	url  string
	stop func()
}

// replicasOf runs proxies of one configuration over a database, one after the other: the
// first leads all servers.
func replicasOf(t *testing.T, n int, config *configs.Config) (all []*replica) {
	t.Helper()
	config.Store = postgres.Start(t)
	for range n {
		all = append(all, addReplica(t, config))
	}
	return all
}

func addReplica(t *testing.T, config *configs.Config, options ...proxy.Option) *replica {
	t.Helper()
	p, err := proxy.Open(t.Context(), config, append(options, proxy.WithVersion("test"))...)
	if err != nil {
		t.Fatal(err)
	}
	url, stop := runUntil(t, p)
	await.Value(t, p.Ready())
	return &replica{p, url, stop}
}

// One replica lists a server, and all have what it lists: at the start, when it changes,
// and when that replica has gone.
func TestReplicasFollowALeader(t *testing.T) {
	s := shop(t, "shop", "hat", "coat")
	all := replicasOf(t, 3, configOf(t, []*script{s}))
	lists := func() int { return len(s.got("tools/list")) }
	everywhere := func(tools ...string) {
		t.Helper()
		for _, r := range all {
			has(t, r.Proxy, "", tools...)
		}
	}
	everywhere("shop_coat", "shop_hat")
	if n := lists(); n != 1 {
		t.Errorf("three replicas listed the server %d times", n)
	}
	for i, r := range all {
		c := newClient(t, r.Proxy, r.url, kind{}, `{}`, reply)
		if got := c.ask("tools/call", toolCall("shop_hat", `{"size":1}`)); failed(got) {
			t.Errorf("a call of replica %d: %s", i, got.raw)
		}
		if status := r.Servers()[0]; status.State != "ready" || status.Tools != 2 {
			t.Errorf("replica %d says %+v", i, status)
		}
	}
	before := lists()
	s.list("tools", goods("hat", "wig")...)
	s.tell(t, "notifications/tools/list_changed", `{}`)
	everywhere("shop_hat", "shop_wig")
	all[0].stop()
	all = all[1:]
	await.True(t, func() bool { return lists() > before+1 }) // the next leader
	s.list("tools", goods("hat", "wig", "tie")...)
	s.tell(t, "notifications/tools/list_changed", `{}`)
	everywhere("shop_hat", "shop_tie", "shop_wig")
}

// A new session begins with what its client called in its last one, whichever replica that was at.
func TestANewSessionBeginsWithWhatWasCalledElsewhere(t *testing.T) {
	t.Parallel()
	config := configOf(t, []*script{shop(t, "shop", "hat", "coat")}, everything("found", view.ExposureRetrieve))
	config.ResumeTools = 5
	all := replicasOf(t, 2, config)
	if got := viewClient(t, all[0].Proxy, all[0].url, "found", false).ask("tools/call", toolCall("shop_hat", `{"size":1}`)); failed(got) {
		t.Fatalf("a call: %s", got.raw)
	}
	await.Nil(t, func() error {
		if got := viewClient(t, all[1].Proxy, all[1].url, "found", false).ask("tools/list", `{}`); !strings.Contains(string(got.raw), "shop_hat") {
			return fmt.Errorf("a new session is listed %s", got.raw)
		}
		return nil
	})
}

// A list that could not be stored, because others wrote for long, is stored later: even if the
// leader is told meanwhile to read what is stored.
func TestAListIsStoredWhenTheStoreIsFree(t *testing.T) {
	await.Expiry(t)
	s := shop(t, "shop", "hat", "coat")
	config := configOf(t, []*script{s})
	config.Store = postgres.Start(t)
	var log await.Log
	p, err := proxy.Open(t.Context(), config, proxy.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	refused := func() int {
		return strings.Count(log.String(), "not written to the store; the tools are known until they are stored")
	}
	runUntil(t, p)
	await.Value(t, p.Ready())
	db, err := store.Open(t.Context(), config.Store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	await.Nil(t, func() error {
		if defs, err := db.Tools(t.Context()); err != nil || len(defs) != 2 {
			return fmt.Errorf("%d tools are stored, %v", len(defs), err)
		}
		return nil
	})
	conn, err := pgx.Connect(t.Context(), config.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE tools IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	s.list("tools", goods("hat", "coat", "wig")...)
	s.tell(t, "notifications/tools/list_changed", `{}`)
	await.True(t, func() bool { return refused() > 0 })
	has(t, p, "", "shop_coat", "shop_hat", "shop_wig")
	if err := db.Replicas().Ask(t.Context(), store.Topic{Kind: store.TopicServer, Key: "shop"}, ""); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return refused() > 1 })
	if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	await.Nil(t, func() error {
		if defs, err := db.Tools(t.Context()); err != nil || len(defs) != 3 {
			return fmt.Errorf("%d tools are stored, %v", len(defs), err)
		}
		return nil
	})
	has(t, p, "", "shop_coat", "shop_hat", "shop_wig")
}

// What is held is held by all replicas, and what is approved over one is served by all.
func TestAllReplicasServeWhatIsApproved(t *testing.T) {
	s, turn := fickle(t)
	config := configOf(t, []*script{s})
	config.Changes, config.REST = nil, true
	all := replicasOf(t, 2, config)
	for _, r := range all {
		has(t, r.Proxy, "", "shop_coat", "shop_hat")
	}
	turn()
	for _, r := range all {
		has(t, r.Proxy, "", "shop_coat")
	}
	_, decide := approver(t, config)
	decide(true, "hat")
	for _, r := range all {
		has(t, r.Proxy, "", "shop_coat", "shop_hat")
	}
}

// A server with placement one has one process in all replicas, which all clients use:
// calls, progress and questions go through whichever replica they come to, and when the
// replica with the process goes, another starts one.
func TestAServerWithOneProcess(t *testing.T) {
	s := newScript(t, "kept", false, true)
	s.settings.Placement = upstream.PlacementOne
	s.list("tools", `{"name":"count"}`, `{"name":"long"}`, `{"name":"ask"}`)
	s.list("resources", `{"uri":"res://a","name":"a"}`)
	var count atomic.Int64
	s.on("tools/call count", func(r *request) {
		r.result(fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}],"unknown":1e400}`, count.Add(1)))
	})
	s.on("tools/call long", func(r *request) {
		for i := range 3 {
			r.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, part(part(r.Params, "_meta"), "progressToken"), i))
		}
		r.result(`{"content":[]}`)
	})
	s.on("tools/call ask", func(r *request) {
		answer := r.ask("elicitation/create", form.params)
		r.result(`{"content":[],"structuredContent":` + string(answer.Result) + `}`)
	})
	s.on("resources/read", func(r *request) { r.result(`{"contents":[{"uri":"res://a","text":"A"}]}`) })
	config := configOf(t, []*script{s})
	config.REST = true
	config.Store = postgres.Start(t)
	var all []*replica
	for range 3 {
		all = append(all, addReplica(t, reaching(t, config)))
	}
	everyOne := func(what string, want int) {
		t.Helper()
		for i, r := range all {
			for _, k := range []kind{{}, {modern: true}} {
				c := newClient(t, r.Proxy, r.url, k, `{"elicitation":{}}`, reply)
				if got := c.ask("tools/call", `{"name":"kept_count","arguments":{}}`); failed(got) || !strings.Contains(string(got.raw), "1e400") {
					t.Fatalf("%s: replica %d, %s: %s", what, i, k, got.raw)
				}
				if got := c.ask("tools/call", `{"name":"kept_long","arguments":{},"_meta":{"progressToken":"p"}}`); failed(got) || len(c.got("notifications/progress")) != 3 {
					t.Errorf("%s: replica %d, %s: %d reports of progress: %s", what, i, k, len(c.got("notifications/progress")), got.raw)
				}
				if got := c.ask("resources/read", `{"uri":"res://a"}`); failed(got) || !strings.Contains(string(got.raw), `"A"`) {
					t.Errorf("%s: replica %d, %s: %s", what, i, k, got.raw)
				}
			}
		}
		if n := processes(all); n != want {
			t.Errorf("%s: %d processes, want %d", what, n, want)
		}
	}
	everyOne("at first", 1)
	if n := count.Load(); n != 6 {
		t.Errorf("%d calls, want 6", n)
	}
	for i, r := range all {
		for _, k := range []kind{{}, {modern: true}} {
			c := newClient(t, r.Proxy, r.url, k, `{"elicitation":{}}`, reply)
			if got := c.call("tools/call", `{"name":"kept_ask","arguments":{}}`); failed(got) || !strings.Contains(string(got.raw), "accept") {
				t.Errorf("a question, replica %d, %s: %s", i, k, got.raw)
			}
		}
	}
	began := len(s.got("initialize"))
	for i, r := range all { // whichever is asked, the process starts again where it runs
		if status, answer := rest(t, http.MethodPost, r.url+"/api/servers/kept/reconnect", ``); status != http.StatusOK || !strings.Contains(answer, `"ready"`) {
			t.Errorf("reconnecting through replica %d: %d %s", i, status, answer)
		}
	}
	if n := len(s.got("initialize")) - began; n != 3 {
		t.Errorf("three times connected anew, the server was started %d times", n)
	}
	s.on("initialize", func(r *request) { r.fail(`{"code":-32000,"message":"out of order"}`) })
	if status, answer := rest(t, http.MethodPost, all[1].url+"/api/servers/kept/reconnect", ``); status != http.StatusBadGateway || !strings.Contains(answer, "out of order") {
		t.Errorf("reconnecting a server that does not start again: %d %s", status, answer)
	}
	s.on("initialize", nil)
	if status, answer := rest(t, http.MethodPost, all[1].url+"/api/servers/kept/reconnect", ``); status != http.StatusOK {
		t.Errorf("reconnecting it when it does: %d %s", status, answer)
	}
	everyOne("connected anew", 1)
	for i, level := range []string{"error", "info", "warning"} { // as its clients say, one at each replica
		newClient(t, all[i].Proxy, all[i].url, kind{}, `{}`, reply).ask("logging/setLevel", `{"level":"`+level+`"}`)
		is := ""
		for _, told := range s.got("logging/setLevel") {
			is = partText(told.Params, "level")
		}
		if want := []string{"error", "info", "info"}[i]; is != want {
			t.Errorf("after a client said %s the server was told %q, want %s", level, is, want)
		}
	}
	all[0].stop()
	all = all[1:]
	if status, answer := rest(t, http.MethodPost, all[1].url+"/api/servers/kept/reconnect", ``); status != http.StatusOK {
		t.Errorf("reconnecting while the server moves: %d %s", status, answer)
	}
	await.True(t, func() bool { return processes(all) == 1 })
	c := newClient(t, all[0].Proxy, all[0].url, kind{}, `{}`, reply)
	await.True(t, func() bool { return !failed(c.ask("tools/call", `{"name":"kept_count","arguments":{}}`)) })
	c = newClient(t, all[1].Proxy, all[1].url, kind{}, `{}`, reply)
	await.True(t, func() bool { return !failed(c.ask("tools/call", `{"name":"kept_count","arguments":{}}`)) })
	if n := processes(all); n != 1 {
		t.Errorf("%d processes after the first has gone", n)
	}
}

// What a server with one process asks a client of 2026-07-28, or does for it as a task, goes on through any
// replica, whichever it began at.
func TestAServerWithOneProcessIsAnsweredThroughAnyReplica(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(kind{modern: modern}.String(), func(t *testing.T) {
			s := newScript(t, "kept", modern, true)
			s.settings.Placement = upstream.PlacementOne
			if modern {
				s.capabilities = `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
			}
			s.list("tools", `{"name":"ask"}`, `{"name":"work"}`)
			var asked atomic.Int64
			s.on("tools/call ask", func(r *request) {
				if part(r.Params, "requestState") == nil {
					asked.Add(1)
				}
				if answers, ok := r.need(1, form); ok {
					r.result(`{"content":[],"structuredContent":` + string(answers[0]) + `}`)
				}
			})
			s.on("tools/call work", func(r *request) { r.result(`{"resultType":"task","taskId":"1","status":"working"}`) })
			s.on("tasks/get", func(r *request) {
				if id := partText(r.Params, "taskId"); id != "1" {
					t.Errorf("the server is asked for task %q", id)
				}
				r.result(`{"resultType":"complete","taskId":"1","status":"completed"}`)
			})
			config := configOf(t, []*script{s})
			config.Store = postgres.Start(t)
			var all []*replica
			var clients []*rawClient
			for range 3 {
				r := addReplica(t, reaching(t, config))
				all = append(all, r)
				clients = append(clients, newClient(t, r.Proxy, r.url, kind{modern: true}, `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`, reply))
			}
			const ask, work = `{"name":"kept_ask","arguments":{}}`, `{"name":"kept_work","arguments":{}}`
			for i, c := range clients {
				for j, other := range clients {
					first := c.ask("tools/call", ask)
					if partText(first.Result, "resultType") != "input_required" {
						t.Fatalf("replica %d: %s", i, first.raw)
					}
					if got := other.ask("tools/call", other.again(ask, first)); failed(got) || !strings.Contains(string(got.Result), "accept") {
						t.Errorf("asked at replica %d, answered at %d: %s", i, j, got.raw)
					}
					if !modern {
						continue
					}
					task := partText(c.ask("tools/call", work).Result, "taskId")
					if got := other.ask("tasks/get", `{"taskId":"`+task+`"}`); partText(got.Result, "status") != "completed" || partText(got.Result, "taskId") != task {
						t.Errorf("task %q of replica %d, at %d: %s", task, i, j, got.raw)
					}
				}
			}
			if got := asked.Load(); got != 9 {
				t.Errorf("%d calls were made, want 9", got)
			}
			if n := processes(all); n != 1 {
				t.Errorf("%d processes", n)
			}
		})
	}
}

// While the database is away the process runs where it did, also when it has to be started again.
func TestAServerWithOneProcessWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	s := newScript(t, "kept", false, true)
	s.settings.Placement = upstream.PlacementOne
	s.list("tools", `{"name":"count"}`)
	s.on("tools/call count", func(r *request) { r.result(`{"content":[]}`) })
	config := configOf(t, []*script{s})
	db := postgres.New(t)
	config.Store = db.Database(t)
	log := &journal{}
	var all []*replica
	var clients []*rawClient
	for range 2 {
		r := addReplica(t, reaching(t, config), proxy.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		all, clients = append(all, r), append(clients, newClient(t, r.Proxy, r.url, kind{}, `{}`, reply))
	}
	works := func(c *rawClient) bool { return !failed(c.ask("tools/call", `{"name":"kept_count","arguments":{}}`)) }
	everywhere := func(when string) {
		t.Helper()
		for i, c := range clients {
			if !works(c) {
				t.Errorf("%s a call over replica %d fails", when, i)
			}
		}
	}
	everywhere("before")
	db.Stop(t)
	await.True(t, func() bool { return strings.Count(log.String(), "this replica leads no servers") >= 2 })
	everywhere("away")
	process := all[0].Servers()[0].PID
	if process == 0 {
		t.Fatal("the process runs elsewhere")
	}
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(process, err)
	}
	await.True(t, func() bool { now := all[0].Servers()[0].PID; return now != 0 && now != process })
	await.True(t, func() bool { return works(clients[1]) })
	everywhere("with another process")
	db.Run(t)
	await.True(t, func() bool { return strings.Contains(curl(t, all[0].url, "GET", "/readyz", "").body, `"ready"`) })
	everywhere("after")
	if n := processes(all); n != 1 {
		t.Errorf("%d processes", n)
	}
}

// A replica that is told to stop answers the calls in flight that came over another replica.
func TestACallOverAnotherReplicaOutlivesLoadBalancersLookingAway(t *testing.T) {
	t.Parallel()
	s := newScript(t, "kept", false, true)
	s.settings.Placement = upstream.PlacementOne
	s.list("tools", `{"name":"wait"}`)
	called, done := make(chan struct{}), make(chan struct{})
	s.on("tools/call wait", func(r *request) {
		close(called)
		<-done
		r.result(`{"content":[]}`)
	})
	config := configOf(t, []*script{s})
	config.Store = postgres.Start(t)
	first := reaching(t, config)
	first.Cluster.Drain = 20 * time.Second
	leader, other := addReplica(t, first), addReplica(t, reaching(t, config))
	c := newClient(t, other.Proxy, other.url, kind{}, `{}`, reply)
	answer := make(chan message, 1)
	go func() { answer <- c.ask("tools/call", `{"name":"kept_wait","arguments":{}}`) }()
	await.Value(t, called)
	stopped := make(chan struct{})
	go func() { defer close(stopped); leader.stop() }()
	for _, at := range []string{strings.TrimPrefix(leader.url, "http://"), first.Cluster.Listen} {
		await.True(t, func() bool { // it takes nothing more
			conn, err := net.Dial("tcp", at)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
	}
	close(done)
	if got := await.Value(t, answer); failed(got) {
		t.Errorf("the call is answered %s", got.raw)
	}
	await.Value(t, stopped)
}

// While the replica with the process is restarted, calls wait for the next process, and none fails.
func TestCallsOfAServerWithOneProcessWaitForItsNextReplica(t *testing.T) {
	t.Parallel()
	s := newScript(t, "kept", false, true)
	s.settings.Placement = upstream.PlacementOne
	s.list("tools", `{"name":"count"}`)
	s.on("tools/call count", func(r *request) { r.result(`{"content":[]}`) })
	config := configOf(t, []*script{s})
	config.Store = postgres.Start(t)
	var all []*replica
	for i := range 3 {
		one := reaching(t, config)
		if i == 0 {
			one.Cluster.Drain = 20 * time.Second
		}
		all = append(all, addReplica(t, one))
	}
	ended := make(chan struct{})
	var calling sync.WaitGroup
	for _, r := range all[1:] {
		for _, k := range []kind{{}, {modern: true}} {
			c := newClient(t, r.Proxy, r.url, k, `{}`, reply)
			calling.Go(func() { callsUntil(t, c, ended, k.String()) })
		}
	}
	all[0].stop()
	await.True(t, func() bool { return processes(all[1:]) == 1 })
	close(ended)
	calling.Wait()
}

// callsUntil calls kept_count again and again, and once more when it is to end.
func callsUntil(t *testing.T, c *rawClient, ended <-chan struct{}, how string) {
	for last := false; !last; {
		select {
		case <-ended:
			last = true
		default:
		}
		if got := c.ask("tools/call", `{"name":"kept_count","arguments":{}}`); failed(got) {
			t.Errorf("a call %s is answered %s", how, got.raw)
			return
		}
	}
}

// A client's call that lasts longer than the drain is cut off, and does not keep the other replicas
// from hearing where they are not to call a server any more.
func TestACallThatOutlastsTheDrainCostsNoOther(t *testing.T) {
	t.Parallel()
	s := newScript(t, "kept", false, true)
	s.settings.Placement = upstream.PlacementOne
	s.list("tools", `{"name":"count"}`)
	s.on("tools/call count", func(r *request) { r.result(`{"content":[]}`) })
	slow := newScript(t, "slow", false, true)
	slow.list("tools", `{"name":"wait"}`)
	called, done := make(chan struct{}), make(chan struct{})
	slow.on("tools/call wait", func(r *request) {
		close(called)
		<-done
	})
	defer close(done)
	config := configOf(t, []*script{s, slow})
	config.Store = postgres.Start(t)
	first := reaching(t, config)
	first.Cluster.Drain = 6 * time.Second
	ending, other := addReplica(t, first), addReplica(t, reaching(t, config))
	long := newClient(t, ending.Proxy, ending.url, kind{}, `{}`, reply)
	go long.ask("tools/call", `{"name":"slow_wait","arguments":{}}`)
	await.Value(t, called)
	c := newClient(t, other.Proxy, other.url, kind{}, `{}`, reply)
	ended := make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() { callsUntil(t, c, ended, "over the other replica") })
	ending.stop()
	close(ended)
	calling.Wait()
}

// A call that waits for its client, which has no request with the replica meanwhile, is answered
// over another one while the first ends; each time that it asks.
func TestACallThatWasParkedIsAnsweredBeforeItsReplicaEnds(t *testing.T) {
	t.Parallel()
	s := newScript(t, "shop", false, true)
	s.list("tools", `{"name":"ask"}`)
	s.on("tools/call ask", func(r *request) {
		r.ask("elicitation/create", form.params)
		r.result(`{"content":[],"structuredContent":` + string(r.ask("elicitation/create", form.params).Result) + `}`)
	})
	config := configOf(t, []*script{s})
	config.Store = postgres.Start(t)
	first := reaching(t, config)
	first.Cluster.Drain = 20 * time.Second
	ending, other := addReplica(t, first), addReplica(t, reaching(t, config))
	at := func(r *replica) *rawClient {
		return newClient(t, r.Proxy, r.url, kind{modern: true}, `{"elicitation":{}}`, reply)
	}
	const call = `{"name":"shop_ask","arguments":{}}`
	asked := at(ending).ask("tools/call", call)
	if text(part(asked.Result, "resultType")) != "input_required" {
		t.Fatal(asked.raw)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); ending.stop() }()
	await.True(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(ending.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	c := at(other)
	for i := range 2 {
		if asked = c.ask("tools/call", c.again(call, asked)); failed(asked) {
			t.Fatalf("answer %d is met with %s", i+1, asked.raw)
		}
	}
	if !strings.Contains(string(asked.Result), "accept") {
		t.Errorf("the call is answered %s", asked.raw)
	}
	await.Value(t, stopped)
}

// processes is how many replicas have a process of their first server.
func processes(all []*replica) (n int) {
	for _, r := range all {
		if r.Servers()[0].PID != 0 {
			n++
		}
	}
	return n
}

// Bounds are divided by the replicas that are there, and lines of the audit log say which one wrote
// them.
func TestALimitIsDividedAgainAndAuditLinesNameTheReplica(t *testing.T) {
	t.Parallel()
	s := newScript(t, "up", false, true)
	s.list("tools", `{"name":"wait"}`, `{"name":"quick"}`)
	called, done := make(chan struct{}), make(chan struct{})
	s.on("tools/call wait", func(r *request) {
		close(called)
		<-done
		r.result(`{"content":[]}`)
	})
	s.on("tools/call quick", func(r *request) { r.result(`{"content":[]}`) })
	config := configOf(t, []*script{s})
	config.Store = postgres.Start(t)
	limited := *config
	limited.RateLimits = []rate.Rule{{Name: "rate_limits.0", Tool: "up.*", Concurrency: 2}}
	settings := audit.Settings{File: filepath.Join(t.TempDir(), "audit.jsonl"), MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge}
	log, err := audit.Open(settings, auditKey, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	named := reaching(t, config)
	named.Cluster.Name = "first"
	limited.Transport, limited.Cluster = named.Transport, named.Cluster
	one := addReplica(t, named, proxy.WithAudit(log, settings))
	c := newClient(t, one.Proxy, one.url, kind{}, `{}`, reply)
	quick := func() bool { return !failed(c.ask("tools/call", `{"name":"up_quick","arguments":{}}`)) }
	await.True(t, quick)
	other := addReplica(t, reaching(t, config))
	await.True(t, func() bool { return len(one.Status(t.Context()).Replicas.Shown) == 2 })
	if err := one.Reload(t.Context(), &limited); err != nil { // brings the first rule
		t.Fatal(err)
	}
	waiting := c.begin("tools/call", `{"name":"up_wait","arguments":{}}`)
	await.Value(t, called)
	if quick() {
		t.Error("of two replicas, one allows two calls at once, which both allow together")
	}
	other.stop()
	await.True(t, quick)
	close(done)
	if got := await.Value(t, waiting.answer); failed(got) {
		t.Errorf("the call in flight: %s", got.raw)
	}
	await.True(t, func() bool {
		calls := 0
		err := audit.Scan([]string{settings.File}, audit.Filter{}, func(l *audit.Line, _ []byte) error {
			if calls++; !strings.HasPrefix(l.Replica, "first ") {
				t.Errorf("a line of %s names the replica %q", l.Event, l.Replica)
			}
			return nil
		})
		return err == nil && calls > 3
	})
}

// A replica without a server does not make the others forget what they know of it.
func TestReplicasWithOtherServersForgetNothing(t *testing.T) {
	config := configOf(t, []*script{shop(t, "shop", "hat"), shop(t, "other", "tie")})
	all := replicasOf(t, 1, config)
	has(t, all[0].Proxy, "", "shop_hat", "other_tie")
	less := *config
	less.Servers = config.Servers[:1]
	r := addReplica(t, &less)
	has(t, r.Proxy, "", "shop_hat")
	has(t, addReplica(t, config).Proxy, "", "shop_hat", "other_tie")
	db, err := store.Open(t.Context(), config.Store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if servers, err := db.Servers(t.Context()); err != nil || len(servers) != 2 {
		t.Errorf("%d servers are stored, %v", len(servers), err)
	}
}

// A key that a replica knows is not looked up again until one is revoked, at whichever replica.
func TestAKeyThatIsRevokedIsRefusedByAllReplicas(t *testing.T) {
	config := configOf(t, nil)
	config.Store = postgres.Start(t)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	keys := keysOf(t, config, "ada", "bob")
	all := []*replica{addReplica(t, config), addReplica(t, config)}
	status := func(r *replica, who string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+keys[who])
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	for i, r := range all {
		for who := range keys {
			if got := status(r, who); got != http.StatusOK {
				t.Errorf("replica %d answers %s with %d", i, who, got)
			}
		}
	}
	revoke(t, config, "ada")
	for i, r := range all {
		await.True(t, func() bool { return status(r, "ada") == http.StatusUnauthorized })
		if got := status(r, "bob"); got != http.StatusOK {
			t.Errorf("replica %d answers who has a key yet with %d", i, got)
		}
	}
}

// What one replica keeps of a large answer its principal reads through another, and nobody else.
func TestALargeResultIsReadThroughAnyReplica(t *testing.T) {
	big := newScript(t, "big", false, false)
	big.list("tools", `{"name":"dump","inputSchema":{"type":"object"}}`)
	big.on("tools/call", func(r *request) {
		r.result(`{"content":[{"type":"text","text":"` + strings.Repeat("line of the dump\\n", 2000) + `the end"}]}`)
	})
	v := everything(view.Default, view.ExposureDirect)
	v.Tools = []view.UpstreamTools{{Name: "big", Output: &view.OutputCache{MinSize: 10_000, Preview: 500}}}
	config := configOf(t, []*script{big}, v)
	config.Store = postgres.Start(t)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	keys := keysOf(t, config, "ada", "bob")
	all := []*replica{addReplica(t, config), addReplica(t, config)}
	for _, modern := range []bool{false, true} {
		of := func(n int, who string) *rawClient {
			return newClient(t, all[n].Proxy, all[n].url, kind{modern: modern, key: keys[who]}, `{}`, reply)
		}
		got := of(0, "ada").ask("tools/call", toolCall("big_dump", `{}`))
		token := tokenIn(string(got.Result))
		if len(got.Result) > 5_000 || token == "" {
			t.Fatalf("the answer is %.600s", got.raw)
		}
		read := toolCall("read_output", `{"token":"`+token+`","lines":"2000-2001"}`)
		for n := range all {
			if got := of(n, "ada").ask("tools/call", read); failed(got) || !strings.Contains(string(got.Result), "the end") {
				t.Errorf("modern %t: who made the call reads through replica %d: %s", modern, n, got.raw)
			}
			if got := of(n, "bob").ask("tools/call", read); !failed(got) {
				t.Errorf("modern %t: another reads through replica %d: %s", modern, n, got.raw)
			}
		}
	}
}

// A balancer brings the browser of a login to any replica.
func TestALoginEndsWhereItBegan(t *testing.T) {
	as := authserver.Start(t, authserver.Settings{Clients: []authserver.Client{authserver.Inspector}})
	config := configOf(t, []*script{shop(t, "shop", "hat")})
	config.Servers = append(config.Servers, settings("notes", authserver.Protect(t, as, true).At()))
	config.Store = postgres.Start(t)
	first, second := addReplica(t, reaching(t, config)), addReplica(t, reaching(t, config))
	await.True(t, func() bool { return len(second.Status(t.Context()).Replicas.Shown) == 2 })
	pending, err := first.Login("notes").Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	back := as.Browse(t, pending.URL(), first.url)
	if got := fetch.Send(t, http.MethodGet, second.url+back.RequestURI(), ""); got.Status != http.StatusOK || !strings.HasPrefix(got.Body, "Logged in to notes.") {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	await.Value(t, pending.Done())
	if err := pending.Err(); err != nil {
		t.Error(err)
	}
	if got := fetch.Send(t, http.MethodGet, second.url+back.RequestURI(), ""); got.Status != http.StatusNotFound {
		t.Errorf("once more: %d %s", got.Status, got.Body)
	}
}

// A client of 2026-07-28 is listed the same by all replicas, whatever it was shown before and by which:
// all tools while they cost little, and what searches them since they cost more.
func TestReplicasListTheSame(t *testing.T) {
	s := shop(t, "shop", "hat")
	auto := everything("auto", view.ExposureAuto)
	auto.DirectBelow = 300
	config := configOf(t, []*script{s}, auto)
	config.Store = postgres.Start(t)
	var all []*replica
	var clients []*rawClient
	for range 2 {
		r := addReplica(t, reaching(t, config))
		all, clients = append(all, r), append(clients, viewClient(t, r.Proxy, r.url, "auto", true))
	}
	becomes := func(defs []string, exposed ...string) {
		t.Helper()
		s.list("tools", defs...)
		s.tell(t, "notifications/tools/list_changed", `{}`)
		for _, r := range all {
			has(t, r.Proxy, "auto", exposed...)
		}
	}
	listed := func(want ...string) {
		t.Helper()
		for i, c := range clients {
			if got := c.listed(); !slices.Equal(got, want) {
				t.Errorf("replica %d lists %v, want %v", i, got, want)
			}
		}
	}
	listed("shop_hat")
	first := clients[0]
	listening := (&meeting{rawClient: first}).listen(`{"toolsListChanged":true}`)
	hears := func() {
		t.Helper()
		if first.hears("notifications/tools/list_changed", listening); len(first.got("notifications/tools/list_changed")) != 1 {
			t.Errorf("it hears %d times", len(first.got("notifications/tools/list_changed")))
		}
		first.clear()
	}
	first.clear()
	var names, exposed []string
	for i := range 10 { // more than a client that comes now is listed, less than makes a session search
		names, exposed = append(names, fmt.Sprintf("item%02d", i)), append(exposed, fmt.Sprintf("shop_item%02d", i))
	}
	becomes(goods(names...), exposed...)
	hears()
	listed("retrieve_tools", "call_tool")
	becomes(goods(names[:9]...), exposed[:9]...) // which it is not listed, and does not hear of
	becomes(goods("hat"), "shop_hat")
	hears()
	listed("shop_hat")
	becomes([]string{`{"name":"sums","description":"` + strings.Repeat("7 ", 300) + `","inputSchema":{"type":"object"}}`}, "shop_sums") // costs more than its size says
	listed("retrieve_tools", "call_tool")
}
