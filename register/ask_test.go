package register

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	waits "toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/register/transport"
	"toolfinch/tool"
)

// everything is a client that can be asked anything.
const everything = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}`

func hello(capabilities string) string {
	return `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"clientInfo":{"name":"asked","version":"1"}}}`
}

// conversation is a client over some transport. post sends a message and
// returns where the messages about it arrive: of streamable HTTP its own
// response, of the others the one stream of the connection.
type conversation struct {
	t       testing.TB
	session string
	peer    *peer // of streamable HTTP, else nil
	post    func(message string) <-chan string
	listen  func() <-chan string // what belongs to no request
	leave   func()               // ends the session
}

func TestMain(m *testing.M) {
	pipes.Install()
	os.Exit(m.Run())
}

// await returns the first message that contains text.
func await(t testing.TB, messages <-chan string, text string) string {
	t.Helper()
	for {
		message := waits.Value(t, messages)
		if message == "" {
			t.Fatalf("the messages ended before %q", text)
		}
		if strings.Contains(message, text) {
			return message
		}
	}
}

// receive returns what a channel delivers.
func receive[T any](t testing.TB, from <-chan T, _ string) T {
	t.Helper()
	return waits.Value(t, from)
}

// eventually waits for a condition that nothing signals.
func eventually(t testing.TB, _ string, holds func() bool) {
	t.Helper()
	waits.True(t, holds)
}

// pump sends the data lines of an event stream that say something, or the lines of anything else.
func pump(from io.Reader, events bool, to chan<- string) {
	defer close(to)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "" || !events {
			to <- data
		}
	}
}

// stream posts a message and returns the messages of the answer as they come.
func (p *peer) stream(body string, header ...string) <-chan string {
	p.t.Helper()
	response := p.post(body, header...)
	messages := make(chan string, 1000)
	go func() {
		defer response.Body.Close()
		pump(response.Body, strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream"), messages)
	}()
	return messages
}

func overHTTP(t testing.TB, url, capabilities string) *conversation {
	t.Helper()
	p := &peer{t: t, url: url}
	response := p.post(hello(capabilities))
	response.Body.Close()
	if p.session = response.Header.Get("Mcp-Session-Id"); p.session == "" {
		t.Fatalf("initialize: %s, no session", response.Status)
	}
	return &conversation{
		t: t, session: p.session, peer: p,
		post: func(message string) <-chan string { return p.stream(message) },
		listen: func() <-chan string {
			messages, stop := p.listen()
			t.Cleanup(stop)
			return messages
		},
		leave: func() { p.do(http.MethodDelete, "").Body.Close() },
	}
}

func overStdio(t testing.TB, live *Live, greeting string) *conversation {
	t.Helper()
	before := sessionIDs(live)
	d := serveStdio(t, t.Context(), live)
	var session string
	eventually(t, "the session is open", func() bool {
		for id := range sessionIDs(live) {
			if !before[id] {
				session = id
			}
		}
		return session != ""
	})
	messages := make(chan string, 10000)
	go func() {
		defer close(messages)
		for d.lines.Scan() {
			messages <- d.lines.Text()
		}
	}()
	t.Cleanup(func() {
		d.in.Close()
		for range messages {
		}
		<-d.ended
	})
	c := &conversation{
		t: t, session: session,
		post:   func(message string) <-chan string { d.send(message); return messages },
		listen: func() <-chan string { return messages },
		leave:  func() { d.in.Close() },
	}
	if greeting != "" {
		await(t, c.post(greeting), `"id":"i"`)
	}
	return c
}

// sessionIDs are the IDs of the sessions that there are.
func sessionIDs(live *Live) map[string]bool {
	live.sessions.mu.Lock()
	defer live.sessions.mu.Unlock()
	ids := map[string]bool{}
	for id := range live.sessions.byID {
		ids[id] = true
	}
	return ids
}

// serveSSE serves the transport of 2024-11-05.
func serveSSE(t testing.TB, live *Live) string {
	t.Helper()
	mux := http.NewServeMux()
	sse := transport.NewSSE(live, transport.NewClients(transport.Limits{}), "/message", slog.New(slog.DiscardHandler))
	mux.HandleFunc("/sse", sse.Events)
	mux.HandleFunc("/message", sse.Messages)
	server := pipes.NewServer(t, mux)
	t.Cleanup(live.EndStreams)
	return server.URL
}

func overSSE(t testing.TB, url, capabilities string) *conversation {
	t.Helper()
	response := must.Get(http.Get(url + "/sse"))(t)
	messages := make(chan string, 10000)
	go pump(response.Body, true, messages)
	t.Cleanup(func() { response.Body.Close() })
	endpoint := await(t, messages, "sessionId=")
	_, session, _ := strings.Cut(endpoint, "sessionId=")
	c := &conversation{
		t: t, session: session,
		post: func(message string) <-chan string {
			answer, err := http.Post(url+endpoint, "application/json", strings.NewReader(message))
			if err != nil {
				t.Error(err)
				return messages
			}
			answer.Body.Close()
			return messages
		},
		listen: func() <-chan string { return messages },
		leave:  func() { response.Body.Close() },
	}
	await(t, c.post(hello(capabilities)), `"id":"i"`)
	return c
}

// transports runs a test with a legacy client over each transport.
func transports(t *testing.T, capabilities string, settings setup, test func(t *testing.T, live *Live, c *conversation)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, live *Live) *conversation{
		"http":  func(t *testing.T, live *Live) *conversation { return overHTTP(t, serveHTTP(t, live), capabilities) },
		"stdio": func(t *testing.T, live *Live) *conversation { return overStdio(t, live, hello(capabilities)) },
		"sse":   func(t *testing.T, live *Live) *conversation { return overSSE(t, serveSSE(t, live), capabilities) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := newLive(t, settings)
				asker(t, live)
				test(t, live, open(t, live))
			})
		})
	}
}

// asker adds srv_ask, a tool that asks the client what its arguments say and
// answers with what came back.
func asker(t testing.TB, live *Live) {
	addTool(t, live, "srv_ask", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		answer, err := call.Client.Ask(ctx, rawjson.Text(rawjson.Member(call.Arguments, "method")), rawjson.Member(call.Arguments, "params"))
		if err != nil {
			return nil, err
		}
		return tool.Result(`{"content":[],"answered":` + string(answer) + `}`), nil
	})
}

func addTool(t testing.TB, live *Live, name string, handler tool.Handler) {
	t.Helper()
	live.served(identity.Party{}).Source.(catalog)[name] = newTool(t, name, handler)
}

// odd are parameters with everything a typed structure would lose.
const odd = `{"message":"<&>\u00e9","big":123456789012345678901234567890,"f":1.0,"requestedSchema":{"type":"object","x":null},"unknown":[1e400]}`

func ask(id int, method, params string) string {
	return call(id, "srv_ask", `{"method":"`+method+`","params":`+params+`}`)
}

// idOf is the ID of a request that a client was sent.
func idOf(request string) string { return rawjson.Text(rawjson.Member([]byte(request), "id")) }

func reply(id, result string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","result":` + result + `}`
}

