package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/retrieve"
	"toolfinch/upstream"
	"toolfinch/view"
)

// newUpstream is a real MCP server over HTTP with n tools; the first, echo,
// answers with its text.
func newUpstream(t testing.TB, n int) *httptest.Server {
	t.Helper()
	s := server.NewMCPServer("bench", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("echo", mcp.WithDescription("Echo a text"), mcp.WithString("text", mcp.Required())),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(r.GetString("text", "")), nil
		})
	verbs := []string{"create", "delete", "list", "search", "update", "archive", "share", "export", "merge", "rename"}
	things := []string{"issue", "calendar event", "document", "invoice", "repository", "contact", "photo album", "database row", "meeting", "playlist"}
	var tools []server.ServerTool
	for i := range n - 1 {
		verb, thing := verbs[i%10], things[i/10%10]
		tools = append(tools, server.ServerTool{
			Tool: mcp.NewTool(fmt.Sprintf("%s_%s_%d", verb, strings.ReplaceAll(thing, " ", "_"), i),
				mcp.WithDescription(fmt.Sprintf("%s a %s in workspace number %d. Returns what was done, with its identifier and the time.", verb, thing, i)),
				mcp.WithString("id", mcp.Description("Identifier of the "+thing)), mcp.WithString("title", mcp.Description("New title")),
				mcp.WithNumber("limit", mcp.Description("At most this many")), mcp.WithBoolean("notify", mcp.Description("Tell the members"))),
			Handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText("ok"), nil
			},
		})
	}
	s.AddTools(tools...)
	http := httptest.NewServer(server.NewStreamableHTTPServer(s, server.WithStateful(true)))
	t.Cleanup(http.Close)
	return http
}

// newProxy serves a toolfinch in front of the upstreams and waits until it
// knows the tools.
func newProxy(t testing.TB, dataDir string, tools int, upstreams ...*httptest.Server) (url string) {
	t.Helper()
	return serveConfig(t, &configs.Config{DataDir: dataDir, TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40}, tools, nil, upstreams...) + "/mcp"
}

// serveConfig serves toolfinch in front of the upstreams with what else config
// says, and waits until it knows the tools.
func serveConfig(t testing.TB, config *configs.Config, tools int, options []proxy.Option, upstreams ...*httptest.Server) (url string) {
	t.Helper()
	for i, u := range upstreams {
		config.Servers = append(config.Servers, upstream.Settings{Name: fmt.Sprintf("up%d", i), URL: u.URL,
			ConnectTimeout: upstream.DefaultConnectTimeout, CallTimeout: upstream.DefaultCallTimeout, Validate: true})
	}
	log := slog.New(slog.DiscardHandler)
	p := opened(t, config, append([]proxy.Option{proxy.WithLogger(log)}, options...)...)
	ctx, cancel := context.WithCancel(context.Background())
	front := httptest.NewServer(p.Handler())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		front.Close()
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	eventually(t, func() bool { return p.Tools() == tools })
	return front.URL
}

// newBareProxy is the least a proxy can be: an mcp-go server whose handler
// calls an mcp-go client.
func newBareProxy(t testing.TB, up *httptest.Server) (url string) {
	t.Helper()
	many := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	c := must.Get(client.NewStreamableHttpClient(up.URL, transport.WithHTTPBasicClient(many)))(t)
	t.Cleanup(func() { _ = c.Close() })
	must.Do(t, c.Start(t.Context()))
	must.Get(c.Initialize(t.Context(), mcp.InitializeRequest{}))(t)
	s := server.NewMCPServer("bare", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("up0_echo", mcp.WithString("text")), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r.Params.Name = "echo"
		return c.CallTool(ctx, mcp.CallToolRequest{Params: r.Params})
	})
	front := httptest.NewServer(server.NewStreamableHTTPServer(s, server.WithStateful(true)))
	t.Cleanup(front.Close)
	return front.URL
}

