package register

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/register/transport"
	"toolfinch/tool"
)

// newcomer is a 2026-07-28 client: every request says all of it.
type newcomer struct {
	t            testing.TB
	url          string        // of streamable HTTP, else
	stdio        *conversation // all messages arrive on one stream
	capabilities string
	meta         string // further members of _meta, each after a comma
}

// body is a request; members are those of params, without braces.
func (n *newcomer) body(id int, method, members string) string {
	if members != "" {
		members += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s,"io.modelcontextprotocol/clientInfo":{"name":"new","version":"1"}%s}}}`,
		id, method, members, n.capabilities, n.meta)
}

// headers mirror the body.
func (n *newcomer) headers(method, members string) []string {
	headers := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	key := "name"
	switch method {
	case "resources/read":
		key = "uri"
	case "tasks/get", "tasks/update", "tasks/cancel":
		key = "taskId"
	case "tools/call", "prompts/get":
	default:
		return headers
	}
	return append(headers, "Mcp-Name", rawjson.Text(rawjson.Member([]byte("{"+members+"}"), key)))
}

// request sends and returns where the messages about it arrive.
func (n *newcomer) request(id int, method, members string) <-chan string {
	n.t.Helper()
	if n.stdio != nil {
		return n.stdio.post(n.body(id, method, members))
	}
	p := &peer{t: n.t, url: n.url}
	return p.stream(n.body(id, method, members), n.headers(method, members)...)
}

// answer is the response to a request, with everything before it skipped.
func (n *newcomer) answer(id int, method, members string) string {
	n.t.Helper()
	return await(n.t, n.request(id, method, members), fmt.Sprintf(`"id":%d,`, id))
}

// status is the HTTP status of a request, and its answer.
func (n *newcomer) status(id int, method, members string) (int, string) {
	n.t.Helper()
	p := &peer{t: n.t, url: n.url}
	response := p.post(n.body(id, method, members), n.headers(method, members)...)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// newcomers runs a test with a 2026-07-28 client over HTTP and stdio.
func newcomers(t *testing.T, capabilities string, settings setup, test func(t *testing.T, live *Live, n *newcomer)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, live *Live) *newcomer{
		"http":  func(t *testing.T, live *Live) *newcomer { return &newcomer{url: serveHTTP(t, live)} },
		"stdio": func(t *testing.T, live *Live) *newcomer { return &newcomer{stdio: overStdio(t, live, "")} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := newLive(t, settings)
				asker(t, live)
				n := open(t, live)
				n.t, n.capabilities = t, capabilities
				test(t, live, n)
			})
		})
	}
}

func asking(method, params string) string {
	return `"name":"srv_ask","arguments":{"method":"` + method + `","params":` + params + `}`
}

// stateOf returns the requestState of an input_required answer.
func stateOf(t testing.TB, message string) string {
	t.Helper()
	result := rawjson.Member([]byte(message), "result")
	state := rawjson.Text(rawjson.Member(result, "requestState"))
	if rawjson.Text(rawjson.Member(result, "resultType")) != "input_required" || state == "" {
		t.Fatalf("want input_required, got %s", message)
	}
	return state
}

func (l *Live) suspendedNow() int {
	l.suspended.mu.Lock()
	defer l.suspended.mu.Unlock()
	return len(l.suspended.byState)
}

func TestAModernClientIsAskedByInputRequired(t *testing.T) {
	for _, method := range []string{"elicitation/create", "sampling/createMessage", "roots/list"} {
		t.Run(method, func(t *testing.T) {
			newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
				first := n.answer(1, "tools/call", asking(method, odd))
				state := stateOf(t, first)
				want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"1":{"method":"` + method + `","params":` + odd + `}},"requestState":"` + state + `"}}`
				if first != want {
					t.Errorf("asked\n got %s\nwant %s", first, want)
				}
				second := n.answer(2, "tools/call", asking(method, odd)+`,"inputResponses":{"1":`+strange+`},"requestState":"`+state+`"`)
				want = `{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[],"answered":` + strange + `}}`
				if second != want {
					t.Errorf("answered\n got %s\nwant %s", second, want)
				}
				if live.suspendedNow() != 0 {
					t.Error("the call is still suspended")
				}
			})
		})
	}
}

