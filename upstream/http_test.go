package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// restartable is a real HTTP server on one port that can end and come back.
type restartable struct {
	t       testing.TB
	address string
	handler func() http.Handler
	server  *http.Server
	ended   chan struct{}
}

func newRestartable(t testing.TB, handler func() http.Handler) *restartable {
	t.Helper()
	address := "127.0.0.1:0"
	if runtime.GOOS == "linux" { // where no other program takes the port while it is free
		address = fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	r := &restartable{t: t, address: address, handler: handler}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *restartable) start() {
	r.t.Helper()
	var listener net.Listener
	await.Nil(r.t, func() (err error) { // another process may have the port for a moment
		listener, err = net.Listen("tcp", r.address)
		return err
	})
	r.address = listener.Addr().String()
	server, ended := &http.Server{Handler: r.handler()}, make(chan struct{})
	r.server, r.ended = server, ended
	go func() {
		_ = server.Serve(listener)
		close(ended)
	}()
}

func (r *restartable) stop() {
	_ = r.server.Close()
	<-r.ended
}

func (r *restartable) settings(name, path string) Settings {
	return Settings{Name: name, URL: "http://" + r.address + path, ConnectTimeout: await.Bound, CallTimeout: await.Bound}
}

func newMCP(options ...mcpserver.ServerOption) *mcpserver.MCPServer {
	s := mcpserver.NewMCPServer("real", "1", append(options, mcpserver.WithToolCapabilities(true))...)
	s.AddTool(mcp.NewTool("hello"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("hello there"), nil
	})
	s.AddTool(mcp.NewTool("wait"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	return s
}

// newEliciting is a server of a library, of both eras, that asks its client while
// a call runs, which it can in the legacy era only.
func newEliciting() *mcpserver.MCPServer {
	var subscribed atomic.Value // URI
	hooks := &mcpserver.Hooks{}
	hooks.AddAfterSubscribe(func(_ context.Context, _ any, r *mcp.SubscribeRequest, _ *mcp.EmptyResult) {
		subscribed.Store(r.Params.URI)
	})
	real := newMCP(mcpserver.WithElicitation(), mcpserver.WithResourceCapabilities(true, true), mcpserver.WithHooks(hooks))
	real.AddResource(mcp.NewResource("memo://a", "a"), nil)
	real.AddTool(mcp.NewTool("touch"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if uri, ok := subscribed.Load().(string); ok {
			return mcp.NewToolResultText("told of " + uri), real.SendNotificationToClient(ctx, "notifications/resources/updated", map[string]any{"uri": uri})
		}
		return mcp.NewToolResultText("nobody is told"), nil
	})
	real.AddTool(mcp.NewTool("elicit"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result, err := real.RequestElicitation(ctx, mcp.ElicitationRequest{Params: mcp.ElicitationParams{
			Message: r.GetString("who", ""), RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
		}})
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultJSON(result.Content)
	})
	return real
}

func TestARestartedHTTPServerIsUsableOnTheNextCall(t *testing.T) {
	for name, mode := range map[string]mcpserver.StreamableHTTPOption{
		"sessions lost": mcpserver.WithStateful(true),
		"sessions kept": mcpserver.WithSessionIdManager(&mcpserver.StatelessGeneratingSessionIdManager{}),
		"no sessions":   mcpserver.WithStateLess(true),
	} {
		t.Run(name, func(t *testing.T) {
			var open http.Handler
			r := newRestartable(t, func() http.Handler {
				mcp := mcpserver.NewStreamableHTTPServer(newMCP(), mode)
				open = mcp
				return open
			})
			p := newPool(t, r.settings("s", "/mcp"))
			mustAsk(t, p, "s", "hello", "hello there")
			for range 3 {
				r.stop()
				_, err := ask(t, p, "s", "hello")
				wantError(t, err, "s", nil)
				r.start()
				mustAsk(t, p, "s", "hello", "hello there")
			}
			// With nobody having called meanwhile. Only in the moment in which the
			// connection is being closed can it not be known what was delivered.
			r.stop()
			await.Gone(t, "net/http.(*persistConn).readLoop")
			r.start()
			mustAsk(t, p, "s", "hello", "hello there")
		})
	}
}

func TestAutoFallsBackToSSE(t *testing.T) {
	r := newRestartable(t, func() http.Handler { return mcpserver.NewSSEServer(newMCP()) })
	for _, transport := range []Transport{TransportAuto, TransportSSE} {
		s := r.settings(string(transport), "/sse")
		s.Transport = transport
		p := newPool(t, s)
		mustAsk(t, p, s.Name, "hello", "hello there")
		if change := p.Refresh(t.Context(), s.Name); change.Err != nil || len(change.Defs) != 2 {
			t.Errorf("%s: %+v", transport, change)
		}
		r.stop()
		r.start()
		await.True(t, func() bool { // the end of the stream is noticed beside
			got, err := ask(t, p, s.Name, "hello")
			return err == nil && strings.Contains(got, "hello there")
		})
	}
	s := r.settings("strict", "/sse")
	s.Transport = TransportHTTP
	p := newPool(t, s)
	_, err := ask(t, p, "strict", "hello")
	wantError(t, err, "strict", nil)
}

func TestListChangedOverHTTP(t *testing.T) {
	mcpServer := newMCP()
	r := newRestartable(t, func() http.Handler {
		return mcpserver.NewStreamableHTTPServer(mcpServer, mcpserver.WithStateful(true), mcpserver.WithStreamableHTTPProtocolVersions("2025-11-25"))
	})
	modern := newMCP()
	m := newRestartable(t, func() http.Handler { return mcpserver.NewStreamableHTTPServer(modern) })
	p := newPool(t, r.settings("legacy", "/mcp"), m.settings("modern", "/mcp"))
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan Change, 20)
	watched := make(chan error, 1)
	go func() { watched <- p.Watch(ctx, changes) }()
	defer func() { cancel(); <-watched }()
	eras := map[string]Era{}
	for len(eras) < 2 {
		change := <-changes
		if change.Err != nil || len(change.Defs) != 2 {
			t.Fatalf("change = %+v", change)
		}
		eras[change.Server] = change.Era
	}
	if eras["legacy"] != EraLegacy || eras["modern"] != EraModern {
		t.Errorf("eras = %v", eras)
	}
	// The stream for notifications opens beside the first list: add until heard.
	for name, s := range map[string]*mcpserver.MCPServer{"legacy": mcpServer, "modern": modern} {
		for heard, n := false, 0; !heard; n++ {
			s.AddTool(mcp.NewTool(fmt.Sprintf("new%d", n)), nil)
			select {
			case change := <-changes:
				heard = change.Server == name && len(change.Defs) > 2
			case <-time.After(time.Second):
				if n > int(await.Bound/time.Second) {
					t.Fatalf("%s: no change was heard of", name)
				}
			}
		}
	}
}

func TestModernUpstreams(t *testing.T) {
	var got atomic.Pointer[http.Header]
	s := newMCP()
	s.AddTool(mcp.NewToolWithRawSchema("routed", "", json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(r.GetString("region", "")), nil
		})
	inner := mcpserver.NewStreamableHTTPServer(s)
	r := newRestartable(t, func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if header := r.Header.Clone(); header.Get("Mcp-Method") == "tools/call" {
				got.Store(&header)
			}
			inner.ServeHTTP(w, r)
		})
	})
	settings := r.settings("s", "/mcp")
	settings.Headers = map[string]string{"Authorization": "Bearer secret"}
	p := newPool(t, settings)
	change := p.Refresh(t.Context(), "s")
	if change.Err != nil || change.Era != EraModern {
		t.Fatalf("change = %+v", change)
	}
	routed := change.Defs[1]
	if routed.ID.Name != "routed" {
		t.Fatalf("defs = %v", change.Defs)
	}
	result, err := p.Call(t.Context(), routed, &tool.Call{Arguments: json.RawMessage(`{"region":"eu"}`),
		Params: json.RawMessage(`{"name":"s_routed","_meta":{"io.modelcontextprotocol/clientInfo":{"name":"the client"},"io.modelcontextprotocol/protocolVersion":"1999-01-01"}}`)})
	if err != nil || !strings.Contains(string(result), `"eu"`) {
		t.Fatalf("result = %s, %v", result, err)
	}
	for name, want := range map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "routed", "Mcp-Param-Region": "eu",
		"Mcp-Protocol-Version": "2026-07-28", "Authorization": "Bearer secret"} {
		if value := got.Load().Get(name); value != want {
			t.Errorf("header %s = %q, want %q", name, value, want)
		}
	}
	legacy := settings
	legacy.Protocol = ProtocolLegacy
	if change := newPool(t, legacy).Refresh(t.Context(), "s"); change.Err != nil || change.Era != EraLegacy {
		t.Errorf("protocol legacy: %+v", change)
	}
}

