package transport_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/register/transport"
)

// The statuses that the protocol wants.
func TestStatuses(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	session := h.session("2025-11-25")
	over := h.session("2025-11-25")
	if status, _ := h.answer(http.MethodDelete, "", over...); status != http.StatusOK {
		t.Errorf("DELETE: %d", status)
	}
	_, unknown := modern("1", "tools/list", "")
	for _, test := range []struct {
		name, method, body string
		header             []string
		status             int
	}{
		{"no session", http.MethodPost, toolCall("1", "echo"), nil, 400},
		{"no session to listen to", http.MethodGet, "", nil, 400},
		{"no session to end", http.MethodDelete, "", nil, 400},
		{"a forged session", http.MethodPost, toolCall("1", "echo"), []string{"Mcp-Session-Id", "forged"}, 404},
		{"a session that has ended", http.MethodPost, toolCall("1", "echo"), over, 404},
		{"a session that has ended, to listen to", http.MethodGet, "", over, 404},
		{"an unknown version", http.MethodPost, toolCall("1", "echo"), append([]string{"Mcp-Protocol-Version", "1999-01-01"}, session...), 400},
		{"a call", http.MethodPost, toolCall("1", "echo"), session, 200},
		{"a notification", http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session, 202},
		{"a reply to nothing", http.MethodPost, `{"jsonrpc":"2.0","id":1,"result":{}}`, session, 400},
		{"another spelling", http.MethodPost, `{"jsonrpc":"2.0","Method":"notifications/cancelled","params":{"requestId":1}}`, session, 400},
		{"a modern client that listens with GET", http.MethodGet, "", []string{"Mcp-Protocol-Version", "2026-07-28"}, 405},
		{"another method", http.MethodPut, "", session, 405},
		{"a modern header, a legacy body", http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, unknown, 400},
		{"two origins, one of them foreign", http.MethodPost, toolCall("1", "echo"), append([]string{"Origin", "http://localhost", "Origin", "https://evil.example"}, session...), 403},
		{"one origin", http.MethodPost, toolCall("1", "echo"), append([]string{"Origin", "http://localhost"}, session...), 200},
	} {
		if status, got := h.answer(test.method, test.body, test.header...); status != test.status {
			t.Errorf("%s: %d %s, want %d", test.name, status, got, test.status)
		}
	}
}

// A cancel names a request of its own caller, whatever it looks like.
func TestACancelIsOfItsCallersOwnRequest(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	mine, other := h.session("2025-11-25"), h.session("2025-11-25")
	call := h.post(toolCall("7", "wait"), mine...)
	await.Value(t, h.started)
	body, header := modern("7", "tools/call", `"name":"wait","arguments":{}`)
	modernCall := h.post(body, header...)
	await.Value(t, h.started)
	for _, cancel := range []string{
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
		`{"jsonrpc":"2.0","Method":"notifications/cancelled","params":{"requestId":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestID":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","method":"ping","params":{"requestId":7}}`,
	} {
		h.answer(http.MethodPost, cancel, other...)
		h.answer(http.MethodPost, cancel)
		h.answer(http.MethodPost, cancel, "Mcp-Protocol-Version", "2026-07-28")
	}
	if len(h.ended) > 0 {
		t.Fatal("a call ended that another client cancelled")
	}
	h.answer(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}`, mine...)
	if err := await.Value(t, h.ended); err == nil || err.Error() != "enough" {
		t.Errorf("the call ended with %v, want it cancelled with the client's reason", err)
	}
	if got := await.Value(t, call.answer); got != "" { // 2025-11-25: a receiver should not answer it
		t.Errorf("the cancelled call was answered: %s", got)
	}
	h.release <- struct{}{}
	want(t, "the other client's call", await.Value(t, modernCall.answer), "waited")
}

func TestWhatIsCutOffSaysSo(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	legacy := h.post(toolCall("1", "wait"), h.session("2025-11-25")...)
	body, header := modern("2", "tools/call", `"name":"wait","arguments":{}`)
	modern := h.post(body, header...)
	for range 2 {
		await.Value(t, h.started)
	}
	h.http.Cut()
	for what, call := range map[string]*pending{"a call of 2025-11-25": legacy, "a call of 2026-07-28": modern} {
		want(t, what, await.Value(t, call.answer), "may or may not have happened")
	}
}

func TestACallOutlivesItsConnectionWhileItCanBeAnswered(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	session := h.session("2025-11-25")
	messages, end := h.listen(session)
	call := h.post(toolCall("1", "wait"), session...)
	made := await.Value(t, h.started)
	call.drop()
	await.True(t, func() bool { // what the call says comes on the stream once the connection is known to be gone
		made.Notify("notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1}`))
		return len(messages) > 0
	})
	h.release <- struct{}{}
	if err := await.Value(t, h.ended); err != nil {
		t.Errorf("the call ended with %v, want its answer on the event stream", err)
	}
	next(t, messages, `"id":1`)

	t.Run("until the stream ends", func(t *testing.T) {
		call := h.post(toolCall("2", "wait"), session...)
		await.Value(t, h.started)
		call.drop()
		end()
		if err := await.Value(t, h.ended); err == nil {
			t.Error("the call was answered, want it cancelled: nobody can be told")
		}
	})
	t.Run("not without a stream", func(t *testing.T) {
		call := h.post(toolCall("3", "wait"), h.session("2025-11-25")...)
		await.Value(t, h.started)
		call.drop()
		if err := await.Value(t, h.ended); err == nil {
			t.Error("the call was answered, want it cancelled: nobody can be told")
		}
	})
	t.Run("not of the 2026-07-28 era", func(t *testing.T) {
		body, header := modern("4", "tools/call", `"name":"wait","arguments":{}`)
		call := h.post(body, header...)
		await.Value(t, h.started)
		call.drop()
		if err := await.Value(t, h.ended); err == nil {
			t.Error("the call was answered, want it cancelled")
		}
	})
}

