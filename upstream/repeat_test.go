package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/internal/pipes"
	"toolfinch/tool"
)

// dropping is an HTTP server that reads a call whole and then closes the
// connection in place of an answer, the first time.
func dropping(t *testing.T, calls *atomic.Int32) Settings {
	front := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "initialize":
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"d","version":"1"}}}`)
		case "tools/call":
			if calls.Add(1) == 1 {
				connection, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_ = connection.Close()
				}
				return
			}
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"ok":true}}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	return Settings{Name: "http", URL: front.URL, Protocol: ProtocolLegacy, ConnectTimeout: await.Bound, CallTimeout: await.Bound}
}

// A call that a server may have received before it closed the connection is made
// again only if that does no harm; otherwise the error says that it was not.
func TestACallThatMayHaveArrivedIsRepeatedOnlyIfThatIsHarmless(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		for hint, again := range map[string]bool{"": false, "destructiveHint": false, "idempotentHint": true, "readOnlyHint": true} {
			t.Run(transport+" "+hint, func(t *testing.T) {
				var calls atomic.Int32
				s, name := dropping(t, &calls), "any"
				if transport == "stdio" {
					s, name = lines(t, "stdio", ""), "exit_once"
				}
				p := newPool(t, s)
				var hints []string
				if hint != "" {
					hints = []string{hint}
				}
				got, err := ask(t, p, s.Name, name, hints...)
				if again {
					if err != nil || got != `{"ok":true}` {
						t.Errorf("%s, %v; want the call made again", got, err)
					}
					return
				}
				wantError(t, err, s.Name, ErrClosed)
				if err == nil || !strings.Contains(err.Error(), "not repeated because the tool is annotated neither as idempotent nor as read-only") {
					t.Errorf("error = %v", err)
				}
				if n := calls.Load(); n > 1 {
					t.Errorf("it was called %d times", n)
				}
			})
		}
	}
}

// What a caller can tell of a call that was not answered.
func TestWhyACallWasNotAnswered(t *testing.T) {
	const short = 300 * time.Millisecond
	impatient := func(s Settings) Settings { s.CallTimeout = short; return s }
	over := errors.New("the step took too long")
	remote := func(t *testing.T) Settings {
		u := newPlainHTTP(t)
		u.calls["exit"] = func(http.ResponseWriter, string, json.RawMessage) { panic(http.ErrAbortHandler) }
		u.calls["break"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(": soon\n\n"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		u.calls["cut"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"jsonrpc":`))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		hold := make(chan struct{})
		u.calls["hang"] = func(http.ResponseWriter, string, json.RawMessage) { <-hold }
		t.Cleanup(func() { close(hold) })
		return u.settings()
	}
	of := func(mode string) func(*testing.T) Settings {
		return func(t *testing.T) Settings { return lines(t, "s", mode) }
	}
	hurried := func(of func(*testing.T) Settings) func(*testing.T) Settings {
		return func(t *testing.T) Settings { return impatient(of(t)) }
	}
	at := func(s Settings) func(*testing.T) Settings { return func(*testing.T) Settings { return s } }
	sentinels := map[string]error{
		"not connected": ErrNotConnected, "closed": ErrClosed, "timed out": ErrTimeout,
		"deadline": context.DeadlineExceeded, "canceled": context.Canceled, "the caller's cause": over,
	}
	for _, test := range []struct {
		name     string
		settings func(t *testing.T) Settings
		tool     string
		ends     string // how the caller's context does; "" for never
		want     string // which of the sentinels it is, sorted
		text     string // part of what it says
	}{
		{"it dies", of("raw"), "exit", "", "closed", "call exit: the process ended"},
		{"it dies, the caller has a deadline", of("raw"), "exit", "late", "closed", "the process ended"},
		{"its limit", hurried(of("raw")), "hang", "", "timed out", "call hang: timed out: no answer within 300ms"},
		{"the caller's deadline", of("raw"), "hang", "deadline", "deadline, timed out", "call hang: context deadline exceeded"},
		{"the caller's deadline with a cause", of("raw"), "hang", "deadline, cause", "the caller's cause, timed out", "call hang: the step took too long"},
		{"the caller gives up", of("raw"), "hang", "given up", "canceled", "context canceled"},
		{"the caller gives up with a cause", of("raw"), "hang", "given up, cause", "canceled, the caller's cause", "call hang: the step took too long"},
		{"no program", at(Settings{Name: "s", Command: "no-such-program"}), "raw", "", "not connected", `call raw: connect: the command "no-such-program" is not on the PATH`},
		{"it dies at the start", of("crash"), "raw", "", "closed, not connected", `call raw: connect: it wrote "I crash"; the process ended (exit status 3)`},
		{"it does not come up", func(t *testing.T) Settings { s := lines(t, "s", "mute"); s.ConnectTimeout = short; return s }, "raw", "", "not connected, timed out", "call raw: connect: timed out: no connection within 300ms"},
		{"it does not come up before the caller's deadline", of("mute"), "raw", "deadline", "deadline, not connected, timed out", "call raw: connect: context deadline exceeded"},
		{"it does not come up within its limit", hurried(of("mute")), "raw", "", "not connected, timed out", "call raw: connect: timed out: no answer within 300ms"},
		{"HTTP: nobody listens", at(Settings{Name: "s", URL: pipes.Nowhere}), "raw", "", "not connected", "call raw: connect: "},
		{"HTTP: it breaks off", remote, "exit", "", "closed", "call exit: "},
		{"HTTP: it breaks off in an event stream", remote, "break", "", "closed", "call break: the event stream ended without an answer"},
		{"HTTP: it breaks off in its answer", remote, "cut", "", "closed", "call cut: unexpected EOF"},
		{"HTTP: its limit", hurried(remote), "hang", "", "timed out", "no answer within 300ms"},
		{"HTTP: the caller's deadline", remote, "hang", "deadline", "deadline, timed out", "context deadline exceeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, test.settings(t))
				var cause error
				kind, caused := strings.CutSuffix(test.ends, ", cause")
				if caused {
					cause = over
				}
				ctx := t.Context()
				switch within := map[string]time.Duration{"deadline": short, "late": time.Minute}[kind]; {
				case within > 0:
					limited, cancel := context.WithTimeoutCause(ctx, within, cause)
					defer cancel()
					ctx = limited
				case kind == "given up":
					ending, cancel := context.WithCancelCause(ctx)
					time.AfterFunc(short, func() { cancel(cause) })
					ctx = ending
				}
				_, err := p.Call(ctx, def("s", test.tool), &tool.Call{Arguments: json.RawMessage(`{}`)})
				wantError(t, err, "s", nil)
				var is []string
				for _, name := range []string{"canceled", "closed", "deadline", "not connected", "the caller's cause", "timed out"} {
					if errors.Is(err, sentinels[name]) {
						is = append(is, name)
					}
				}
				if got := strings.Join(is, ", "); got != test.want || !strings.Contains(err.Error(), test.text) {
					t.Errorf("%v is %s; want %s, and it says %q", err, got, test.want, test.text)
				}
			})
		})
	}
}

// A server that is gone, not only a call of it.
func TestAServerThatIsGoneIsNotConnected(t *testing.T) {
	r := newRestartable(t, func() http.Handler { return mcpserver.NewStreamableHTTPServer(newMCP(), mcpserver.WithStateful(true)) })
	p := newPool(t, r.settings("s", "/mcp"))
	if change := p.Refresh(t.Context(), "s"); change.Err != nil {
		t.Fatal(change.Err)
	}
	r.stop()
	_, err := ask(t, p, "s", "hello", "readOnlyHint") // it may be made again, so it is known that nobody is there
	wantError(t, err, "s", ErrNotConnected)
	r.start()
	mustAsk(t, p, "s", "hello", "hello there")
}