// Prompts and resources are asked about as tools are.
func TestEveryKindOfCallMayAsk(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		handler := func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			answer, err := call.Client.Ask(ctx, "roots/list", nil)
			return tool.Result(`{"answered":` + string(answer) + `}`), err
		}
		addItem(t, live, tool.KindPrompt, "p", `{"name":"p"}`, handler)
		addItem(t, live, tool.KindResource, "x:r", `{"uri":"x:r","name":"r"}`, handler)
		for method, members := range map[string]string{"prompts/get": `"name":"p"`, "resources/read": `"uri":"x:r"`} {
			first := n.answer(1, method, members)
			if strings.Contains(first, "ttlMs") || strings.Contains(first, "cacheScope") {
				t.Errorf("%s: a question is not to be cached: %s", method, first)
			}
			if !strings.Contains(first, `"method":"roots/list","params":{}}`) { // on which the Go SDK insists
				t.Errorf("%s: a question without params: %s", method, first)
			}
			second := n.answer(2, method, members+`,"inputResponses":{"1":{"n":1.0}},"requestState":"`+stateOf(t, first)+`"`)
			if !strings.Contains(second, `"answered":{"n":1.0}`) || !strings.Contains(second, `"resultType":"complete"`) {
				t.Errorf("%s: %s", method, second)
			}
		}
	})
}

func TestWhatIsAskedTogetherIsAnsweredTogetherOrAskedAgain(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		addTool(t, live, "srv_two", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			answers := make([]string, 2)
			var both sync.WaitGroup
			for i := range answers {
				both.Go(func() {
					answer, err := call.Client.Ask(ctx, "elicitation/create", json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)))
					answers[i] = fmt.Sprintf("%s %v", answer, err)
				})
			}
			both.Wait()
			return tool.TextResult(strings.Join(answers, ", ")), nil
		})
		first := n.answer(1, "tools/call", `"name":"srv_two"`)
		key := map[string]string{} // by what was asked
		for k, request := range rawjson.Members(rawjson.Member(rawjson.Member([]byte(first), "result"), "inputRequests")) {
			key[string(rawjson.Member(request, "params"))] = k
		}
		if len(key) != 2 {
			t.Fatalf("want two questions in one answer: %s", first)
		}
		retry := func(id int, state, responses string) string {
			return n.answer(id, "tools/call", `"name":"srv_two","inputResponses":{`+responses+`},"requestState":"`+state+`"`)
		}
		state := stateOf(t, first)
		second := retry(2, state, `"`+key[`{"n":0}`]+`":"zero","unknown":"ignored"`)
		again := rawjson.Member(rawjson.Member([]byte(second), "result"), "inputRequests")
		if want := `{"` + key[`{"n":1}`] + `":{"method":"elicitation/create","params":{"n":1}}}`; string(again) != want {
			t.Errorf("asked again %s, want %s", again, want)
		}
		if next := stateOf(t, second); next == state {
			t.Error("the second question has the state of the first")
		} else if third := retry(3, next, `"`+key[`{"n":0}`]+`":"late","`+key[`{"n":1}`]+`":"one"`); !strings.Contains(third, `"text":"\"zero\" <nil>, \"one\" <nil>"`) {
			t.Errorf("answer = %s", third)
		}
	})
}