func TestAVerdictThatIsWrongIsCorrected(t *testing.T) {
	r := newRestartable(t, func() http.Handler { return mcpserver.NewStreamableHTTPServer(newMCP(), mcpserver.WithStateful(true)) })
	for _, known := range []Era{EraModern, EraLegacy} {
		p := NewPool([]Settings{r.settings("s", "/mcp")}, Options{Known: map[string]Known{"s": {Era: known}}})
		if change := p.Refresh(t.Context(), "s"); change.Err != nil || len(change.Defs) != 2 {
			t.Errorf("known as %s: %+v", known, change)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestHTTPFaultsAreBounded(t *testing.T) {
	t.Parallel()
	answer := func(status int, contentType, body string) func() http.Handler {
		return func() http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", contentType)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			})
		}
	}
	var settings []Settings
	for name, handler := range map[string]func() http.Handler{
		"html":         answer(200, "text/html", "<html>"),
		"broken":       answer(200, "application/json", "{"),
		"unauthorized": answer(401, "text/plain", "no"),
		"failing":      answer(500, "text/plain", "oops"),
		"empty":        answer(200, "text/event-stream", ""),
		"hanging": func() http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		},
	} {
		s := newRestartable(t, handler).settings(name, "/mcp?key=secret")
		if name == "hanging" {
			s.ConnectTimeout = 500 * time.Millisecond
		}
		settings = append(settings, s)
	}
	p := newPool(t, settings...)
	for _, s := range settings {
		_, err := ask(t, p, s.Name, "hello")
		wantError(t, err, s.Name, nil)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the URL's secret: %v", err)
		}
	}
}