func TestAClientIsAskedInTheMiddleOfItsCall(t *testing.T) {
	for _, method := range []string{"elicitation/create", "sampling/createMessage", "roots/list"} {
		t.Run(method, func(t *testing.T) {
			transports(t, everything, setup{}, func(t *testing.T, _ *Live, c *conversation) {
				messages := c.post(ask(1, method, odd))
				asked := await(t, messages, method)
				want := `{"jsonrpc":"2.0","id":"` + idOf(asked) + `","method":"` + method + `","params":` + odd + `}`
				if asked != want {
					t.Errorf("asked\n got %s\nwant %s", asked, want)
				}
				c.post(reply(idOf(asked), strange))
				want = `{"jsonrpc":"2.0","id":1,"result":{"content":[],"answered":` + strange + `}}`
				if got := await(t, messages, `"id":1`); got != want {
					t.Errorf("answered\n got %s\nwant %s", got, want)
				}
			})
		})
	}
}

func TestTheStreamOfACallTakesItsQuestionsNotTheGetStream(t *testing.T) {
	live := newLive(t, setup{})
	asker(t, live)
	c := overHTTP(t, serveHTTP(t, live), everything)
	other := c.listen()
	messages := c.post(ask(1, "roots/list", `{}`))
	response := c.peer.post(reply(idOf(await(t, messages, "roots/list")), `{"roots":[]}`))
	response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Errorf("the answer was met with %s, want 202", response.Status)
	}
	await(t, messages, `"id":1`)
	select {
	case got := <-other:
		t.Errorf("the GET stream got %s", got)
	default:
	}
}