func TestAStateContinuesItsOwnCallAndOnlyOnce(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		addTool(t, live, "srv_other", func(context.Context, *tool.Call) (tool.Result, error) { return tool.TextResult("other"), nil })
		state := stateOf(t, n.answer(1, "tools/call", asking("roots/list", `{}`)))
		refused := func(what, members string) {
			t.Helper()
			if n.stdio == nil {
				if status, got := n.status(2, "tools/call", members); status != http.StatusBadRequest {
					t.Errorf("%s: status %d, want 400: %s", what, status, got)
				}
			}
			if got := n.answer(2, "tools/call", members); !strings.Contains(got, `"error":{"code":-32602,`) {
				t.Errorf("%s: %s, want -32602", what, got)
			}
		}
		const answers = `,"inputResponses":{"1":{"roots":[]}},"requestState":`
		refused("another tool's name", `"name":"srv_other"`+answers+`"`+state+`"`)
		refused("a state nobody gave", asking("roots/list", `{}`)+answers+`"`+state[:len(state)-1]+`"`)
		refused("a state without its end", asking("roots/list", `{}`)+answers+`"`+wire.SuspendedPrefix+`"`)
		if live.suspendedNow() != 1 {
			t.Fatal("the call is not where it was")
		}
		if got := n.answer(3, "tools/call", asking("roots/list", `{}`)+answers+`"`+state+`"`); !strings.Contains(got, `"answered":{"roots":[]}`) {
			t.Errorf("its own retry: %s", got)
		}
		refused("a state that was used", asking("roots/list", `{}`)+answers+`"`+state+`"`)
		// What is not ours is the upstream's and starts a call.
		if got := n.answer(4, "tools/call", `"name":"srv_other"`+answers+`"sealed by an upstream"`); !strings.Contains(got, `"other"`) {
			t.Errorf("a state of an upstream: %s", got)
		}
	})
}

func TestOfTwoRetriesOneContinues(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, _ *Live, n *newcomer) {
		for range 20 {
			state := stateOf(t, n.answer(1, "tools/call", asking("roots/list", `{}`)))
			retry := func(id int) <-chan string {
				return n.request(id, "tools/call", asking("roots/list", `{}`)+`,"inputResponses":{"1":{}},"requestState":"`+state+`"`)
			}
			var got []string
			if n.stdio != nil {
				messages := retry(2)
				retry(3)
				got = []string{await(t, messages, `"id":`), await(t, messages, `"id":`)}
			} else {
				got = make([]string, 2)
				var both sync.WaitGroup
				for i := range got {
					both.Go(func() { got[i] = <-retry(i + 2) })
				}
				both.Wait()
			}
			both := strings.Join(got, "\n")
			if strings.Count(both, `"answered":{}`) != 1 || strings.Count(both, `"code":-32602`) != 1 {
				t.Fatalf("want one to continue and one to be refused:\n%s", both)
			}
		}
	})
}

func TestAModernClientWithoutTheCapability(t *testing.T) {
	newcomers(t, `{"roots":{}}`, setup{}, func(t *testing.T, _ *Live, n *newcomer) {
		const want = `{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"the client lacks a capability that this needs: elicitation","data":{"requiredCapabilities":{"elicitation":{}}}}}`
		for _, capabilities := range []string{`{"roots":{}}`, `{}`} {
			n.capabilities = capabilities
			if got := n.answer(1, "tools/call", asking("elicitation/create", `{}`)); got != want {
				t.Errorf("with %s\n got %s\nwant %s", capabilities, got, want)
			}
		}
		if n.stdio == nil {
			if status, _ := n.status(1, "tools/call", asking("elicitation/create", `{}`)); status != http.StatusBadRequest {
				t.Errorf("status %d, want 400", status)
			}
		}
	})
}

