package cluster_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"toolfinch/cluster"
	"toolfinch/internal/await"
	"toolfinch/rawjson"
	"toolfinch/store"
	"toolfinch/transport"
	"toolfinch/trust"
)

// expect fails a test where an answer lacks a part.
func expect(t *testing.T, answer string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(answer, part) {
			t.Errorf("the answer lacks %q: %s", part, answer)
		}
	}
}

func TestARequestIsAnsweredWhereItsSessionLives(t *testing.T) {
	all := newTeam(t, 3, nil)
	home, b, c := all.replicas[0], all.replicas[1], all.replicas[2]
	alice := home.connect("alice")

	t.Run("a call", func(t *testing.T) {
		for _, r := range all.replicas {
			expect(t, alice.call(r, "echo", `{"x":"ü \u0001"}`), `replica-0 {\"x\":\"ü \\u0001\"}`, `"id":1`)
		}
	})
	t.Run("what is known of who calls", func(t *testing.T) {
		alice.call(b, "echo", `{}`)
		ctx := *home.by.Load()
		want := &trust.Principal{ID: "alice", Groups: []string{"ops"}, Scopes: []string{"mcp:read"}}
		if got := trust.PrincipalOf(ctx); !reflect.DeepEqual(got, want) {
			t.Errorf("the principal is %+v", got)
		}
		if got, _ := trust.SourceOf(ctx); got != (trust.Source{Address: "192.0.2.7", Transport: "http"}) {
			t.Errorf("the source is %+v", got)
		}
	})
	t.Run("a scope that is lacking", func(t *testing.T) {
		for _, r := range all.replicas {
			answer := alice.post(r, request(1, "lacks", `{}`))
			if answer.StatusCode != http.StatusForbidden || answer.Header.Get("WWW-Authenticate") != `Bearer error="insufficient_scope", scope="mcp:write"` {
				t.Errorf("at %s: %s, %v", r.me.ID, answer.Status, answer.Header)
			}
			for name := range answer.Header {
				if strings.HasPrefix(name, "Toolfinch-") {
					t.Errorf("the client is told %s", name)
				}
			}
		}
	})
	t.Run("progress comes before the answer", func(t *testing.T) {
		stream := &events{t: t, b: bufio.NewReader(alice.post(b, request(2, "wait", `{}`)).Body)}
		expect(t, stream.next(), "notifications/progress")
		home.done <- struct{}{}
		expect(t, stream.next(), "waited at replica-0", `"id":2`)
		await.Value(t, home.ended)
	})
	t.Run("a cancellation that comes elsewhere", func(t *testing.T) {
		stream := &events{t: t, b: bufio.NewReader(alice.post(b, request(3, "wait", `{}`)).Body)}
		await.Value(t, home.calls)
		stream.next()
		alice.read(alice.post(c, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"changed my mind"}}`))
		if err := await.Value(t, home.ended); err == nil || err.Error() != "changed my mind" {
			t.Errorf("the call ended with %v", err)
		}
	})
	t.Run("a client that goes away", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		answer := alice.do(ctx, http.MethodPost, b.url+"/mcp", request(4, "wait", `{}`))
		await.Value(t, home.calls)
		cancel()
		answer.Body.Close()
		if err := await.Value(t, home.ended); err == nil {
			t.Error("the call went on")
		}
	})
	t.Run("a question to the client, answered elsewhere", func(t *testing.T) {
		stream := &events{t: t, b: bufio.NewReader(alice.post(b, request(5, "ask", `{}`)).Body)}
		asked := stream.next()
		expect(t, asked, "elicitation/create")
		alice.read(alice.post(c, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, rawjson.Member([]byte(asked), "id"))))
		expect(t, stream.next(), `the client said`, `accept`)
	})
	t.Run("list_changed on a stream of another replica", func(t *testing.T) {
		expect(t, alice.finds(c, `{"tools":["echo"]}`), `"name":"echo"`)
	})
	t.Run("nobody else's", func(t *testing.T) {
		for _, user := range []string{"", "bob"} {
			bob := &client{t, alice.session, user}
			for _, r := range all.replicas {
				if answer := bob.post(r, request(1, "echo", `{}`)); answer.StatusCode != http.StatusNotFound {
					t.Errorf("%q at %s: %s", user, r.me.ID, answer.Status)
				}
			}
		}
	})
	t.Run("its end", func(t *testing.T) {
		if answer := alice.do(t.Context(), http.MethodDelete, b.url+"/mcp", ""); answer.StatusCode != http.StatusOK {
			t.Errorf("DELETE: %s", answer.Status)
		}
		await.True(t, func() bool { return len(all.rows.sessions()) == 0 })
		for _, r := range all.replicas {
			if answer := alice.post(r, request(1, "echo", `{}`)); answer.StatusCode != http.StatusNotFound {
				t.Errorf("at %s: %s", r.me.ID, answer.Status)
			}
		}
	})
}

func TestASessionThatHasEndedAndIsStoredStillIsAdoptedNowhere(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("alice")
	all.rows.drops.Lock()
	release := sync.OnceFunc(all.rows.drops.Unlock)
	defer release()
	alice.read(alice.do(t.Context(), http.MethodDelete, home.url+"/mcp", ""))
	for _, r := range all.replicas {
		if answer := alice.post(r, request(1, "echo", `{}`)); answer.StatusCode != http.StatusNotFound {
			t.Errorf("at %s: %s", r.me.ID, answer.Status)
		}
	}
	release()
	await.True(t, func() bool { return len(all.rows.sessions()) == 0 })
	if here, _ := b.homes.Sessions(); here != 0 {
		t.Errorf("%d sessions live elsewhere", here)
	}
}

func TestCallsAskTheStoreNothing(t *testing.T) {
	all := newTeam(t, 2, nil)
	alice := all.replicas[0].connect("")
	alice.call(all.replicas[1], "echo", `{}`)
	await.True(t, func() bool { return len(all.rows.sessions()) == 1 })
	all.rows.mu.Lock()
	all.rows.away = true
	all.rows.mu.Unlock()
	for _, r := range all.replicas {
		expect(t, alice.call(r, "echo", `{}`), "replica-0")
	}
}

func TestWhatIsStoredIsStoredOnce(t *testing.T) {
	all := newTeam(t, 1, nil)
	home := all.replicas[0]
	home.connect("bob")
	alice := home.connect("alice")
	alice.read(alice.post(home, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`))
	await.True(t, func() bool {
		return slices.ContainsFunc(all.rows.sessions(), func(s store.Session) bool { return strings.Contains(string(s.State), `"warning"`) })
	})
	if hash := cluster.HashOf(alice.session); slices.ContainsFunc(all.rows.sent, func(h [32]byte) bool { return h != hash }) {
		t.Error("a session that has not changed since it was opened is stored again")
	}
}