func TestAnErrorOfTheClientArrivesAsItIs(t *testing.T) {
	const refused = `{"code":-1,"message":"no <&>","data":{"big":12345678901234567890},"more":1}`
	transports(t, everything, setup{}, func(t *testing.T, live *Live, c *conversation) {
		failed := make(chan error, 1)
		addTool(t, live, "srv_refused", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			_, err := call.Client.Ask(ctx, "roots/list", nil)
			failed <- err
			return nil, err
		})
		messages := c.post(call(1, "srv_refused", `{}`))
		asked := await(t, messages, "roots/list")
		if want := `{"jsonrpc":"2.0","id":"` + idOf(asked) + `","method":"roots/list","params":{}}`; asked != want {
			t.Errorf("asked %s, want %s: no params were given", asked, want)
		}
		c.post(`{"jsonrpc":"2.0","id":"` + idOf(asked) + `","error":` + refused + `}`)
		if got, want := await(t, messages, `"id":1`), `{"jsonrpc":"2.0","id":1,"error":`+refused+`}`; got != want {
			t.Errorf("answer\n got %s\nwant %s", got, want)
		}
		var rpc *tool.RPCError
		if err := <-failed; !errors.As(err, &rpc) || rpc.Code != -1 || rpc.Message != "no <&>" || string(rpc.Raw) != refused {
			t.Errorf("Ask: %#v", err)
		}
	})
}

func TestOnlyTheSessionThatWasAskedAnswers(t *testing.T) {
	live := newLive(t, setup{})
	asker(t, live)
	url, sse := serveHTTP(t, live), serveSSE(t, live)
	c, other, third := overHTTP(t, url, everything), overHTTP(t, url, everything), overSSE(t, sse, everything)
	messages := c.post(ask(1, "roots/list", `{}`))
	id := idOf(await(t, messages, "roots/list"))
	for _, test := range []struct{ name, session, id string }{
		{"another session", other.session, id},
		{"no session", "", id},
		{"a session of another transport", third.session, "toolfinch-7"},
		{"a forged session", "forged", id},
		{"an ID that was not used yet", c.session, strings.TrimSuffix(id, "1") + "2"},
	} {
		p := *c.peer
		p.session = test.session
		response := p.post(reply(test.id, `{"roots":["stolen"]}`))
		response.Body.Close()
		if response.StatusCode < 400 {
			t.Errorf("%s: %s, want it refused", test.name, response.Status)
		}
	}
	third.post(reply(id, `{"roots":["stolen"]}`))
	c.post(`{"jsonrpc":"2.0","id":1,"result":{"roots":["stolen"]}}`)
	c.post(reply(id, `{"roots":["own"]}`))
	if got := await(t, messages, `"id":1,`); !strings.Contains(got, `"answered":{"roots":["own"]}`) {
		t.Errorf("answer = %s", got)
	}
	response := c.peer.post(reply(id, `{"roots":["again"]}`))
	response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Errorf("a second answer: %s, want 202: it comes too late, and nobody is wrong", response.Status)
	}
}