func TestWhatAModernClientSaysOfItself(t *testing.T) {
	newcomers(t, "", setup{}, func(t *testing.T, live *Live, n *newcomer) {
		seen := make(chan *tool.Client, 2)
		addTool(t, live, "srv_look", func(_ context.Context, call *tool.Call) (tool.Result, error) {
			seen <- call.Client
			return tool.TextResult("seen"), nil
		})
		keys := map[string]bool{}
		n.meta = `,"io.modelcontextprotocol/logLevel":"notice"`
		for _, capabilities := range []string{`{"future/thing":{"<&>":9007199254740993}}`, `{"roots":{"x":1.0}}`} {
			n.capabilities = capabilities
			n.answer(1, "tools/call", `"name":"srv_look"`)
			got := <-seen
			if !got.Modern || string(got.Capabilities) != capabilities || got.LogLevel != "notice" || got.Ask == nil {
				t.Errorf("client = %+v, capabilities %s", got, got.Capabilities)
			}
			keys[got.Key] = true
		}
		if len(keys) != 2 {
			t.Errorf("two calls have the keys %v, want one each", keys)
		}
	})
}

func TestCallsThatDoNotAskLeaveNoState(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		for range 10 {
			if got, want := n.answer(1, "tools/call", `"name":"srv_t001"`), `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",`+strange[1:]+`}`; got != want {
				t.Fatalf("got  %s\nwant %s", got, want)
			}
		}
		if live.suspendedNow() != 0 {
			t.Error("a call is suspended")
		}
		live.suspended.running.Wait()
	})
}

func TestAPanicInAHandlerCostsItsCallOnly(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		addTool(t, live, "srv_panic", func(context.Context, *tool.Call) (tool.Result, error) { panic("oh") })
		if got := n.answer(1, "tools/call", `"name":"srv_panic"`); !strings.Contains(got, `"error":{"code":-32603,"message":"internal error"}`) {
			t.Errorf("answer = %s", got)
		}
		n.answer(2, "tools/call", `"name":"srv_t001"`)
	})
}

// waiter adds srv_wait, which waits for the end of its context, and says so.
func waiter(t testing.TB, live *Live) (started, ended chan struct{}) {
	started, ended = make(chan struct{}, 10), make(chan struct{}, 10)
	addTool(t, live, "srv_wait", func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	})
	return started, ended
}

func TestAModernClientThatGoesAwayCancelsItsCall(t *testing.T) {
	for _, capabilities := range []string{`{}`, everything} {
		t.Run(capabilities, func(t *testing.T) {
			live := newLive(t, setup{})
			started, ended := waiter(t, live)
			n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: capabilities}
			ctx, leave := context.WithCancel(t.Context())
			body, headers := n.body(1, "tools/call", `"name":"srv_wait"`), n.headers("tools/call", `"name":"srv_wait"`)
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost, n.url, strings.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Accept", "application/json, text/event-stream")
			for i := 0; i < len(headers); i += 2 {
				request.Header.Set(headers[i], headers[i+1])
			}
			gone := make(chan error, 1)
			go func() {
				_, err := http.DefaultClient.Do(request)
				gone <- err
			}()
			receive(t, started, "the call")
			leave()
			receive(t, ended, "the end of the call")
			<-gone
		})
		t.Run("stdio "+capabilities, func(t *testing.T) {
			live := newLive(t, setup{})
			started, ended := waiter(t, live)
			n := &newcomer{t: t, stdio: overStdio(t, live, ""), capabilities: capabilities}
			n.request(1, "tools/call", `"name":"srv_wait"`)
			receive(t, started, "the call")
			n.stdio.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			receive(t, ended, "the end of the call")
		})
	}
}

// Modern clients over HTTP have no session, and their request IDs are the same
// all over: one must not cancel what another asked for.
func TestACancelOfOneModernClientIsNotAnothers(t *testing.T) {
	live := newLive(t, setup{})
	release := make(chan struct{})
	started := make(chan struct{})
	addTool(t, live, "srv_slow", func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		close(started)
		<-release
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return tool.TextResult("finished"), nil
	})
	n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: `{}`}
	answered := make(chan string, 1)
	go func() { answered <- n.answer(1, "tools/call", `"name":"srv_slow"`) }()
	receive(t, started, "the call")
	other := &peer{t: t, url: n.url}
	response := other.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "notifications/cancelled")
	response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Errorf("the notification: %s, want 202", response.Status)
	}
	close(release)
	if got := receive(t, answered, "the answer"); !strings.Contains(got, "finished") {
		t.Errorf("answer = %s", got)
	}
}

