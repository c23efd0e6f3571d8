package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/tool"
)

const everything = `{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}`

// asked is a client of the legacy era that answers every question with its key.
func asked(key string) *tool.Client {
	return &tool.Client{Key: key, Capabilities: json.RawMessage(everything),
		Ask: func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			if params == nil {
				params = json.RawMessage(`null`)
			}
			return fmt.Appendf(nil, `{"from":%q,"method":%q,"params":%s}`, key, method, params), nil
		}}
}

func callAs(t testing.TB, p *Pool, client *tool.Client, name, arguments string) (string, error) {
	t.Helper()
	result, err := p.Call(t.Context(), def("s", name), &tool.Call{Arguments: json.RawMessage(arguments), Client: client})
	return string(result), err
}

func mustCallAs(t testing.TB, p *Pool, client *tool.Client, name, arguments string) string {
	t.Helper()
	got, err := callAs(t, p, client, name, arguments)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return got
}

const question = `{"method":"elicitation/create","params":{"message":"who?","big":12345678901234567890}}`

func TestWhatAServerAsksReachesTheClientOfTheCall(t *testing.T) {
	p := newPool(t, newAsker(t, "asker"))
	for method, params := range map[string]string{
		"elicitation/create": `{"message":"<who>","big":12345678901234567890}`, "sampling/createMessage": `{"tools":[1.0]}`, "roots/list": `{"_meta":{"x":1.0}}`,
	} {
		got := mustCallAs(t, p, asked("a"), "ask", fmt.Sprintf(`{"method":%q,"params":%s}`, method, params))
		if want := fmt.Sprintf(`"result":{"from":"a","method":%q,"params":%s}`, method, params); !strings.Contains(got, want) {
			t.Errorf("%s: the server got %s, want %s", method, got, want)
		}
	}
	if got := mustCallAs(t, p, asked("a"), "ask", `{"method":"ping"}`); !strings.Contains(got, `"result":{}`) {
		t.Errorf("ping: %s", got)
	}
	if got := mustCallAs(t, p, asked("a"), "ask", `{"method":"what/ever"}`); !strings.Contains(got, `"code":-32601`) {
		t.Errorf("unknown method: %s", got)
	}
	if got := mustCallAs(t, p, asked("a"), "asks", `{"n":200}`); strings.Count(got, `"from":"a"`) != 200 {
		t.Errorf("200 questions at once: %.300s", got)
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	p := newPool(t, newAsker(t, "asker"))
	var now, most atomic.Int32
	var once sync.Once // the number may be reached again
	full, refused := make(chan struct{}), 50
	client := asked("a")
	client.Ask = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == maxAsked {
			once.Do(func() { close(full) })
		}
		<-full
		return json.RawMessage(`{"ok":1}`), nil
	}
	got := mustCallAs(t, p, client, "asks", fmt.Sprintf(`{"n":%d}`, maxCallAsks+refused))
	answered, busy := strings.Count(got, `"ok":1`), strings.Count(got, "too many requests")
	if most.Load() > maxAsked || answered != maxCallAsks || busy != refused {
		t.Errorf("%d at once, %d answered, %d refused", most.Load(), answered, busy)
	}
}

func TestWhatAClientCannotAnswer(t *testing.T) {
	refusing := func(err error) *tool.Client {
		c := asked("a")
		c.Ask = func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return nil, err }
		return c
	}
	p := newPool(t, newAsker(t, "asker"))
	for name, test := range map[string]struct {
		client *tool.Client
		want   string
	}{
		"nobody":          {nil, `"code":-32601`},
		"no Ask":          {&tool.Client{Key: "a"}, `"code":-32601`},
		"its own error":   {refusing(&tool.RPCError{Code: -1, Message: "declined", Raw: json.RawMessage(`{"code":-1,"message":"declined","x":1.0}`)}), `"error":{"code":-1,"message":"declined","x":1.0}`},
		"a fault of ours": {refusing(errors.New("secret detail")), `"code":-32603`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustCallAs(t, p, test.client, "ask", question); !strings.Contains(got, test.want) || strings.Contains(got, "secret") {
				t.Errorf("the server got %s, want %s", got, test.want)
			}
		})
	}
	// For a client of the 2026-07-28 era a missing capability is the answer to its call.
	missing := &tool.RPCError{Code: tool.CodeMissingCapability, Message: "elicitation is needed"}
	_, err := callAs(t, p, refusing(missing), "ask", question)
	var rpc *tool.RPCError
	if !errors.As(err, &rpc) || rpc.Code != tool.CodeMissingCapability {
		t.Errorf("error = %v, want the missing capability", err)
	}
}

func TestAskingStopsTheClockOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAsker(t, "asker")
		s.CallTimeout, s.AskTimeout = time.Second, time.Minute
		p := newPool(t, s)
		slow := asked("a")
		slow.Ask = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			time.Sleep(s.AskTimeout - time.Second)
			return json.RawMessage(`{"late":true}`), nil
		}
		if got := mustCallAs(t, p, slow, "ask", question); !strings.Contains(got, `"late":true`) {
			t.Errorf("the server got %s", got)
		}
		_, err := callAs(t, p, slow, "hang", `{}`)
		wantError(t, err, "s", ErrTimeout)
		never := asked("a")
		never.Ask = func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if got := mustCallAs(t, p, never, "ask", question); !strings.Contains(got, "did not answer") {
			t.Errorf("the server got %s, want to be told of the timeout", got)
		}
	})
}

func TestAskingEndsWithItsReason(t *testing.T) {
	s := newAsker(t, "asker")
	p := newPool(t, s)
	started, ended := make(chan struct{}, 1), make(chan error, 1)
	waits := asked("a")
	waits.Ask = func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	withdrawn := make(chan error, 1)
	go func() {
		_, err := callAs(t, p, waits, "withdraw", `{}`)
		withdrawn <- err
	}()
	<-started
	stageOf(s).put("withdraw", "")
	if why := <-ended; !errors.Is(why, errWithdrawn) {
		t.Errorf("asking ended with %v", why)
	}
	if err := <-withdrawn; err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Call(ctx, def("s", "ask"), &tool.Call{Arguments: json.RawMessage(question), Client: waits})
		done <- err
	}()
	<-started
	cancel() // the client gives its call up; the server is told that it gets no answer, and may be quick to end
	if why := <-ended; !errors.Is(why, context.Canceled) {
		t.Errorf("asking ended with %v", why)
	}
	if err := <-done; err != nil {
		wantError(t, err, "s", context.Canceled)
	}
}

// Two clients at once, until the server is known to ask: nobody gets the
// other's question, though nothing says whose it is.
func TestQuestionsThatCouldBeAnybodysWaitOrFail(t *testing.T) {
	t.Parallel()
	s := newAsker(t, "asker")
	s.Isolate = IsolateNever
	p := newPool(t, s)
	var crossed, failed atomic.Int32
	var calls sync.WaitGroup
	for _, key := range []string{"a", "b"} {
		calls.Go(func() {
			client := asked(key)
			client.Ask = func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
				if string(jsonMember(params, "message")) != fmt.Sprintf("%q", key) {
					crossed.Add(1)
				}
				return json.RawMessage(`{"ok":1}`), nil
			}
			got := mustCallAs(t, p, client, "ask", fmt.Sprintf(`{"method":"elicitation/create","params":{"message":%q}}`, key))
			if strings.Contains(got, "cannot tell which client") {
				failed.Add(1)
			} else if !strings.Contains(got, `"ok":1`) {
				t.Errorf("the server got %s", got)
			}
		})
	}
	calls.Wait()
	if crossed.Load() != 0 || failed.Load() > 1 {
		t.Errorf("%d questions reached the other client, %d of 2 failed", crossed.Load(), failed.Load())
	}
}