func TestWhatIsNoAnswerIsNotTaken(t *testing.T) {
	transports(t, everything, setup{}, func(t *testing.T, _ *Live, c *conversation) {
		messages := c.post(ask(1, "roots/list", `{}`))
		id := idOf(await(t, messages, "roots/list"))
		for _, message := range []string{
			reply(strings.TrimSuffix(id, "1")+"9", `{"roots":["unknown"]}`),
			reply("toolfinch-1", `{"roots":["of another process"]}`),
			`{"jsonrpc":"2.0","id":"` + id + `"}`,
			`{"jsonrpc":"2.0","id":null,"result":{"roots":["null"]}}`,
			`{"jsonrpc":"2.0","id":"` + id + `","method":"nope","result":{"roots":["a request"]}}`,
			`{"jsonrpc":"2.0","id":"` + id + `","result":{"roots":["cut`,
		} {
			c.post(message)
		}
		c.post(reply(id, `{"roots":["own"]}`))
		if got := await(t, messages, `"id":1,`); !strings.Contains(got, `"answered":{"roots":["own"]}`) {
			t.Errorf("answer = %s", got)
		}
	})
}

func TestAQuestionThatIsGivenUpIsCancelled(t *testing.T) {
	transports(t, everything, setup{}, func(t *testing.T, live *Live, c *conversation) {
		giveUp := make(chan struct{})
		enough := errors.New("enough")
		addTool(t, live, "srv_impatient", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			go func() { <-giveUp; cancel(enough) }()
			if _, err := call.Client.Ask(ctx, "roots/list", nil); !errors.Is(err, enough) {
				t.Errorf("Ask: %v, want the cause of its context", err)
			}
			return tool.TextResult("went on"), nil
		})
		messages := c.post(call(1, "srv_impatient", `{}`))
		id := idOf(await(t, messages, "roots/list"))
		close(giveUp)
		want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + id + `","reason":"no longer needed"}}`
		if got := await(t, messages, "cancelled"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		c.post(reply(id, `{}`)) // too late, and nobody minds
		await(t, messages, "went on")
	})
}

func TestTheEndOfASessionEndsItsQuestions(t *testing.T) {
	var forgotten chan string
	transports(t, everything, setup{Forget: func(session string) { forgotten <- session }}, func(t *testing.T, live *Live, c *conversation) {
		forgotten = make(chan string, 10)
		failed := make(chan error, 1)
		addTool(t, live, "srv_left", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			_, err := call.Client.Ask(ctx, "roots/list", nil)
			failed <- err
			return nil, err
		})
		s := live.session(c.session)
		await(t, c.post(call(1, "srv_left", `{}`)), "roots/list")
		c.leave()
		if err := receive(t, failed, "the end of Ask"); !errors.Is(err, errClientGone) && !errors.Is(err, context.Canceled) {
			t.Errorf("Ask: %v", err)
		}
		if got := receive(t, forgotten, "Forget"); got != c.session {
			t.Errorf("forgot %q, want %q", got, c.session)
		}
		if live.session(c.session) != nil {
			t.Error("the session is still known")
		}
		s.clientRequests.mu.Lock()
		defer s.clientRequests.mu.Unlock()
		if len(s.waiting) > 0 {
			t.Errorf("%d questions are left", len(s.waiting))
		}
	})
}

// A client that has closed stdin can answer nothing: its calls must not use up
// the time that others get to finish.
func TestNobodyIsAskedOnceStdinIsClosed(t *testing.T) {
	live := newLive(t, setup{})
	asked, failed := make(chan struct{}), make(chan error, 2)
	addTool(t, live, "srv_stubborn", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		close(asked)
		for range 2 {
			_, err := call.Client.Ask(ctx, "roots/list", nil)
			failed <- err
		}
		return tool.TextResult("gave up"), nil
	})
	c := overStdio(t, live, hello(everything))
	messages := c.post(call(1, "srv_stubborn", `{}`))
	<-asked
	await(t, messages, "roots/list")
	c.leave()
	if got := await(t, messages, ""); !strings.Contains(got, "gave up") {
		t.Errorf("got %s, want no further question and the answer", got)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, errClientGone) {
			t.Errorf("Ask: %v", err)
		}
	}
}