func TestACallWhoseClientNeverComesBackEndsWithRun(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		failed := make(chan error, 1)
		addTool(t, live, "srv_left", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			_, err := call.Client.Ask(ctx, "roots/list", nil)
			failed <- err
			return nil, err
		})
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { live.Run(ctx); close(ran) }()
		state := stateOf(t, n.answer(1, "tools/call", `"name":"srv_left"`))
		stop()
		if err := receive(t, failed, "the end of Ask"); !errors.Is(err, context.Canceled) {
			t.Errorf("Ask: %v", err)
		}
		receive(t, ran, "the end of Run")
		if got := n.answer(2, "tools/call", `"name":"srv_left","inputResponses":{},"requestState":"`+state+`"`); !strings.Contains(got, `-32602`) {
			t.Errorf("a retry after the end: %s", got)
		}
		if got := n.answer(3, "tools/call", `"name":"srv_left"`); !strings.Contains(got, errStopping.Error()) {
			t.Errorf("a call after the end: %s, want it refused: nobody would wait for it", got)
		}
	})
}

// A call that waits for its client outlives its request, but not the API key of the request.
func TestASuspendedCallEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := newLive(t, setup{})
		failed := make(chan error, 1)
		addTool(t, live, "srv_keyed", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			_, err := call.Client.Ask(ctx, "roots/list", nil)
			failed <- err
			return nil, err
		})
		var revoke func()
		left := make(chan struct{})
		keyed := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(identity.WithOutlives(r.Context(), func(end func()) func() {
					revoke = end
					return func() { close(left) }
				})))
			})
		}
		streamable := transport.NewStreamable(live, transport.NewClients(transport.Limits{}), nil, slog.New(slog.DiscardHandler))
		t.Cleanup(streamable.Close)
		n := &newcomer{t: t, url: pipes.NewServer(t, keyed(streamable)).URL, capabilities: everything}
		stateOf(t, n.answer(1, "tools/call", `"name":"srv_keyed"`))
		revoke()
		if err := receive(t, failed, "the end of Ask"); !errors.Is(err, errRevoked) {
			t.Errorf("Ask: %v", err)
		}
		receive(t, left, "the end of the registration")
	})
}

// A call that asks while Run ends must not be kept: nobody would end it.
func TestSuspendingWhileRunEnds(t *testing.T) {
	for range 50 {
		live := newLive(t, setup{})
		asker(t, live)
		n := &newcomer{t: t, stdio: overStdio(t, live, ""), capabilities: everything}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { live.Run(ctx); close(ran) }()
		messages := n.request(1, "tools/call", asking("roots/list", `{}`))
		stop()
		await(t, messages, `"id":1,`)
		receive(t, ran, "the end of Run")
		if live.suspendedNow() != 0 {
			t.Fatal("a call was kept")
		}
	}
}

func TestTheUpstreamMayGiveUpWhileTheClientThinks(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		giveUp, gaveUp := make(chan struct{}), make(chan struct{})
		addTool(t, live, "srv_impatient", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			defer close(gaveUp)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { <-giveUp; cancel() }()
			if _, err := call.Client.Ask(ctx, "roots/list", nil); !errors.Is(err, context.Canceled) {
				t.Errorf("Ask: %v", err)
			}
			return tool.TextResult("without you"), nil
		})
		state := stateOf(t, n.answer(1, "tools/call", `"name":"srv_impatient"`))
		close(giveUp)
		<-gaveUp
		got := n.answer(2, "tools/call", `"name":"srv_impatient","inputResponses":{"1":{}},"requestState":"`+state+`"`)
		if !strings.Contains(got, "without you") {
			t.Errorf("the retry: %s, want what the call came to", got)
		}
	})
}

