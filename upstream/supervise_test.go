//go:build unix

package upstream

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/rawjson"
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
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	t.Cleanup(l.Close)
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
		"an error":           {`"error":{"code":-32000,"message":"the database is locked"}`, "the database is locked"},
		"no result":          {`"result":null`, `without an array "tools": "null"`},
		"no array":           {`"result":{"tools":"x"}`, `without an array "tools"`},
		"a repeating cursor": {`"result":{"tools":[],"nextCursor":"again"}`, "the list of tools repeats itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, log := newLister(t, c.answer), &logged{Handler: slog.DiscardHandler}
			p := NewPool([]Settings{{Name: "s", URL: l.URL}}, Options{Log: slog.New(log)})
			changes, stop := watched(t, p)
			defer stop()
			for range 4 { // the delays sum up to 1.75 s on the average
				wantError(t, await.Value(t, changes).Err, "s", nil)
			}
			if n := l.lists.Load(); n > 100 { // without delays it is thousands
				t.Errorf("%d requests for some 5 lists", n)
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
			await.True(t, func() bool { return len(await.Value(t, changes).Defs) == 1 })
			if state := p.Status()[0]; state.State != StateReady || state.Err != nil || state.Tools != 1 {
				t.Errorf("status = %+v after a list that went well", state)
			}
			await.True(t, func() bool { return strings.HasSuffix(log.all(), "the upstream is available again") })
		})
	}
}

// A server that is not there is logged once, not with each attempt.
func TestADeadServerIsLoggedOnce(t *testing.T) {
	t.Parallel()
	log := &logged{Handler: slog.DiscardHandler}
	p := NewPool([]Settings{{Name: "s", Command: "/nowhere/server"}}, Options{Log: slog.New(log)})
	changes, stop := watched(t, p)
	defer stop()
	for range 4 {
		if await.Value(t, changes).Err == nil {
			t.Fatal("it is there")
		}
	}
	if lines := strings.Split(log.all(), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "the command cannot be started") || !strings.HasPrefix(lines[1], "the upstream is not available") {
		t.Errorf("log = %q", lines)
	}
}

// What a server writes to its standard error each time that it is started for nothing is
// logged once, and what is new when it comes.
func TestAServerThatKeepsEndingSaysTheSameOnce(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	starts := filepath.Join(t.TempDir(), "starts")
	log := &logged{Handler: slog.DiscardHandler}
	p := NewPool([]Settings{{Name: "s", Command: sh, Args: []string{"-c", `echo x >>"$0"; n=$(wc -l <"$0"); echo "start $n, process $$: no database" >&2; test $n -gt 2 && echo "and no disk" >&2; exit 1`, starts}}}, Options{Log: slog.New(log)})
	changes, stop := watched(t, p)
	for range 5 {
		if await.Value(t, changes).Err == nil {
			t.Fatal("it is there")
		}
	}
	stop()
	lines := log.all()
	if strings.Count(lines, "stderr line=start") != 1 || strings.Count(lines, "stderr line=and no disk") != 1 {
		t.Errorf("log = %s", lines)
	}
}

func TestAStreamThatEndsIsOpenedAgainAfterGrowingDelays(t *testing.T) {
	var opened []time.Time
	var mu sync.Mutex // guards opened
	r := newRestartable(t, func() http.Handler {
		inner := mcpserver.NewStreamableHTTPServer(newMCP(), mcpserver.WithStateful(true))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				inner.ServeHTTP(w, r)
				return
			}
			mu.Lock()
			opened = append(opened, time.Now())
			mu.Unlock()
			w.Header().Set("Content-Type", "text/event-stream") // and that is all
		})
	})
	s := r.settings("s", "/mcp")
	s.Protocol = ProtocolLegacy
	p := newPool(t, s)
	mustAsk(t, p, "s", "hello", "hello there")
	const times = 5
	await.True(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(opened) >= times
	})
	mu.Lock()
	defer mu.Unlock()
	// The shortest delays are half of 1, 1.5, 2.25 and 3.4 s.
	if took := opened[times-1].Sub(opened[0]); took < 4*time.Second {
		t.Errorf("the stream was opened %d times within %s", times, took)
	}
}