// Which of a client's calls wants to know is not said: sent beside one of them,
// that one's answer would have to wait.
func TestAQuestionOfOneOfSeveralCallsGoesBesideThemAll(t *testing.T) {
	for _, reaches := range []bool{true, false} {
		beside := make(chan string, 1)
		p := newPoolWith(t, nil, Events{
			Reaches: func(string) bool { return reaches },
			Ask: func(_ context.Context, key, _ string, _ json.RawMessage) (json.RawMessage, error) {
				beside <- key
				return json.RawMessage(`{"beside":1}`), nil
			},
		}, newAsker(t, "asker"))
		mustCallAs(t, p, asked("a"), "echo", `{}`)
		ctx, cancel := context.WithCancel(t.Context())
		hung := make(chan struct{})
		go func() {
			defer close(hung)
			_, _ = p.Call(ctx, def("s", "hang"), &tool.Call{Client: asked("a")})
		}()
		one := p.now.Load().byName["s"]
		await.True(t, func() bool { return len(one.main.current().calls.about(0)) == 1 })
		got := mustCallAs(t, p, asked("a"), "ask", question)
		if strings.Contains(got, `"beside":1`) != reaches || len(beside) == 1 != reaches {
			t.Errorf("reaches %t: the server got %s", reaches, got)
		}
		cancel()
		<-hung
	}
}

func TestOfSeveralThatCannotBeAskedNobodyIs(t *testing.T) {
	p := newPool(t, newAsker(t, "asker"))
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan struct{})
	go func() {
		defer close(hung)
		_, _ = p.Call(ctx, def("s", "hang"), &tool.Call{Client: &tool.Client{Key: "a"}})
	}()
	one := p.now.Load().byName["s"]
	await.True(t, func() bool {
		c := one.main.current()
		return c != nil && len(c.calls.about(0)) == 1
	})
	if got := mustCallAs(t, p, &tool.Client{Key: "b"}, "ask", question); !strings.Contains(got, `"code":-32601`) {
		t.Errorf("the server got %s", got)
	}
	cancel()
	<-hung
}

func TestAnInteractiveServerIsNotShared(t *testing.T) {
	t.Parallel()
	p := newPoolWith(t, map[string]Known{"s": {Era: EraLegacy, Interactive: true}}, Events{}, newAsker(t, "asker"))
	var calls sync.WaitGroup
	for i := range 200 {
		key := fmt.Sprint(i % 4)
		calls.Go(func() {
			got := mustCallAs(t, p, asked(key), "ask", fmt.Sprintf(`{"method":"sampling/createMessage","params":{"n":%d}}`, i))
			if want := fmt.Sprintf(`{"from":%q,"method":"sampling/createMessage","params":{"n":%d}}`, key, i); !strings.Contains(got, want) {
				t.Errorf("call %d: %s", i, got)
			}
		})
	}
	calls.Wait()
	pid := func(c *tool.Client) string {
		got := mustCallAs(t, p, c, "echo", `{}`)
		return string(jsonMember(json.RawMessage(got), "pid"))
	}
	pids := map[string]bool{}
	for i := range 4 {
		pids[pid(asked(fmt.Sprint(i)))] = true
	}
	if len(pids) != 4 {
		t.Errorf("4 clients had %d connections", len(pids))
	}
	// Those that cannot be asked share one.
	shared := pid(nil)
	if other := pid(&tool.Client{Key: "mute"}); other != shared || pids[shared] {
		t.Errorf("two that cannot be asked: processes %s and %s", shared, other)
	}
	if again := pid(asked("2")); !pids[again] {
		t.Error("a client was given another connection")
	}
	p.Forget("2")
	if again := pid(asked("2")); pids[again] && len(p.now.Load().byName["s"].sharing.connectors()) > 5 {
		t.Error("the connection of a client that left is still there")
	}
}

func TestAConnectionOfItsOwnDeclaresItsClient(t *testing.T) {
	s := newAsker(t, "asker")
	s.Isolate = IsolateAlways
	p := newPool(t, s)
	hello := func(c *tool.Client) string {
		return string(jsonMember(jsonMember(json.RawMessage(mustCallAs(t, p, c, "echo", `{}`)), "hello"), "capabilities"))
	}
	if got := hello(asked("main")); got != capabilities {
		t.Errorf("the main connection declares %s, want %s", got, capabilities)
	}
	own := asked("other")
	own.Capabilities = json.RawMessage(`{"sampling":{"x":1.0},"tasks":{},"elicitation":{"form":{"applyDefaults":true}}}`)
	if got, want := hello(own), `{"sampling":{"x":1.0},"elicitation":{"form":{"applyDefaults":true}}}`; got != want {
		t.Errorf("another declares %s, want %s", got, want)
	}
	if got := hello(&tool.Client{Key: "mute"}); got != `{}` {
		t.Errorf("one for all that cannot be asked declares %s", got)
	}
}

func TestRootsOutsideOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		roots := func(_ context.Context, key, method string, _ json.RawMessage) (json.RawMessage, error) {
			return fmt.Appendf(nil, `{"roots":[{"uri":"file:///of-%s"}]}`, key), nil
		}
		client := func(key string) *tool.Client {
			c := asked(key)
			c.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
				return roots(ctx, key, method, params)
			}
			return c
		}
		p := newPoolWith(t, nil, Events{Ask: roots}, newAsker(t, "asker-at-once"))
		seen := func(key string, want string) {
			t.Helper()
			await.Contains(t, func() string { return mustCallAs(t, p, client(key), "seen", `{}`) }, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		changes := make(chan Change, 20)
		watched := make(chan error, 1)
		go func() { watched <- p.Watch(ctx, changes) }()
		defer func() { cancel(); <-watched }()
		await.True(t, func() bool { return (<-changes).Interactive }) // it asks at once, before anybody called
		seen("a", `"result":{"roots":[]}`)
		// The connection is a's now, and the server learns that the roots are others.
		seen("a", `notifications/roots/list_changed`)
		mustCallAs(t, p, client("a"), "later", `{}`)
		seen("a", `file:///of-a`)
		// Another's is another, and its first question is for that one.
		seen("b", `file:///of-b`)
		if got := mustCallAs(t, p, client("b"), "seen", `{}`); strings.Contains(got, "of-a") || strings.Contains(got, "list_changed") {
			t.Errorf("b's connection saw %s", got)
		}
		p.RootsChanged("b")
		seen("b", `notifications/roots/list_changed`)
		p.Forget("a") // whose connection nobody else gets: the server over it knows a's roots
		mustCallAs(t, p, nil, "later", `{}`)
		mustCallAs(t, p, client("c"), "later", `{}`)
		seen("c", `file:///of-c`)
	})
}

func TestTheURLThatWasOpenedIsToldToItsClient(t *testing.T) {
	told := make(chan string, 10)
	events := Events{Notify: func(key, method string, params json.RawMessage) { told <- key + " " + method + string(params) }}
	p := newPoolWith(t, nil, events, newAsker(t, "asker"))
	mustCallAs(t, p, asked("a"), "ask", `{"method":"elicitation/create","params":{"mode":"url","elicitationId":"id1","url":"https://example.com"}}`)
	say := func(id string) string {
		return `{"method":"notifications/elicitation/complete","params":{"elicitationId":"` + id + `"}}`
	}
	mustCallAs(t, p, nil, "say", say("unknown"))
	mustCallAs(t, p, nil, "say", say("id1"))
	want := `notifications/elicitation/complete{"elicitationId":"id1"}`
	if got := <-told; got != "a "+want {
		t.Errorf("told %s", got)
	}
	// While it makes a call, over that.
	var got []string
	_, err := p.Call(t.Context(), def("s", "say"), &tool.Call{Arguments: json.RawMessage(say("id1")), Client: asked("a"),
		Notify: func(method string, params json.RawMessage) { got = append(got, method+string(params)) }})
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("notified %v, %v", got, err)
	}
	// A refusal that names a URL is remembered too.
	_, err = callAs(t, p, asked("b"), "url", `{}`)
	var rpc *tool.RPCError
	if !errors.As(err, &rpc) || rpc.Code != tool.CodeURLElicitation {
		t.Errorf("error = %v", err)
	}
	mustCallAs(t, p, nil, "say", say("e1"))
	if got := <-told; !strings.HasPrefix(got, "b ") {
		t.Errorf("told %s", got)
	}
}