// An upstream may ask the next thing while the client still thinks about the
// first: the retry is then met with the next question.
func TestWhatIsAskedMeanwhileIsAskedNext(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		next := make(chan struct{})
		addTool(t, live, "srv_more", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			var second json.RawMessage
			var later sync.WaitGroup
			later.Go(func() {
				<-next
				second, _ = call.Client.Ask(ctx, "elicitation/create", json.RawMessage(`{"n":2}`))
			})
			first, _ := call.Client.Ask(ctx, "elicitation/create", json.RawMessage(`{"n":1}`))
			later.Wait()
			return tool.Result(`{"content":[],"first":` + string(first) + `,"second":` + string(second) + `}`), nil
		})
		first := n.answer(1, "tools/call", `"name":"srv_more"`)
		close(next)
		live.suspended.mu.Lock()
		p := live.suspended.byState[strings.TrimPrefix(stateOf(t, first), wire.SuspendedPrefix)]
		live.suspended.mu.Unlock()
		eventually(t, "the second question", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.requests) == 2
		})
		second := n.answer(2, "tools/call", `"name":"srv_more","inputResponses":{"1":"one"},"requestState":"`+stateOf(t, first)+`"`)
		if !strings.Contains(second, `"inputRequests":{"2":{"method":"elicitation/create","params":{"n":2}}}`) {
			t.Errorf("asked next: %s", second)
		}
		third := n.answer(3, "tools/call", `"name":"srv_more","inputResponses":{"2":"two"},"requestState":"`+stateOf(t, second)+`"`)
		if !strings.Contains(third, `"first":"one","second":"two"`) {
			t.Errorf("answer = %s", third)
		}
	})
}

// Progress goes to the request that waits, under the token it gave.
func TestProgressGoesToTheRequestThatWaits(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		addTool(t, live, "srv_steps", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			for step := range 3 {
				call.Notify("notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":"first","progress":%d}`, step)))
				if step < 2 {
					if _, err := call.Client.Ask(ctx, "roots/list", nil); err != nil {
						return nil, err
					}
				}
			}
			return tool.TextResult("done"), nil
		})
		retry := func(id int, state, token string) (<-chan string, string) {
			n.meta = token
			members := `"name":"srv_steps"`
			if state != "" {
				members += fmt.Sprintf(`,"inputResponses":{"%d":{}},"requestState":"%s"`, id-1, state)
			}
			messages := n.request(id, "tools/call", members)
			if token == "" {
				return messages, ""
			}
			return messages, await(t, messages, "notifications/progress")
		}
		messages, got := retry(1, "", `,"progressToken":"first"`)
		if want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"first","progress":0}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		messages, got = retry(2, stateOf(t, await(t, messages, `"id":1,`)), `,"progressToken":22`)
		if want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":22,"progress":1}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		messages, _ = retry(3, stateOf(t, await(t, messages, `"id":2,`)), ``)
		if got := await(t, messages, ""); !strings.Contains(got, `"id":3,`) {
			t.Errorf("a request without a token got %s", got)
		}
	})
}

func TestWhatIsToldWhileNobodyWaitsIsToldLater(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		suspended := make(chan struct{})
		addTool(t, live, "srv_busy", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			go func() {
				<-suspended
				for step := range 3 {
					call.Notify("notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":"first","progress":%d}`, step)))
				}
				suspended <- struct{}{}
			}()
			if _, err := call.Client.Ask(ctx, "roots/list", nil); err != nil {
				return nil, err
			}
			return tool.TextResult("done"), nil
		})
		n.meta = `,"progressToken":"first"`
		state := stateOf(t, n.answer(1, "tools/call", `"name":"srv_busy"`))
		suspended <- struct{}{}
		<-suspended
		n.meta = `,"progressToken":"second"`
		messages := n.request(2, "tools/call", fmt.Sprintf(`"name":"srv_busy","inputResponses":{"1":{}},"requestState":"%s"`, state))
		for step := range 3 {
			want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"second","progress":%d}}`, step)
			if got := await(t, messages, ""); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if got := await(t, messages, ""); !strings.Contains(got, `"id":2,`) {
			t.Errorf("then %s, want the answer", got)
		}
	})
}

func TestNoMoreCallsAreSuspendedThanAllowed(t *testing.T) {
	live := newLive(t, setup{})
	asker(t, live)
	addItem(t, live, tool.KindPrompt, "p", `{"name":"p"}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		_, err := call.Client.Ask(ctx, "roots/list", nil)
		return nil, err
	})
	n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: everything}
	for i := range maxSuspended {
		must.Do(t, live.suspended.keep(fmt.Sprint(i), &suspendedCall{owner: fmt.Sprint(i), end: func(error) {}, bytes: live.suspended.limits.bytes, since: time.Now()}))
	}
	if got := n.answer(1, "tools/call", asking("roots/list", `{}`)); !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "too many calls wait for their clients: the limit is 1000") {
		t.Errorf("tools/call: %s", got)
	}
	if got := n.answer(2, "prompts/get", `"name":"p"`); !strings.Contains(got, `"error":{"code":-32603,"message":"`+"too many calls wait for their clients: the limit is 1000") {
		t.Errorf("prompts/get: %s", got)
	}
	live.suspended.running.Wait() // the handlers were let go

	// One that has waited for long gives way.
	left := make(chan struct{})
	live.suspended.mu.Lock()
	old := live.suspended.take("7")
	live.suspended.mu.Unlock()
	old.end, old.since = func(error) { close(left) }, time.Now().Add(-2*givesWay)
	must.Do(t, live.suspended.keep("7", old))
	stateOf(t, n.answer(3, "tools/call", asking("roots/list", `{}`)))
	receive(t, left, "the end of the call that waited longest")
	if hits := live.suspended.limits.calls.Hits(); hits != 3 {
		t.Errorf("the limit was reached %d times, want 3", hits)
	}
}

