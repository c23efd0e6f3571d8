package upstream

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/pipes"
	"toolfinch/internal/rawjson"
)

// lister is a legacy HTTP server whose tools/list is answered with what is in
// answer: the members of a JSON-RPC answer after its ID.
type lister struct {
	*httptest.Server
	answer atomic.Pointer[string]
	lists  atomic.Int64
	inits  atomic.Int64
}

func newLister(t *testing.T, answer string) *lister {
	l := &lister{}
	l.answer.Store(&answer)
	l.Server = pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id := rawjson.Member(body, "id")
		if r.Method != http.MethodPost || id == nil {
			w.WriteHeader(map[bool]int{true: http.StatusAccepted, false: http.StatusMethodNotAllowed}[r.Method == http.MethodPost])
			return
		}
		said := `"error":{"code":-32601,"message":"there is no such method"}`
		switch rawjson.Text(rawjson.Member(body, "method")) {
		case "initialize":
			l.inits.Add(1)
			said = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"lister","version":"1"}}`
		case "tools/list":
			l.lists.Add(1)
			said = *l.answer.Load()
		case "tools/call":
			said = `"result":{"content":[]}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, id, said)
	}))
	return l
}

// lines that were logged, at least at level Info.
type logged struct {
	slog.Handler
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logged) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *logged) Handle(_ context.Context, record slog.Record) error {
	line := record.Message
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			line += ": " + a.Value.String()
		}
		if a.Key == "line" {
			line += " line=" + a.Value.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *logged) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func TestAListThatFailsIsAskedForAgainAfterADelay(t *testing.T) {
	for name, c := range map[string]struct{ answer, reason string }{
		"an error":  {`"error":{"code":-32000,"message":"the database is locked"}`, "the database is locked"},
		"no result": {`"result":null`, `without an array "tools": "null"`},
		"no array":  {`"result":{"tools":"x"}`, `without an array "tools"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, log := newLister(t, c.answer), &logged{Handler: slog.DiscardHandler}
				p := newPoolOf(t, Options{Log: slog.New(log)}, Settings{Name: "s", URL: l.URL})
				changes, _ := watched(t, p)
				time.Sleep(10 * time.Second)
				if n := l.lists.Load(); n < 4 || n > 20 { // of a repeating cursor there are two each time
					t.Errorf("%d requests for lists", n)
				}
				for len(changes) > 0 {
					wantError(t, (<-changes).Err, "s", nil)
				}
				if _, err := ask(t, p, "s", "any"); err != nil {
					t.Errorf("a call: %v", err) // the connection is good
				}
				state := p.Status()[0]
				if state.State != StateFailed || state.Err == nil || !strings.Contains(state.Err.Error(), c.reason) {
					t.Errorf("status = %s, %v; want %s because of %q", state.State, state.Err, StateFailed, c.reason)
				}
				if lines := log.all(); strings.Count(lines, "\n") > 0 || !strings.Contains(lines, c.reason) {
					t.Errorf("log = %q, want one line with %q", lines, c.reason)
				}
				well := `"result":{"tools":[{"name":"a"}]}`
				l.answer.Store(&well)
				for change := range changes {
					if len(change.Defs) == 1 {
						break
					}
				}
				synctest.Wait()
				if state := p.Status()[0]; state.State != StateReady || state.Err != nil || state.Tools != 1 {
					t.Errorf("status = %+v after a list that went well", state)
				}
				if !strings.HasSuffix(log.all(), "the upstream is available again") {
					t.Errorf("log = %q", log.all())
				}
			})
		})
	}
}

// A server that is not there is logged once, not with each attempt; nor is what it writes to its standard
// error each time that it is started for nothing, but for what is new.
func TestADeadServerIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := Settings{}, &logged{Handler: slog.DiscardHandler}
		s = played(t, "s", &stage{script: func(p *peer) {
			n := started(s)
			fmt.Fprintf(p.err, "start %d, process %d: no database\n", n, p.pid)
			if n > 2 {
				fmt.Fprintln(p.err, "and no disk")
			}
			p.exit(1)
		}})
		p := newPoolOf(t, Options{Log: slog.New(log)}, s, Settings{Name: "none", Command: "/nowhere/server"})
		changes, stop := watched(t, p)
		for range 10 {
			if (<-changes).Err == nil {
				t.Fatal("it is there")
			}
		}
		stop()
		lines := log.all()
		for text, want := range map[string]int{"stderr line=start": 1, "stderr line=and no disk": 1, "the command cannot be started": 1, "the upstream is not available": 3} {
			if n := strings.Count(lines, text); n != want { // with its last words the reason is another
				t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, lines)
			}
		}
	})
}

func TestAStreamThatEndsIsOpenedAgainAfterGrowingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int64
		r := newRestartable(t, func() http.Handler {
			inner := mcpserver.NewStreamableHTTPServer(newMCP(), mcpserver.WithStateful(true))
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					inner.ServeHTTP(w, r)
					return
				}
				opened.Add(1)
				w.Header().Set("Content-Type", "text/event-stream") // and that is all
			})
		})
		s := r.settings("s", "/mcp")
		s.Protocol = ProtocolLegacy
		p := newPool(t, s)
		mustAsk(t, p, "s", "hello", "hello there")
		time.Sleep(time.Minute) // by 0, 1, 2.5, 4.75, 8.1, 13.2, 20.8, 32.2 and 49.3 s, or half or one and a half times that
		if n := opened.Load(); n < 8 || n > 11 {
			t.Errorf("the stream was opened %d times in a minute", n)
		}
	})
}