// Each call asks several things at once and must get the answers to its own.
func TestQuestionsOfManyCallsDoNotCross(t *testing.T) {
	const calls, asks = 100, 3
	live := newLive(t, setup{})
	addTool(t, live, "srv_many", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		var all sync.WaitGroup
		wrong := make(chan string, asks)
		for n := range asks {
			all.Go(func() {
				params := fmt.Sprintf(`{"session":%q,"of":%s,"n":%d}`, call.Session, call.Arguments, n)
				got, err := call.Client.Ask(ctx, "elicitation/create", json.RawMessage(params))
				if want := `{"echo":` + params + `}`; err != nil || string(got) != want {
					wrong <- fmt.Sprintf("%s, %v; want %s", got, err, want)
				}
			})
		}
		all.Wait()
		select {
		case mistake := <-wrong:
			return tool.ErrorResult(mistake), nil
		default:
			return tool.TextResult("right"), nil
		}
	})
	url, sse := serveHTTP(t, live), serveSSE(t, live)
	var sessions sync.WaitGroup
	answer := func(c *conversation, message string) bool {
		id := rawjson.Member([]byte(message), "id")
		params := rawjson.Member([]byte(message), "params")
		if rawjson.Text(rawjson.Member([]byte(message), "method")) != "elicitation/create" {
			return false
		}
		if session := rawjson.Text(rawjson.Member(params, "session")); session != c.session {
			t.Errorf("session %s was asked %s", c.session, message)
		}
		c.post(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{"echo":` + string(params) + `}}`)
		return true
	}
	for _, c := range []*conversation{overHTTP(t, url, everything), overHTTP(t, url, everything)} {
		sessions.Go(func() {
			var all sync.WaitGroup
			limit := make(chan struct{}, 8)
			for i := range calls {
				limit <- struct{}{}
				all.Go(func() {
					defer func() { <-limit }()
					got := 0
					for message := range c.post(call(i, "srv_many", fmt.Sprint(i))) {
						if answer(c, message) {
							got++
							if !strings.Contains(message, fmt.Sprintf(`"of":%d,`, i)) {
								t.Errorf("the stream of call %d got %s", i, message)
							}
						} else if !strings.Contains(message, fmt.Sprintf(`"id":%d,`, i)) || !strings.Contains(message, "right") {
							t.Errorf("call %d: %s", i, message)
						}
					}
					if got != asks {
						t.Errorf("call %d was asked %d times on its stream", i, got)
					}
				})
			}
			all.Wait()
		})
	}
	for _, c := range []*conversation{overStdio(t, live, hello(everything)), overSSE(t, sse, everything)} {
		sessions.Go(func() {
			for i := range calls {
				c.post(call(i, "srv_many", fmt.Sprint(i)))
			}
			for done := 0; done < calls; {
				message := await(t, c.listen(), "")
				if !answer(c, message) {
					done++
					if !strings.Contains(message, "right") {
						t.Errorf("%s", message)
					}
				}
			}
		})
	}
	sessions.Wait()
}

// An answer, the end of the context and the end of the session may come at
// once: Ask ends with one of them, and nothing stays behind.
func TestAnswerCancelAndEndAtOnce(t *testing.T) {
	for range 200 {
		s := newSession("s")
		ctx, cancel := context.WithCancel(t.Context())
		sent := make(chan json.RawMessage, 2)
		var all sync.WaitGroup
		all.Go(func() {
			got, err := s.ask(ctx, func(message []byte) bool { sent <- message; return true }, "roots/list", nil)
			if err == nil && string(got) != `{}` || err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errClientGone) {
				t.Errorf("ask: %s, %v", got, err)
			}
		})
		answer := []byte(`{"jsonrpc":"2.0","id":` + string(rawjson.Member(<-sent, "id")) + `,"result":{}}`)
		for range 2 {
			all.Go(func() { s.answered(parseReply(t, answer)) })
		}
		all.Go(cancel)
		all.Go(s.end)
		all.Wait()
		if len(s.waiting) > 0 || !s.answered(parseReply(t, answer)) {
			t.Fatal("a question was left behind, or a late answer was refused")
		}
	}
}

func TestCheckAsk(t *testing.T) {
	const form, url, both = `{"elicitation":{"form":{}}}`, `{"elicitation":{"url":{}}}`, `{"elicitation":{"form":{},"url":{}}}`
	const none, bare, all = `{}`, `{"elicitation":{}}`, everything
	const ok = 0
	for _, test := range []struct {
		capabilities, method, params string
		legacy, modern               int
		required                     string // of the modern error
	}{
		{none, "elicitation/create", `{}`, tool.CodeMethodNotFound, tool.CodeMissingCapability, `{"elicitation":{}}`},
		{none, "sampling/createMessage", `{}`, tool.CodeMethodNotFound, tool.CodeMissingCapability, `{"sampling":{}}`},
		{none, "roots/list", ``, tool.CodeMethodNotFound, tool.CodeMissingCapability, `{"roots":{}}`},
		{``, "roots/list", ``, tool.CodeMethodNotFound, tool.CodeMissingCapability, `{"roots":{}}`},
		{`{"roots":{}}`, "sampling/createMessage", `{}`, tool.CodeMethodNotFound, tool.CodeMissingCapability, `{"sampling":{}}`},
		{`{"roots":{}}`, "roots/list", ``, ok, ok, ``},
		{`{"sampling":{"tools":{}}}`, "sampling/createMessage", `{}`, ok, ok, ``},
		{`{"sampling":{"tools":{}}}`, "sampling/createMessage", `{"tools":[]}`, ok, ok, ``},
		{`{"sampling":{}}`, "sampling/createMessage", `{"messages":[]}`, ok, ok, ``},
		{`{"sampling":{}}`, "sampling/createMessage", `{"tools":[]}`, tool.CodeInvalidParams, tool.CodeMissingCapability, `{"sampling":{"tools":{}}}`},
		{`{"sampling":{}}`, "sampling/createMessage", `{"toolChoice":{}}`, tool.CodeInvalidParams, tool.CodeMissingCapability, `{"sampling":{"tools":{}}}`},
		{bare, "elicitation/create", `{}`, ok, ok, ``},
		{bare, "elicitation/create", `{"mode":"form"}`, ok, ok, ``},
		{bare, "elicitation/create", `{"mode":"url"}`, tool.CodeInvalidParams, tool.CodeMissingCapability, `{"elicitation":{"url":{}}}`},
		{form, "elicitation/create", `{"mode":"form"}`, ok, ok, ``},
		{form, "elicitation/create", `{"mode":"url"}`, tool.CodeInvalidParams, tool.CodeMissingCapability, `{"elicitation":{"url":{}}}`},
		{url, "elicitation/create", `{"mode":"url"}`, ok, ok, ``},
		{url, "elicitation/create", `{"mode":"form"}`, tool.CodeInvalidParams, tool.CodeMissingCapability, `{"elicitation":{"form":{}}}`},
		{url, "elicitation/create", `{}`, tool.CodeInvalidParams, tool.CodeMissingCapability, `{"elicitation":{"form":{}}}`},
		{both, "elicitation/create", `{"mode":"url"}`, ok, ok, ``},
		{both, "elicitation/create", `{}`, ok, ok, ``},
		{all, "ping", `{}`, tool.CodeMethodNotFound, tool.CodeMethodNotFound, ``},
		{all, "tools/list", ``, tool.CodeMethodNotFound, tool.CodeMethodNotFound, ``},
	} {
		for modern, want := range map[bool]int{false: test.legacy, true: test.modern} {
			c := &tool.Client{Modern: modern, Capabilities: json.RawMessage(test.capabilities)}
			err := checkSupported(c, test.method, json.RawMessage(test.params))
			var rpc *tool.RPCError
			errors.As(err, &rpc)
			switch {
			case want == ok:
				if err != nil {
					t.Errorf("%s %s with %s, modern %t: %v", test.method, test.params, test.capabilities, modern, err)
				}
			case rpc == nil || rpc.Code != want:
				t.Errorf("%s %s with %s, modern %t: %v, want code %d", test.method, test.params, test.capabilities, modern, err, want)
			case want == tool.CodeMissingCapability && string(rawjson.Member(rpc.Data, "requiredCapabilities")) != test.required:
				t.Errorf("%s with %s: data %s, want %s required", test.method, test.capabilities, rpc.Data, test.required)
			}
		}
	}
}

func TestAClientWithoutTheCapabilityIsNotAsked(t *testing.T) {
	transports(t, `{"sampling":{}}`, setup{}, func(t *testing.T, _ *Live, c *conversation) {
		got := await(t, c.post(ask(1, "elicitation/create", odd)), "")
		if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"the client does not support elicitation"}}`; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

func TestWhatAClientSaysOfItselfReachesTheHandlerRaw(t *testing.T) {
	const declared = `{"roots":{"listChanged":true,"x":9007199254740993},"future/thing":{"<&>":1.0},"elicitation":{}}`
	transports(t, declared, setup{}, func(t *testing.T, live *Live, c *conversation) {
		seen := make(chan *tool.Client, 1)
		addTool(t, live, "srv_look", func(_ context.Context, call *tool.Call) (tool.Result, error) {
			seen <- call.Client
			return tool.TextResult("seen"), nil
		})
		await(t, c.post(call(1, "srv_look", `{}`)), "seen")
		if got := <-seen; got.Key != c.session || got.Modern || string(got.Capabilities) != declared || got.LogLevel != "" {
			t.Errorf("client = %+v, capabilities %s", got, got.Capabilities)
		}
	})
}

func TestAskOutsideOfACall(t *testing.T) {
	transports(t, everything, setup{}, func(t *testing.T, live *Live, c *conversation) {
		messages := c.listen()
		answered := make(chan string, 1)
		go func() {
			got, err := live.Ask(t.Context(), c.session, "roots/list", json.RawMessage(odd))
			answered <- fmt.Sprintf("%s %v", got, err)
		}()
		asked := await(t, messages, "roots/list")
		if want := `{"jsonrpc":"2.0","id":"` + idOf(asked) + `","method":"roots/list","params":` + odd + `}`; asked != want {
			t.Errorf("asked\n got %s\nwant %s", asked, want)
		}
		c.post(reply(idOf(asked), strange))
		if got := receive(t, answered, "the answer"); got != strange+" <nil>" {
			t.Errorf("Ask = %s", got)
		}

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := live.Ask(ctx, c.session, "roots/list", nil)
			answered <- fmt.Sprint(err)
		}()
		id := idOf(await(t, messages, "roots/list"))
		cancel()
		if got := await(t, messages, "cancelled"); !strings.Contains(got, `"requestId":"`+id+`"`) {
			t.Errorf("cancelled %s", got)
		}
		if got := receive(t, answered, "the end of Ask"); got != context.Canceled.Error() {
			t.Errorf("Ask: %s", got)
		}

		go func() {
			_, err := live.Ask(t.Context(), c.session, "roots/list", nil)
			answered <- fmt.Sprint(err)
		}()
		await(t, messages, "roots/list")
		c.leave()
		if got := receive(t, answered, "the end of Ask"); got != errClientGone.Error() {
			t.Errorf("after the session ended, Ask: %s", got)
		}
	})
}