func TestAnOwnersSuspendedCallsLeaveRoomToOthers(t *testing.T) {
	k := newLive(t, setup{}).suspended
	park := func(owner string, i int) error {
		return k.keep(fmt.Sprint(owner, i), &suspendedCall{owner: owner, end: func(error) {}, bytes: k.limits.bytes, since: time.Now()})
	}
	for _, of := range []struct {
		owner string
		room  int
	}{{"a", maxSuspended / 2}, {"b", maxSuspended / 4}} {
		for i := range maxSuspended {
			if err := park(of.owner, i); (err == nil) != (i < of.room) {
				t.Fatalf("call %d of %s: %v", i, of.owner, err)
			}
		}
	}
	must.Do(t, park("c", 0))
}

// So do large ones, of which fewer find room.
func TestLargeCallsThatWaitedLongGiveWay(t *testing.T) {
	k := newLive(t, setup{}).suspended
	left := make(chan struct{})
	park := func(state string, size int64, since time.Duration, end func(error)) error {
		return k.keep(state, &suspendedCall{owner: state, end: end, bytes: k.limits.bytes, size: size, since: time.Now().Add(-since)})
	}
	must.Do(t, park("old", maxSuspendedBytes/2, 2*givesWay, func(error) { close(left) }))
	must.Do(t, park("young", maxSuspendedBytes/2, 0, func(error) {}))
	if err := park("new", maxSuspendedBytes/2, 0, func(error) {}); err != nil {
		t.Errorf("beside one that has waited for long: %v", err)
	}
	receive(t, left, "the end of the call that waited longest")
	if err := park("newer", 1, 0, func(error) {}); err == nil {
		t.Error("one more found room beside those that are young")
	}
}