func TestASessionOverSSEIsReachedFromAnyReplica(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, other := all.replicas[0], all.replicas[1]
	alice := &client{t: t, user: "alice"}
	answer := alice.do(t.Context(), http.MethodGet, home.url+"/sse", "")
	stream := &events{t: t, b: bufio.NewReader(answer.Body)}
	endpoint := stream.next()
	if !strings.HasPrefix(endpoint, "/message?sessionId="+transport.PipedPrefix) {
		t.Fatalf("the endpoint is %q", endpoint)
	}
	send := func(message string) *http.Response {
		return alice.do(t.Context(), http.MethodPost, other.url+endpoint, message)
	}
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	expect(t, stream.next(), `"id":0`)
	send(request(1, "echo", `{}`))
	expect(t, stream.next(), `replica-0`)
	home.stop()
	if answer := send(request(2, "echo", `{}`)); answer.StatusCode != http.StatusNotFound {
		t.Errorf("after its stream the session has: %s", answer.Status)
	}
}

func TestASessionWhoseReplicaIsGoneIsAdopted(t *testing.T) {
	all := newTeam(t, 3, nil)
	home, b, c := all.replicas[0], all.replicas[1], all.replicas[2]
	alice := home.connect("alice")
	alice.read(alice.post(home, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`))
	before := alice.finds(home, `{"tools":["echo","ask"]}`)
	await.True(t, func() bool {
		rows := all.rows.sessions()
		return len(rows) == 1 && strings.Contains(string(rows[0].State), `"warning"`) && strings.Contains(string(rows[0].State), `"ask"`) && !strings.Contains(string(rows[0].State), `"stale":true`)
	})
	home.stop()

	expect(t, alice.call(b, "echo", `{}`), "replica-1")
	expect(t, alice.call(c, "echo", `{}`), "replica-1")
	if after := alice.read(alice.post(c, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)); after != before {
		t.Errorf("the tools are\n%s, and were\n%s", after, before)
	}
	if state, _ := b.live.State(alice.session); state.Level != "warning" {
		t.Errorf("the level is %q", state.Level)
	}
	alice.finds(c, `{"tools":["wait"]}`)

	b.stop()
	expect(t, alice.call(c, "echo", `{}`), "replica-2")
	if rows := all.rows.sessions(); len(rows) != 1 || rows[0].Home != "replica-2" {
		t.Errorf("the rows are %+v", rows)
	}
}

// Nobody waits any more for the answer to what the home asked that has gone.
func TestALateAnswerToAQuestionOfALostHomeReachesNobody(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("alice")
	reply := func(asked, content string) {
		answer := alice.post(b, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":{"from":%q}}}`, rawjson.Member([]byte(asked), "id"), content))
		if answer.StatusCode != http.StatusAccepted {
			t.Errorf("the answer for the %s home is met with %s", content, answer.Status)
		}
	}
	asks := func(r *replica) (*events, string) {
		stream := &events{t: t, b: bufio.NewReader(alice.post(r, request(1, "ask", `{}`)).Body)}
		return stream, stream.next()
	}
	_, late := asks(home)
	home.stop()
	stream, asked := asks(b)
	reply(late, "old")
	reply(asked, "new")
	if got := stream.next(); !strings.Contains(got, "new") || strings.Contains(got, "old") {
		t.Errorf("the call at the new home is answered %s", got)
	}
}