func TestAskOfNobody(t *testing.T) {
	live := newLive(t, setup{})
	if _, err := live.Ask(t.Context(), "unknown", "roots/list", nil); !errors.Is(err, errClientGone) {
		t.Errorf("an unknown session: %v", err)
	}
	c := overHTTP(t, serveHTTP(t, live), `{}`)
	var rpc *tool.RPCError
	if _, err := live.Ask(t.Context(), c.session, "roots/list", nil); !errors.As(err, &rpc) || rpc.Code != tool.CodeMethodNotFound {
		t.Errorf("a session without the capability: %v", err)
	}
}

func TestChangedRootsAreToldOfTheirSession(t *testing.T) {
	var changed chan string
	transports(t, everything, setup{RootsChanged: func(session string) { changed <- session }}, func(t *testing.T, _ *Live, c *conversation) {
		changed = make(chan string, 1)
		c.post(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		if got := receive(t, changed, "RootsChanged"); got != c.session {
			t.Errorf("told of %q, want %q", got, c.session)
		}
	})
}

func parseReply(t testing.TB, message []byte) *wire.Inbound {
	t.Helper()
	messages, _, _ := wire.ParseMessages(message)
	if len(messages) != 1 || !messages[0].IsReply() {
		t.Fatalf("no reply: %s", message)
	}
	return messages[0]
}