// Over HTTP a message belongs to the request on whose stream it came.
func TestWhatComesOnAStreamBelongsToItsCall(t *testing.T) {
	u := newPlainHTTP(t)
	u.answers = make(chan string, 10)
	other, back := make(chan string), make(chan string)
	var both sync.WaitGroup
	both.Add(2)
	u.calls["ask"] = func(w http.ResponseWriter, id string, params json.RawMessage) {
		both.Done()
		both.Wait() // both calls are in flight
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":%s}}\n\n", jsonMember(params, "arguments"))
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"sampling/createMessage\",\"params\":%s}\n\n", id, jsonMember(params, "arguments"))
		w.(http.Flusher).Flush()
		answer := <-u.answers
		if string(jsonMember(json.RawMessage(answer), "id")) != id { // the other call's
			select { // the calls exchange what they got
			case other <- answer:
				answer = <-back
			case mine := <-other:
				back <- answer
				answer = mine
			}
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"heard\":%s}}\n\n", id, answer)
	}
	s := u.settings()
	s.Isolate = IsolateNever
	p := newPool(t, s)
	var calls sync.WaitGroup
	for _, key := range []string{"a", "b"} {
		calls.Go(func() {
			client := asked(key)
			client.Ask = func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
				if got := string(jsonMember(params, "for")); got != fmt.Sprintf("%q", key) {
					t.Errorf("%s was asked what was for %s", key, got)
				}
				return json.RawMessage(`{"n":12345678901234567890}`), nil
			}
			var notified []string
			result, err := p.Call(t.Context(), def("s", "ask"), &tool.Call{
				Arguments: fmt.Appendf(nil, `{"for":%q}`, key), Client: client,
				Notify: func(_ string, params json.RawMessage) { notified = append(notified, string(params)) },
			})
			if err != nil || !strings.Contains(string(result), `"result":{"n":12345678901234567890}`) {
				t.Errorf("%s: %s, %v", key, result, err)
			}
			if want := fmt.Sprintf(`{"data":{"for":%q}}`, key); len(notified) != 1 || notified[0] != want {
				t.Errorf("%s was notified of %v, want %s", key, notified, want)
			}
		})
	}
	calls.Wait()
}

// A server of a library, with two clients that each call many times at once.
func TestARealServerAsksOverHTTP(t *testing.T) {
	handler := mcpserver.NewStreamableHTTPServer(newEliciting(), mcpserver.WithStateful(true))
	settings := newRestartable(t, func() http.Handler { return handler }).settings("s", "/mcp")
	settings.Protocol, settings.Isolate = ProtocolLegacy, IsolateAlways
	p := newPool(t, settings)
	var calls sync.WaitGroup
	for i := range 16 { // the library queues ten questions a session
		key := fmt.Sprint(i % 2)
		client := asked(key)
		client.Ask = func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
			if who := string(jsonMember(params, "message")); who != fmt.Sprintf("%q", key) {
				t.Errorf("%s was asked what was for %s", key, who)
			}
			return json.RawMessage(`{"action":"accept","content":{"model":"of ` + key + `"}}`), nil
		}
		calls.Go(func() {
			if got := mustCallAs(t, p, client, "elicit", `{"who":"`+key+`"}`); !strings.Contains(got, `of `+key) {
				t.Errorf("client %s got %s", key, got)
			}
		})
	}
	calls.Wait()
}

// In the transport of 2024-11-05 everything comes on one stream, and answers
// are posted to where it says.
func TestAServerAsksOverSSE(t *testing.T) {
	out := make(chan string, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "event: endpoint\ndata: /post\n\n")
			for {
				w.(http.Flusher).Flush()
				select {
				case text := <-out:
					fmt.Fprintf(w, "event: message\ndata: %s\n\n", text)
				case <-r.Context().Done():
					return
				}
			}
		}
		w.WriteHeader(http.StatusAccepted)
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		switch m.Method {
		case "initialize":
			out <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"sse","version":"1"}}}`, m.ID)
		case "tools/call":
			out <- fmt.Sprintf(`{"jsonrpc":"2.0","id":"of %s","method":"roots/list"}`, m.ID)
		case "": // the answer
			id := strings.TrimPrefix(strings.Trim(string(m.ID), `"`), "of ")
			out <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"heard":%s}}`, id, m.Result)
		}
	})
	settings := newRestartable(t, func() http.Handler { return handler }).settings("s", "/sse")
	settings.Transport = TransportSSE
	if got := mustCallAs(t, newPool(t, settings), asked("a"), "any", `{}`); !strings.Contains(got, `"from":"a"`) {
		t.Errorf("the server heard %s", got)
	}
}