// Clients of 2025-11-25 are given an ID, another one each time; older ones do not know events
// without a message.
func TestAnEventStreamBegins(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	first := func(version string) string {
		t.Helper()
		response, err := h.do(t.Context(), http.MethodPost, "/mcp", greeting(version))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		stream, err := h.do(t.Context(), http.MethodGet, "/mcp", "", "Mcp-Session-Id", response.Header.Get("Mcp-Session-Id"), "Accept", "text/event-stream")
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
		line, err := bufio.NewReader(stream.Body).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	one, other := first("2025-11-25"), first("2025-11-25")
	if !strings.HasPrefix(one, "id: ") || !strings.HasPrefix(other, "id: ") || one == other {
		t.Errorf("the streams begin with %q and %q", one, other)
	}
	if older := first("2025-06-18"); older != ": alive\n" {
		t.Errorf("that of an older client begins with %q", older)
	}
}

// Gemini CLI takes a 400 for the end of the session.
func TestALateAnswerIsTaken(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	response := must.Get(h.do(t.Context(), http.MethodPost, "/mcp", strings.Replace(greeting("2025-11-25"), `"capabilities":{}`, `"capabilities":{"roots":{}}`, 1)))(t)
	response.Body.Close()
	session := []string{"Mcp-Session-Id", response.Header.Get("Mcp-Session-Id")}
	messages, end := h.listen(session)
	defer end()
	asked := make(chan error, 1)
	ctx, withdraw := context.WithCancel(t.Context())
	go func() {
		_, err := h.live.Ask(ctx, session[1], "roots/list", nil)
		asked <- err
	}()
	id := rawjson.Text(rawjson.Member([]byte(await.Value(t, messages)), "id"))
	withdraw()
	await.Value(t, asked)
	if status, got := h.answer(http.MethodPost, `{"jsonrpc":"2.0","id":"`+id+`","result":{"roots":[]}}`, session...); status != http.StatusAccepted {
		t.Errorf("a late answer: %d %s, want 202", status, got)
	}
}

func TestBatches(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	old := h.session("2025-03-26")
	batch := `[` + toolCall("1", "echo") + `,` + toolCall(`"b"`, "echo") + `,{"jsonrpc":"2.0","method":"notifications/initialized"},{"id":3}]`
	status, got := h.answer(http.MethodPost, batch, old...)
	if status != http.StatusOK || !strings.HasPrefix(got, "[") || strings.Count(got, `"jsonrpc"`) != 3 {
		t.Errorf("a batch: %d %s", status, got)
	}
	for _, part := range []string{`"id":1,"result"`, `"id":"b","result"`, `"id":3,"error":{"code":-32600`} {
		want(t, "a batch", got, part)
	}
	_, got = h.answer(http.MethodPost, `[`+toolCall("1", "tell")+`,`+toolCall("2", "echo")+`]`, old...)
	if progress, answers := strings.Index(got, "notifications/progress"), strings.Index(got, `data: [{`); progress < 0 || answers < progress {
		t.Errorf("a batch with a notification: %s", got)
	}
	if status, got := h.answer(http.MethodPost, `[{"jsonrpc":"2.0","method":"notifications/initialized"}]`, old...); status != http.StatusAccepted || got != "" {
		t.Errorf("a batch of notifications: %d %s, want 202", status, got)
	}
	_, got = h.answer(http.MethodPost, `[`+greeting("2025-03-26")+`]`, old...)
	want(t, "initialize in a batch", got, "must not be part of a batch")
	for name, header := range map[string][]string{"2025-06-18": h.session("2025-06-18"), "2026-07-28": {"Mcp-Protocol-Version", "2026-07-28"}} {
		if status, got := h.answer(http.MethodPost, batch, header...); status != http.StatusBadRequest || !strings.Contains(got, "no JSON-RPC batches") {
			t.Errorf("a batch of %s: %d %s, want it refused", name, status, got)
		}
	}
}

// What belongs to no request waits for a stream or, where a client opens none, for
// its next request.
func TestMessagesWaitForAWayToTheClient(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	session := h.session("2025-11-25")
	h.live.Notify(session[1], "notifications/first", nil)
	_, got := h.answer(http.MethodPost, toolCall("1", "echo"), session...)
	first, answer := strings.Index(got, "notifications/first"), strings.Index(got, `"id":1`)
	if first < 0 || answer < first {
		t.Errorf("the next request brought %s, want the notification, then the answer", got)
	}
	h.live.Notify(session[1], "notifications/second", nil)
	messages, end := h.listen(session)
	defer end()
	next(t, messages, "notifications/second")
	h.live.Notify(session[1], "notifications/third", nil)
	next(t, messages, "notifications/third")
}

// A client that has the header of its stream listens: what comes then goes no other way,
// however busy the server is.
func TestAStreamIsThereWithItsHeader(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	session := h.session("2025-11-25")
	written := make(chan struct{})
	h.around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w = &stuck{ResponseWriter: w, until: written}
			}
			next.ServeHTTP(w, r)
		})
	})
	messages, end := h.listen(session)
	defer end()
	h.live.Notify(session[1], "notifications/first", nil)
	if _, got := h.answer(http.MethodPost, toolCall("1", "echo"), session...); strings.Contains(got, "notifications/first") {
		t.Errorf("a request brought %s", got)
	}
	close(written)
	next(t, messages, "notifications/first")
}