// A call may end in the very moment that it is suspended: its result is
// neither lost nor kept for nobody.
func TestSuspendingRacesWithTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := newLive(t, setup{})
		addTool(t, live, "srv_fickle", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, gather)
			defer cancel()
			_, _ = call.Client.Ask(ctx, "roots/list", nil)
			return tool.TextResult("ended"), nil
		})
		n := &newcomer{t: t, stdio: overStdio(t, live, ""), capabilities: everything}
		for id := range 100 {
			got := n.answer(id, "tools/call", `"name":"srv_fickle"`)
			for strings.Contains(got, "input_required") { // more than once where the machine is slow
				got = n.answer(id, "tools/call", `"name":"srv_fickle","inputResponses":{},"requestState":"`+stateOf(t, got)+`"`)
			}
			if !strings.Contains(got, "ended") {
				t.Fatalf("answer = %s", got)
			}
		}
		if live.suspendedNow() != 0 {
			t.Error("a call is still suspended")
		}
	})
}

func TestManyModernClientsDoNotCross(t *testing.T) {
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		addTool(t, live, "srv_echo", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			answer, err := call.Client.Ask(ctx, "elicitation/create", call.Arguments)
			return tool.Result(`{"content":[],"asked":` + string(call.Arguments) + `,"answered":` + string(answer) + `}`), err
		})
		const calls = 200
		members := func(i int) string { return fmt.Sprintf(`"name":"srv_echo","arguments":{"call":%d}`, i) }
		retry := func(i int, first string) string {
			if !strings.Contains(first, fmt.Sprintf(`"params":{"call":%d}`, i)) {
				t.Errorf("call %d was asked %s", i, first)
			}
			return members(i) + fmt.Sprintf(`,"inputResponses":{"1":{"to":%d}},"requestState":"%s"`, i, stateOf(t, first))
		}
		right := func(i int) string { return fmt.Sprintf(`"asked":{"call":%d},"answered":{"to":%d}`, i, i) }
		if n.stdio == nil {
			var all sync.WaitGroup
			limit := make(chan struct{}, 16)
			for i := range calls {
				limit <- struct{}{}
				all.Go(func() {
					defer func() { <-limit }()
					// All requests have the same ID: they are different clients.
					if got := n.answer(1, "tools/call", retry(i, n.answer(1, "tools/call", members(i)))); !strings.Contains(got, right(i)) {
						t.Errorf("call %d: %s", i, got)
					}
				})
			}
			all.Wait()
			return
		}
		for i := range calls {
			n.request(i, "tools/call", members(i))
		}
		for done := 0; done < calls; {
			message := await(t, n.stdio.listen(), `"id":`)
			var i int
			_ = json.Unmarshal(rawjson.Member([]byte(message), "id"), &i)
			if i < calls {
				n.request(calls+i, "tools/call", retry(i, message))
				continue
			}
			if done++; !strings.Contains(message, right(i-calls)) {
				t.Errorf("call %d: %s", i-calls, message)
			}
		}
	})
}

func TestASuspendedCallIsContinuedByItsOwnerAlone(t *testing.T) {
	live := newLive(t, setup{})
	asker(t, live)
	n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: everything}
	p := &peer{t: t, url: n.url}
	as := func(principal, members string) string {
		headers := n.headers("tools/call", members)
		if principal != "" {
			headers = append(headers, "X-User", principal)
		}
		return await(t, p.stream(n.body(1, "tools/call", members), headers...), `"id":1`)
	}
	for _, owner := range []string{"ann", ""} {
		question := asking("roots/list", `{}`)
		state := stateOf(t, as(owner, question))
		reply := func(state string) string {
			return question + `,"inputResponses":{"1":{"roots":[]}},"requestState":"` + state + `"`
		}
		unknown := as("bob", reply(wire.SuspendedPrefix+"unknown"))
		if got := as("bob", reply(state)); got != unknown || !strings.Contains(got, "continues no call") {
			t.Errorf("bob, with the state of %q: %s\nwith one that is none: %s", owner, got, unknown)
		}
		if got := as(owner, reply(state)); !strings.Contains(got, `"answered":{"roots":[]}`) {
			t.Errorf("%q itself: %s", owner, got)
		}
	}
}
