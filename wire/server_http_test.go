package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/rawjson"
)

// foreign is a message that must arrive byte for byte.
const foreign = `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"<&>\u00e9","big":123456789012345678901234567890,"f":1.0}}`

// carried is what mcp-go writes for the message: a notification of its own.
func carried(t testing.TB, message string) string {
	t.Helper()
	params, err := json.Marshal(Raw([]byte(message)))
	if err != nil {
		t.Fatal(err)
	}
	return `{"jsonrpc":"2.0","method":"` + MethodRaw + `","params":` + string(params) + `}`
}

func serve(t testing.TB, next http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(HTTP(next, 1<<20, func(session string, reply *ClientReply) bool {
		return session == "known" && string(reply.ID) == `"asked"`
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func do(t testing.TB, method, url, body string, header ...string) (status int, contentType, got string) {
	t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), string(raw)
}

const callMessage = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`

// library writes as mcp-go does: the stub's answer, in JSON or as an event.
func library(w http.ResponseWriter, stream bool) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, answer+"\n")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", answer)
}

func TestTheAnswerOfTheExchangeReplacesTheLibrarys(t *testing.T) {
	const result, answer = `{"x":1.0}`, `{"jsonrpc":"2.0","id":1,"result":{"x":1.0}}`
	event := func(messages ...string) string {
		return "event: message\ndata: " + strings.Join(messages, "\n\nevent: message\ndata: ") + "\n\n"
	}
	const note = `{"jsonrpc":"2.0","method":"n"}`
	for _, test := range []struct {
		name         string
		next         func(w http.ResponseWriter, x *Exchange)
		status       int
		kind, answer string
	}{
		{"json", func(w http.ResponseWriter, x *Exchange) { x.Result([]byte(result)); library(w, false) }, 200, "application/json", answer},
		{"event", func(w http.ResponseWriter, x *Exchange) { x.Result([]byte(result)); library(w, true) }, 200, "text/event-stream", event(answer)},
		{"after a notification", func(w http.ResponseWriter, x *Exchange) {
			x.Notify("n", nil)
			x.Result([]byte(result))
			library(w, false)
		}, 200, "text/event-stream", event(note, answer)},
		{"error with a status", func(w http.ResponseWriter, x *Exchange) { x.Fail([]byte(`{"code":1}`), 404); library(w, false) }, 404, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`},
		{"error after a notification", func(w http.ResponseWriter, x *Exchange) {
			x.Notify("n", nil)
			x.Fail([]byte(`{"code":1}`), 404)
			library(w, false)
		}, 200, "text/event-stream", event(note, `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`)},
		{"a message of the library's queue", func(w http.ResponseWriter, x *Exchange) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", carried(t, foreign))
			x.Result([]byte(result))
			library(w, true)
		}, 200, "text/event-stream", event(foreign, answer)},
		{"the library's own refusal", func(w http.ResponseWriter, _ *Exchange) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"own"}`)
		}, 400, "application/json", `{"error":"own"}`},
		{"no header written", func(w http.ResponseWriter, x *Exchange) {
			x.Result([]byte(result))
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}, 200, "application/json", answer},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) { test.next(w, ExchangeFrom(r.Context())) })
			status, kind, got := do(t, http.MethodPost, url, callMessage)
			if status != test.status || kind != test.kind || got != test.answer {
				t.Errorf("%d %s %q\nwant %d %s %q", status, kind, got, test.status, test.kind, test.answer)
			}
		})
	}
}

// The library fills its header on a goroutine of its own while a handler sends
// its first message.
func TestTheLibraryAndTheHandlerMayBeginAtOnce(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		x := ExchangeFrom(r.Context())
		var both sync.WaitGroup
		both.Go(func() { x.Notify("handler", nil) })
		both.Go(func() {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Connection", "keep-alive")
			w.WriteHeader(http.StatusOK)
			_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", carried(t, foreign))
			w.(http.Flusher).Flush()
		})
		both.Wait()
		x.Result([]byte(`{}`))
		library(w, true)
	})
	for range 100 {
		_, kind, got := do(t, http.MethodPost, url, callMessage)
		if kind != "text/event-stream" || strings.Count(got, "event: message\n") != 3 || !strings.Contains(got, "data: "+foreign+"\n\n") {
			t.Fatalf("%s %q", kind, got)
		}
	}
}

func TestCarriedMessagesAreUnwrappedOnEveryStream(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for _, message := range []string{carried(t, foreign), `{"jsonrpc":"2.0","method":"ping","id":1}`} {
			_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", message)
		}
		_, _ = io.WriteString(w, ": comment\n\n")
	})
	want := "event: message\ndata: " + foreign + "\n\nevent: message\ndata: " + `{"jsonrpc":"2.0","method":"ping","id":1}` + "\n\n: comment\n\n"
	for _, test := range []struct{ method, body string }{
		{http.MethodGet, ""}, {http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
	} {
		if _, _, got := do(t, test.method, url, test.body); got != want {
			t.Errorf("%s\n got %q\nwant %q", test.method, got, want)
		}
	}
}

// Only what the library carries is unwrapped, and never what merely looks so.
func TestUnwrapLeavesTheRest(t *testing.T) {
	for _, message := range []string{
		foreign,
		`{"jsonrpc":"2.0","method":"n","params":{"data":"toolfinch/raw"}}`,
		`{"jsonrpc":"2.0","method":"` + MethodRaw + `","params":{}}`,
		`{"jsonrpc":"2.0","method":"` + MethodRaw + `","params":{"message":7}}`,
		`{"jsonrpc":"2.0","method":"` + MethodRaw + `","params":{"message":"%"}}`,
		``,
	} {
		if got := string(unwrap([]byte(message))); got != message {
			t.Errorf("unwrap(%s) = %s", message, got)
		}
	}
}

func TestAnswersOfTheClientGoToWhoAsked(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != string(MessageFrom(r.Context())) {
			t.Errorf("the library reads %s, the context has %s", body, MessageFrom(r.Context()))
		}
		w.WriteHeader(http.StatusTeapot)
	})
	for _, test := range []struct {
		session, message string
		want             int
	}{
		{"known", `{"jsonrpc":"2.0","id":"asked","result":{}}`, http.StatusAccepted},
		{"known", `{"jsonrpc":"2.0","id":"asked","error":{}}`, http.StatusAccepted},
		{"known", `{"jsonrpc":"2.0","id":"asked","result":null}`, http.StatusAccepted},
		{"other", `{"jsonrpc":"2.0","id":"asked","result":{}}`, http.StatusTeapot},
		{"", `{"jsonrpc":"2.0","id":"asked","result":{}}`, http.StatusTeapot},
		{"known", `{"jsonrpc":"2.0","id":"other","result":{}}`, http.StatusTeapot},
		{"known", `{"jsonrpc":"2.0","id":"asked"}`, http.StatusTeapot},
		{"known", `{"jsonrpc":"2.0","id":"asked","method":"ping","result":{}}`, http.StatusTeapot},
		{"known", `[{"jsonrpc":"2.0","id":"asked","result":{}}]`, http.StatusTeapot},
		{"known", `{"jsonrpc":"2.0","id":"asked","result":{}`, http.StatusTeapot},
	} {
		if got, _, _ := do(t, http.MethodPost, url, test.message, "Mcp-Session-Id", test.session); got != test.want {
			t.Errorf("%s with session %q: status %d, want %d", test.message, test.session, got, test.want)
		}
	}
}

func TestTheStubHasTheHeadersThatFitIt(t *testing.T) {
	type seen struct{ method, name, body string }
	var got seen
	var kept http.Header
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Header.Get("Mcp-Method"), r.Header.Get("Mcp-Name"), rawjson.Text(rawjson.Member(body, "method"))}
		kept = nil
		if x := ExchangeFrom(r.Context()); x != nil {
			kept = x.Header
		}
	})
	const version = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	for _, test := range []struct {
		method, name, body string // headers and body as the client sends them
		want               seen
	}{
		{"tools/call", "a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",` + version + `}}`, seen{"tools/call", StubTool, "tools/call"}},
		{"resources/read", "x:r", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"x:r",` + version + `}}`, seen{"tools/call", StubTool, "tools/call"}},
		{"tools/list", "", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + version + `}}`, seen{"tools/call", StubTool, "tools/call"}},
		// What does not fit goes to the library as it is, to be refused.
		{"tools/call", "b", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",` + version + `}}`, seen{"tools/call", "b", "tools/call"}},
		{"tools/call", StubTool, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + version + `}}`, seen{"tools/call", StubTool, "tools/list"}},
		{"tools/call", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",` + version + `}}`, seen{"tools/call", "", "tools/call"}},
	} {
		do(t, http.MethodPost, url, test.body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", test.method, "Mcp-Name", test.name)
		if got != test.want {
			t.Errorf("%s with %s, %s: the library sees %+v, want %+v", test.body, test.method, test.name, got, test.want)
		}
		if kept != nil && (kept.Get("Mcp-Method") != test.method || kept.Get("Mcp-Name") != test.name) {
			t.Errorf("the exchange has the headers %v, want the client's", kept)
		}
	}
}

func TestAClientThatDoesNotReadIsGivenUp(t *testing.T) {
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slow := &impatient{w, http.NewResponseController(w), 50 * time.Millisecond}
		for {
			if _, err := slow.Write(make([]byte, 1<<20)); err != nil {
				<-r.Context().Done() // whoever works for it hears of it
				ended <- err
				return
			}
		}
	}))
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the write ended with %v", err)
	}
}