// session is a client cut down to HTTP, so that what is measured is the server.
type session struct {
	url, id     string
	token       string // sent as its credentials, if any
	client      *http.Client
	provisioned bool // what a benchmark calls in a gated view
}

func newSession(t testing.TB, url string) *session {
	t.Helper()
	return newSessionAs(t, url, "")
}

// newSessionAs is newSession with a key or token.
func newSessionAs(t testing.TB, url, token string) *session {
	t.Helper()
	s := &session{url: url, token: token, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(s.client.CloseIdleConnections)
	response, err := s.send([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	s.id = response.Header.Get("Mcp-Session-Id")
	return s
}

func (s *session) send(body []byte) (*http.Response, error) {
	request, err := http.NewRequest(http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if s.id != "" {
		request.Header.Set("Mcp-Session-Id", s.id)
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	return s.client.Do(request)
}

func (s *session) call(name string, arguments any) (string, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call",
		"params": map[string]any{"name": name, "arguments": arguments}})
	if err != nil {
		return "", err
	}
	response, err := s.send(body)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"error":`)) || bytes.Contains(answer, []byte(`"isError":true`))) {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return string(answer), err
}

// rest sends a request of the REST API.
func (s *session) rest(method, url string, body any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, url, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return err
}

// BenchmarkCall compares a call of 100 bytes straight to an upstream, through
// a bare proxy, and through toolfinch, HTTP to HTTP, in one run.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		up := newUpstream(b, 1)
		text := map[string]string{"text": strings.Repeat("x", size)}
		for _, path := range []struct{ name, url, tool string }{
			{"direct", up.URL, "echo"},
			{"bare", newBareProxy(b, up), "up0_echo"},
			{"toolfinch", newProxy(b, b.TempDir(), 1, up), "up0_echo"},
		} {
			for _, callers := range []int{1, 16} {
				b.Run(fmt.Sprintf("%dB/%s/callers=%d", size, path.name, callers), func(b *testing.B) {
					load(b, path.url, callers, func(s *session) error {
						_, err := s.call(path.tool, text)
						return err
					})
				})
			}
		}
	}
}

// BenchmarkRetrieve measures retrieve_tools over HTTP.
func BenchmarkRetrieve(b *testing.B) {
	for _, tools := range []int{1000, 5000} {
		url := newProxy(b, b.TempDir(), tools, newUpstream(b, tools))
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("tools=%d/callers=%d", tools, callers), func(b *testing.B) {
				load(b, url, callers, func(s *session) error {
					_, err := s.call("retrieve_tools", map[string]string{"query": "share a photo album with my contacts"})
					return err
				})
			})
		}
	}
}

// BenchmarkWays compares the ways to call one tool of 100 bytes, and to find one
// among many, in a gated view: each is what its client waits for over HTTP.
func BenchmarkWays(b *testing.B) {
	for _, tools := range []int{1000, 5000} {
		up := newUpstream(b, tools)
		gated := serveConfig(b, &configs.Config{
			DataDir: b.TempDir(), TopK: 5, Routing: configs.RoutingAuto, Gating: &view.Gating{MaxTokens: 2000}, ProxyTool: "proxy", REST: true,
		}, tools, nil, up)
		id, arguments := "up0_echo", map[string]string{"text": strings.Repeat("x", 100)}
		const query = "share a photo album with my contacts"
		called := func(name string, arguments any) func(*session) error {
			return func(s *session) error {
				_, err := s.call(name, arguments)
				return err
			}
		}
		rest := func(method, path string, body any) func(*session) error {
			return func(s *session) error { return s.rest(method, gated+path, body) }
		}
		for _, way := range []struct {
			name, url string
			call      func(*session) error
		}{
			{"call/direct", up.URL, called("echo", arguments)},
			{"call/by name", gated + "/mcp", called(id, arguments)},
			{"call/execute_tool", gated + "/mcp", called("execute_tool", map[string]any{"tool_id": id, "arguments": arguments})},
			{"call/proxy", gated + "/mcp", called("proxy", map[string]any{"action": "call", "type": "tool", "path": id, "args": arguments})},
			{"call/REST", gated + "/mcp", rest(http.MethodPost, "/api/proxy/execute", map[string]any{"tool_id": id, "arguments": arguments})},
			{"discover/discover_tools", gated + "/mcp", called("discover_tools", map[string]any{"query": query})},
			{"discover/tags", gated + "/mcp", called("discover_tools", map[string]any{"query": query, "tags": []string{"photo"}})},
			{"discover/REST", gated + "/mcp", rest(http.MethodGet, "/api/tools/discover?query="+url.QueryEscape(query), nil)},
			{"discover/retrieve_tools", gated + "/mcp", called("retrieve_tools", map[string]any{"query": query})},
		} {
			b.Run(fmt.Sprintf("tools=%d/%s", tools, way.name), func(b *testing.B) {
				load(b, way.url, 1, func(s *session) error {
					if !s.provisioned && way.url != up.URL {
						s.provisioned = true
						if _, err := s.call("provision_tools", map[string]any{"tool_ids": []string{id}}); err != nil {
							return err
						}
						if err := s.rest(http.MethodPost, gated+"/api/tools/provision", map[string]any{"tool_ids": []string{id}}); err != nil {
							return err
						}
					}
					return way.call(s)
				})
			})
		}
	}
}

// load runs call from concurrent sessions and reports percentiles.
func load(b *testing.B, url string, callers int, call func(*session) error) {
	sessions := make(chan *session, callers)
	for range callers {
		s := newSession(b, url)
		for range 3 {
			must.Do(b, call(s))
		}
		sessions <- s
	}
	percentiles(b, callers, func() error {
		s := <-sessions
		defer func() { sessions <- s }()
		return call(s)
	})
}

// BenchmarkColdStart is from nothing known to 1,000 tools of ten HTTP
// upstreams indexed.
func BenchmarkColdStart(b *testing.B) {
	var ups []*httptest.Server
	for range 10 {
		ups = append(ups, newUpstream(b, 100))
	}
	for b.Loop() {
		start(b, b.TempDir(), ups, allKnown(b))
	}
}

// BenchmarkWarmStart is from 1,000 tools in the store to the first answer.
func BenchmarkWarmStart(b *testing.B) {
	up := []*httptest.Server{newUpstream(b, 1000)}
	dir := b.TempDir()
	start(b, dir, up, allKnown(b))
	for b.Loop() {
		start(b, dir, up, func(p *proxy.Proxy) {
			found, err := p.Retriever().Search(b.Context(), retrieve.Query{Text: "echo a text", Limit: 5})
			if err != nil || len(found.Hits) == 0 || found.Hits[0].Name != "up0_echo" {
				b.Fatal(found, err)
			}
		})
	}
}

// allKnown waits until all servers were listed.
func allKnown(b *testing.B) func(*proxy.Proxy) {
	return func(p *proxy.Proxy) {
		if await.Value(b, p.Ready()); p.Tools() != 1000 {
			b.Fatalf("%d tools are known", p.Tools())
		}
	}
}

// start opens and runs a proxy until it has come so far, and closes it outside
// of what is measured.
func start(b *testing.B, dir string, ups []*httptest.Server, until func(*proxy.Proxy)) {
	b.Helper()
	config := &configs.Config{DataDir: dir, TopK: 5, Routing: configs.RoutingAuto}
	for i, u := range ups {
		config.Servers = append(config.Servers, upstream.Settings{Name: fmt.Sprintf("up%d", i), URL: u.URL})
	}
	p := opened(b, config)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
	until(p)
	b.StopTimer()
	cancel()
	if err := errors.Join(<-ended, p.Close()); err != nil {
		b.Error(err)
	}
	b.StartTimer()
}
