package upstream

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/tool"
)

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
	real.AddTool(mcp.NewTool("grow"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		real.AddTool(mcp.NewTool("grown"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("it is new"), nil
		})
		return mcp.NewToolResultText("it has grown"), nil
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
			synctest.Test(t, func(t *testing.T) {
				r := newRestartable(t, func() http.Handler { return mcpserver.NewStreamableHTTPServer(newMCP(), mode) })
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
				synctest.Wait()
				r.start()
				mustAsk(t, p, "s", "hello", "hello there")
			})
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
	for name, option := range map[Era]mcpserver.StreamableHTTPOption{
		EraLegacy: mcpserver.WithStreamableHTTPProtocolVersions("2025-11-25"),
		EraModern: mcpserver.WithStateful(true),
	} {
		t.Run(string(name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMCP()
				r := newRestartable(t, func() http.Handler {
					return mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true), option)
				})
				changes, _ := watched(t, newPool(t, r.settings("s", "/mcp")))
				if change := <-changes; change.Err != nil || len(change.Defs) != 2 || change.Era != name {
					t.Fatalf("change = %+v", change)
				}
				synctest.Wait() // the stream for notifications opens beside the first list
				s.AddTool(mcp.NewTool("new"), nil)
				if change := <-changes; len(change.Defs) != 3 {
					t.Errorf("change = %+v", change)
				}
			})
		})
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
		p := newPoolWith(t, map[string]Known{"s": {Era: known}}, Events{}, r.settings("s", "/mcp"))
		if change := p.Refresh(t.Context(), "s"); change.Err != nil || len(change.Defs) != 2 {
			t.Errorf("known as %s: %+v", known, change)
		}
	}
}

func TestHTTPFaultsAreBounded(t *testing.T) {
	answer := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"html":         answer(200, "text/html", "<html>"),
		"broken":       answer(200, "application/json", "{"),
		"unauthorized": answer(401, "text/plain", "no"),
		"failing":      answer(500, "text/plain", "oops"),
		"empty":        answer(200, "text/event-stream", ""),
		"hanging":      func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, newRestartable(t, func() http.Handler { return handler }).settings(name, "/mcp?key=secret"))
				_, err := ask(t, p, name, "hello")
				wantError(t, err, name, nil)
				if err != nil && strings.Contains(err.Error(), "secret") {
					t.Errorf("the error shows the URL's secret: %v", err)
				}
			})
		})
	}
}

func TestCancellationOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan struct{})
		s := mcpserver.NewMCPServer("s", "1", mcpserver.WithToolCapabilities(true))
		s.AddTool(mcp.NewTool("wait"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			close(cancelled)
			return nil, ctx.Err()
		})
		settings := newRestartable(t, func() http.Handler { return mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true)) }).settings("s", "/mcp")
		settings.Protocol, settings.CallTimeout = ProtocolLegacy, 5*time.Second
		p := newPool(t, settings)
		_, err := ask(t, p, "s", "wait")
		wantError(t, err, "s", ErrTimeout)
		<-cancelled
		if status := p.Status()[0]; status.State != StateFailed {
			t.Errorf("health after a call in vain: %s", status.State)
		}
	})
}

// An answer that nests too deep costs itself alone.
func TestADeepAnswerIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newMCP()
		server.AddTool(mcp.NewTool("deep"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var deep any
			for range 600 {
				deep = []any{deep}
			}
			return &mcp.CallToolResult{StructuredContent: deep}, nil
		})
		handler := mcpserver.NewStreamableHTTPServer(server)
		p := newPool(t, newRestartable(t, func() http.Handler { return handler }).settings("s", "/mcp"))
		for range 2 {
			if _, err := ask(t, p, "s", "deep"); err == nil || !strings.Contains(err.Error(), "the answer nests deeper than 512") {
				t.Errorf("the answer is refused with %v", err)
			}
			mustAsk(t, p, "s", "hello", "hello there")
		}
	})
}