// stuck has flushes last until a channel is closed.
type stuck struct {
	http.ResponseWriter
	until chan struct{}
}

func (s *stuck) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stuck) FlushError() error {
	err := http.NewResponseController(s.ResponseWriter).Flush()
	<-s.until
	return err
}

func TestAClientThatTakesNoStreamGetsNone(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	session := h.session("2025-11-25")
	got := fetch.Send(t, http.MethodPost, h.url+"/mcp", toolCall("1", "tell"), "Accept: application/json", session[0]+": "+session[1])
	if kind := got.Header.Get("Content-Type"); kind != "application/json" || !strings.HasPrefix(got.Body, `{"jsonrpc":"2.0","id":1,"result"`) {
		t.Errorf("%s %s", kind, got.Body)
	}
}

// An event stream says that it lasts, and ends with the context of its request, in both eras
// and over HTTP+SSE; a call says nothing.
func TestEventStreamsEndWithTheirRequest(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	session := h.session("2025-11-25")
	listen, ofListen := modern("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
	call, ofCall := modern("2", "tools/call", `"name":"echo","arguments":{}`)
	for _, test := range []struct {
		name, method, path, body string
		header                   []string
		lasts                    bool
	}{
		{"the stream of a session", http.MethodGet, "/mcp", "", session, true},
		{"subscriptions/listen", http.MethodPost, "/mcp", listen, ofListen, true},
		{"HTTP+SSE", http.MethodGet, "/sse", "", nil, true},
		{"a call", http.MethodPost, "/mcp", call, ofCall, false},
		{"a call of a session", http.MethodPost, "/mcp", toolCall("3", "echo"), session, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			expire := make(chan context.CancelFunc, 1)
			h.around(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx, end := context.WithCancel(r.Context())
					defer end()
					next.ServeHTTP(w, r.WithContext(identity.WithLasts(ctx, func() { expire <- end })))
				})
			})
			response := must.Get(h.do(t.Context(), test.method, test.path, test.body, test.header...))(t)
			defer response.Body.Close()
			if test.lasts {
				await.Value(t, expire)()
			}
			if _, err := io.ReadAll(response.Body); err != nil { // to its end
				t.Error(err)
			}
			if len(expire) > 0 {
				t.Error("it says that it lasts")
			}
		})
	}
}

// A session does not go on without the credentials that opened it: not its call, not its stream.
func TestASessionEndsWithItsCredentials(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	ends := make(chan func(), 10)
	h.around(func(next http.Handler) http.Handler {
		return known(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(identity.WithOutlives(r.Context(), func(end func()) (leave func()) {
				ends <- end
				return func() {}
			})))
		}))
	})
	revoked, other := h.session("2025-11-25"), h.session("2025-11-25")
	revoke := await.Value(t, ends)
	call := h.post(toolCall("1", "wait"), revoked...)
	await.Value(t, h.started)
	revoke()
	await.Value(t, h.ended)
	want(t, "the call", await.Value(t, call.answer), "revoked")
	if status, got := h.answer(http.MethodPost, toolCall("2", "echo"), revoked...); status != http.StatusNotFound {
		t.Errorf("the session goes on: %d %s", status, got)
	}
	if status, got := h.answer(http.MethodPost, toolCall("2", "echo"), other...); status != http.StatusOK {
		t.Errorf("another session: %d %s", status, got)
	}
	if n := h.used("sessions"); n != 1 {
		t.Errorf("%d sessions are counted", n)
	}
}