func TestAnAnswerTooLargeFailsThatCallOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("100 MB take minutes under the race detector")
	}
	s := newMCP()
	s.AddTool(mcp.NewTool("big"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(strings.Repeat("x", 100<<20)), nil
	})
	r := newRestartable(t, func() http.Handler { return mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true)) })
	settings := r.settings("s", "/mcp")
	settings.CallTimeout = await.Bound
	p := newPool(t, settings)
	_, err := ask(t, p, "s", "big")
	wantError(t, err, "s", conn.ErrTooLarge)
	mustAsk(t, p, "s", "hello", "hello there")
}

func TestCancellationOverHTTP(t *testing.T) {
	t.Parallel()
	cancelled := make(chan struct{})
	s := mcpserver.NewMCPServer("s", "1", mcpserver.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("wait"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		close(cancelled)
		return nil, ctx.Err()
	})
	front := httptest.NewServer(mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true)))
	t.Cleanup(front.Close)
	settings := Settings{Name: "s", URL: front.URL, Protocol: ProtocolLegacy}
	p := newPool(t, settings)
	hurry(t, p, settings, 5*time.Second)
	_, err := ask(t, p, "s", "wait")
	wantError(t, err, "s", ErrTimeout)
	await.Value(t, cancelled)
	for _, status := range p.Status() {
		if status.State != StateFailed {
			t.Errorf("health after a call in vain: %s", status.State)
		}
	}
}