func TestAnAdoptedClientHearsWhatDiffers(t *testing.T) {
	all := newTeam(t, 2, func(n int, tools shelf) {
		if n == 1 {
			delete(tools, "ask")
		}
	})
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	alice.finds(home, `{"tools":["echo","ask"]}`)
	await.True(t, func() bool {
		rows := all.rows.sessions()
		return len(rows) == 1 && strings.Contains(string(rows[0].State), `"ask"`) && !strings.Contains(string(rows[0].State), `"stale":true`)
	})
	home.stop()
	expect(t, alice.listen(b).next(), "notifications/tools/list_changed")
	list := alice.read(alice.post(b, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
	expect(t, list, `"echo"`)
	if strings.Contains(list, `"ask"`) {
		t.Errorf("a tool that is not there is listed: %s", list)
	}
}

func TestOfTwoThatAdoptOneWins(t *testing.T) {
	all := newTeam(t, 3, nil)
	home := all.replicas[0]
	var clients []*client
	for range 8 {
		clients = append(clients, home.connect(""))
	}
	await.True(t, func() bool { return len(all.rows.sessions()) == len(clients) })
	home.stop()
	for _, one := range clients {
		var at [8]string
		var asking sync.WaitGroup
		for i := range at {
			asking.Go(func() { at[i] = one.call(all.replicas[1+i%2], "echo", `{}`) })
		}
		asking.Wait()
		for _, answer := range at {
			if answer != at[0] || !strings.Contains(answer, "replica-") {
				t.Errorf("the session lives in two places: %q", at)
				break
			}
		}
	}
}

func TestACallThatWasLostIsNotRepeated(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	const says = "may or may not have happened"
	// One whose answer has begun, and one whose has not.
	stream := &events{t: t, b: bufio.NewReader(alice.post(b, request(7, "wait", `{}`)).Body)}
	stream.next()
	await.Value(t, home.calls)
	asked := make(chan string, 1)
	quiet := &client{t, alice.session, ""}
	go func() {
		r, _ := http.NewRequest(http.MethodPost, b.url+"/mcp", strings.NewReader(request(8, "wait", `{}`)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json") // takes no stream
		r.Header.Set("Mcp-Session-Id", quiet.session)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			asked <- err.Error()
			return
		}
		asked <- quiet.read(answer)
	}()
	await.Value(t, home.calls)
	go home.stop()
	expect(t, stream.next(), `"id":7`, says)
	expect(t, await.Value(t, asked), `"id":8`, says)
	for range 2 { // also the one of which the answer had begun
		if what := await.Value(t, b.handed); what != "lost" {
			t.Errorf("a request that was lost counts as %s", what)
		}
	}
	expect(t, alice.call(b, "echo", `{}`), "replica-1")
	if len(b.calls) != 0 {
		t.Error("a call was made again")
	}
}

// A replica that ends says of requests that it did not take them, and then nobody listens there.
// No replica here does so on demand.
func TestACallThatAnEndingReplicaDidNotTakeIsMadeElsewhere(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	home.stop()
	ending, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ending.Close()
	secure := peer(t, key(1), key(2))
	secure.NextProtos = []string{"h2"}
	took := make(chan error, 1)
	go func() { took <- goAway(tls.NewListener(ending, secure)) }()
	var dials atomic.Int32
	b.homes.DialBy(func(ctx context.Context, network, _ string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			return nil, syscall.ECONNREFUSED
		}
		return new(net.Dialer).DialContext(ctx, network, ending.Addr().String())
	})
	expect(t, alice.call(b, "echo", `{}`), "replica-1")
	if err := await.Value(t, took); err != nil || dials.Load() < 2 {
		t.Errorf("the replica that ends: %v; it was dialled %d times", err, dials.Load())
	}
}

// goAway takes one connection over HTTP/2, and says to its first request that it was not taken
// (RFC 9113, section 6.8).
func goAway(listener net.Listener) error {
	c, err := listener.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	const preface, frameHead, headers = 24, 9, 1
	if _, err := c.Write([]byte{3: 4, frameHead - 1: 0}); err != nil { // SETTINGS, none
		return err
	}
	if _, err := io.CopyN(io.Discard, c, preface); err != nil {
		return err
	}
	for head := make([]byte, frameHead); head[3] != headers; {
		if _, err := io.ReadFull(c, head); err != nil {
			return err
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, c, length); err != nil {
			return err
		}
	}
	_, err = c.Write([]byte{2: 8, 3: 7, frameHead + 7: 0}) // GOAWAY: the last one taken is 0, no error
	return err
}

func TestACallOfTheAPIThatWasLostIsNotRepeated(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	close(b.done) // b would answer at once
	answered := make(chan *http.Response, 1)
	go func() { answered <- alice.do(t.Context(), http.MethodPost, b.url+"/api", `{"tool_id":"wait"}`) }()
	await.Value(t, home.calls)
	go home.stop()
	answer := await.Value(t, answered)
	if answer.StatusCode != http.StatusBadGateway {
		t.Errorf("it is answered %s", answer.Status)
	}
	expect(t, alice.read(answer), "may or may not have happened")
	if len(b.calls) != 0 {
		t.Error("a call was made again")
	}
}

func TestAReplicaThatEndsHandsItsSessionsOver(t *testing.T) {
	all := newTeam(t, 3, nil)
	home, b, c := all.replicas[0], all.replicas[1], all.replicas[2]
	busy, idle := home.connect("alice"), home.connect("bob")
	idleStream := idle.listen(home)
	stream := &events{t: t, b: bufio.NewReader(busy.post(c, request(1, "wait", `{}`)).Body)}
	stream.next()
	await.Value(t, home.calls)

	home.homes.Drain()
	released := make(chan struct{})
	go func() { home.http.Release(t.Context()); close(released) }()
	if got := idleStream.next(); got != "" {
		t.Errorf("the stream of an idle session carries %s", got)
	}
	// The idle session is taken by whoever is asked, the ending replica included.
	expect(t, idle.call(b, "echo", `{}`), "replica-1")
	expect(t, idle.call(home, "echo", `{}`), "replica-1")
	// Initialize goes to another replica.
	fresh := home.connect("carol")
	if answer := fresh.call(home, "echo", `{}`); strings.Contains(answer, "replica-0") {
		t.Errorf("a session was opened at a replica that ends: %s", answer)
	}
	// The next request of the busy session waits until its call is answered.
	next := make(chan string, 1)
	go func() { next <- busy.call(c, "echo", `{}`) }()
	home.done <- struct{}{}
	expect(t, stream.next(), "waited at replica-0")
	if answer := await.Value(t, next); strings.Contains(answer, "replica-0") || !strings.Contains(answer, "replica-") {
		t.Errorf("after its call the session answers %s", answer)
	}
	await.Value(t, released)
	for _, row := range all.rows.sessions() {
		if row.Home == "replica-0" {
			t.Errorf("a session is left behind: %+v", row)
		}
	}
}

func TestWhatWaitsForAClientIsHandedOver(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	home.live.Notify(alice.session, "notifications/message", json.RawMessage(`{"level":"error","data":"news"}`))
	home.homes.Drain()
	home.http.Release(t.Context())
	expect(t, alice.listen(b).next(), "news")
}

func TestOfTooMuchThatWaitsForAClientWhatFitsIsHandedOver(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	for range 30 { // 15 kB each
		home.live.Notify(alice.session, "notifications/message", json.RawMessage(fmt.Sprintf(`{"level":"error","data":%q}`, strings.Repeat("x", 15<<10))))
	}
	home.live.Notify(alice.session, "notifications/prompts/list_changed", nil)
	home.homes.Drain()
	home.http.Release(t.Context())
	stream := alice.listen(b)
	for got := stream.next(); !strings.Contains(got, "prompts/list_changed"); got = stream.next() {
		if got == "" {
			t.Fatal("the stream ended before the short message that came last")
		}
	}
}

// A replica that is told to stop while it takes a session over passes the request on.
func TestAnAdoptionThatAnEndOvertakesGoesToAnotherReplica(t *testing.T) {
	all := newTeam(t, 3, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("alice")
	home.stop()
	b.restoring = func() {
		b.homes.Drain()
		b.http.Release(context.Background())
	}
	expect(t, alice.call(b, "echo", `{}`), "replica-2")
}

func TestASessionThatWasAdoptedElsewhereEndsHere(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	hash := cluster.HashOf(alice.session)
	// As if home had been cut off for a while.
	if moved, err := all.rows.Move(t.Context(), hash, home.me.ID, b.me.ID, b.me.Address); !moved || err != nil {
		t.Fatal(moved, err)
	}
	alice.read(alice.post(home, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`)) // is stored
	await.True(t, func() bool { return !home.live.Knows(alice.session) })
	expect(t, alice.call(home, "echo", `{}`), "replica-")
}

// A replica that alone does not reach the database for long keeps no rows, and others sweep them.
func TestASessionWhoseRowIsGoneIsStoredAgain(t *testing.T) {
	all := newTeam(t, 2, nil)
	for _, home := range all.replicas { // it opens the session, and adopts it
		alice := all.replicas[0].connect("alice")
		if home != all.replicas[0] {
			all.replicas[0].http.Release(t.Context())
			expect(t, alice.call(home, "echo", `{}`), home.me.ID)
		}
		all.rows.do(func() { clear(all.rows.all) })
		alice.read(alice.post(home, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`))
		await.True(t, func() bool {
			stored := all.rows.sessions()
			return len(stored) == 1 && stored[0].Home == home.me.ID && stored[0].Principal == "alice" && len(stored[0].Initialize) > 0 && strings.Contains(string(stored[0].State), `"warning"`)
		})
		expect(t, alice.call(home, "echo", `{}`), home.me.ID)
	}
}

// BenchmarkForward measures what a call costs at its home, and over another replica.
func BenchmarkForward(b *testing.B) {
	all := newTeam(b, 2, nil)
	alice := all.replicas[0].connect("alice")
	for _, r := range all.replicas {
		for _, size := range []int{10, 10_000} {
			arguments := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", size))
			b.Run(fmt.Sprintf("%s/%d", r.me.ID, size), func(b *testing.B) {
				for b.Loop() {
					alice.call(r, "echo", arguments)
				}
			})
		}
	}
}

func TestStreamsOfOthersEndWithTheReplicaTheyComeThrough(t *testing.T) {
	all := newTeam(t, 2, nil)
	alice := all.replicas[0].connect("")
	stream := alice.listen(all.replicas[1])
	all.replicas[1].homes.EndStreams()
	if got := stream.next(); got != "" || stream.err != io.EOF {
		t.Errorf("the stream carries %q, and ends with %v", got, stream.err)
	}
}

// What a client sends and HTTP/2 does not take is no fault of the home: nobody's session moves for it.
func TestARequestThatCannotBeHandedOverIsNoFaultOfTheHome(t *testing.T) {
	all := newTeam(t, 2, nil)
	home, b := all.replicas[0], all.replicas[1]
	alice := home.connect("")
	for name, c := range map[string]struct {
		header http.Header
		want   []int
	}{
		"an upgrade": {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, []int{http.StatusOK}},
		// Which of the two depends on whether the settings of the connection are known yet.
		"more than HTTP/2 has": {http.Header{"X-Long": {strings.Repeat("x", 1<<20)}}, []int{http.StatusServiceUnavailable, http.StatusRequestHeaderFieldsTooLarge}},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = c.header
		for header, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": alice.session} {
			request.Header.Set(header, value)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text := alice.read(answer); !slices.Contains(c.want, answer.StatusCode) {
			t.Errorf("%s is answered %s %s", name, answer.Status, text)
		}
		expect(t, alice.call(b, "echo", `{}`), "replica-0") // which is not asked for the session
	}
}
