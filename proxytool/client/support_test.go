package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

// hologram is content of a type that mcp-go does not know.
type hologram struct{ mcp.TextContent }

func (hologram) MarshalJSON() ([]byte, error) {
	return []byte(`{"type":"hologram","depth":9007199254740993,"annotations":{"colour":"green"}}`), nil
}

const oddJSON = "{ \"n\": 9007199254740993,\n \"f\": 1.0, \"z\": 1, \"a\": 2 }"

// house is an ordinary MCP server with a proxy tool, and what its handlers were
// seen to do.
type house struct {
	*server.MCPServer
	echoes    atomic.Int64
	slow      atomic.Int64
	cancelled chan struct{} // one for each call of hang that was told to stop
	hanging   chan struct{} // one for each call of hang, and for the first reading of slow
	release   chan struct{} // closed to end deaf
	seen      sync.Map      // by label of steps: received from after each step
}

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{
		MCPServer: server.NewMCPServer("house", "1", server.WithToolCapabilities(true),
			server.WithResourceCapabilities(true, true), server.WithPromptCapabilities(true)),
		cancelled: make(chan struct{}, 100),
		hanging:   make(chan struct{}, 100),
		release:   make(chan struct{}),
	}
	h.addTools()
	h.addResources()
	h.AddPrompt(mcp.NewPrompt("greet", mcp.WithPromptDescription("Say hello"), mcp.WithArgument("name", mcp.RequiredArgument())),
		func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return mcp.NewGetPromptResult("A greeting", []mcp.PromptMessage{
				mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("Hello <"+r.Params.Arguments["name"]+">")),
				mcp.NewPromptMessage(mcp.RoleAssistant, mcp.NewImageContent("aGk=", "image/png")),
			}), nil
		})
	must.Do(t, proxytool.Attach(h.MCPServer))
	return h
}

// step is what steps waits for with a label.
func (h *house) step(label string) chan struct{} {
	c, _ := h.seen.LoadOrStore(label, make(chan struct{}, 10))
	return c.(chan struct{})
}

func (h *house) addTools() {
	h.AddTool(mcp.NewTool("echo", mcp.WithDescription("Answer with the arguments"), mcp.WithReadOnlyHintAnnotation(true)),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			h.echoes.Add(1)
			return mcp.NewToolResultText(string(r.Params.RawArguments)), nil
		})
	h.AddTool(mcp.NewTool("big", mcp.WithDescription("Structured content with a big integer")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{
				Content:              []mcp.Content{mcp.NewTextContent("big")},
				RawStructuredContent: json.RawMessage(`{"n":9007199254740993,"f":1.0,"b":1,"a":2}`),
				StructuredContent:    json.RawMessage(`{"n":9007199254740993,"f":1.0,"b":1,"a":2}`),
			}, nil
		})
	h.AddTool(mcp.NewTool("mixed", mcp.WithDescription("Content of every kind")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			priority := 0.5
			text := mcp.NewTextContent("annotated")
			text.Annotations = &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser}, Priority: &priority}
			text.Meta = &mcp.Meta{AdditionalFields: map[string]any{"own": "kept"}}
			return &mcp.CallToolResult{Content: []mcp.Content{
				text,
				mcp.NewImageContent("aGk=", "image/png"),
				mcp.NewAudioContent("aGk=", "audio/wav"),
				mcp.NewResourceLink("house://notes", "notes", "", "text/plain"),
				mcp.NewEmbeddedResource(mcp.BlobResourceContents{URI: "house://blob", MIMEType: "application/x-thing", Blob: "AAEC"}),
			}}, nil
		})
	h.AddTool(mcp.NewTool("labelled", mcp.WithDescription("Content with the keys of the proxy tool")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text := mcp.NewTextContent("labelled")
			text.Meta = &mcp.Meta{AdditionalFields: map[string]any{"proxyPath": "mine", "many": true, "proxied": map[string]any{"a": "b"}}}
			return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil
		})
	h.AddTool(mcp.NewTool("fail", mcp.WithDescription("Fails by its own word")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("no luck today"), nil
		})
	h.AddTool(mcp.NewTool("hologram", mcp.WithDescription("Content of an unknown type")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{hologram{}}}, nil
		})
	h.AddTool(mcp.NewTool("hang", mcp.WithDescription("Waits to be cancelled")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			h.hanging <- struct{}{}
			<-ctx.Done()
			h.cancelled <- struct{}{}
			return nil, ctx.Err()
		})
	h.AddTool(mcp.NewTool("whoami", mcp.WithDescription("Who calls")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			who := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo).GetClientInfo()
			return mcp.NewToolResultText(who.Name + " " + who.Version), nil
		})
	h.AddTool(mcp.NewTool("deaf", mcp.WithDescription("Waits and cannot be cancelled")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-h.release
			return mcp.NewToolResultText("at last"), nil
		})
	h.AddTool(mcp.NewTool("steps", mcp.WithDescription("Reports three steps"), mcp.WithString("label")),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			token := r.Params.Meta.ProgressToken
			for step := 1.0; step <= 3; step++ {
				_ = server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress",
					map[string]any{"progressToken": token, "progress": step, "total": 3.0, "message": r.GetString("label", "")})
				select { // notifications and answers do not keep their order everywhere
				case <-h.step(r.GetString("label", "")):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return mcp.NewToolResultText("done"), nil
		})
}

func (h *house) addResources() {
	add := func(uri, mimeType string, contents ...mcp.ResourceContents) {
		h.AddResource(mcp.NewResource(uri, uri[len("house://"):], mcp.WithMIMEType(mimeType), mcp.WithResourceDescription("of the house")),
			func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) { return contents, nil })
	}
	add("house://notes", "text/plain", mcp.TextResourceContents{URI: "house://notes", MIMEType: "text/plain", Text: "not { JSON"})
	add("house://data", "application/vnd.house+json", mcp.TextResourceContents{URI: "house://data", MIMEType: "application/vnd.house+json", Text: oddJSON})
	add("house://blob", "application/x-thing", mcp.BlobResourceContents{URI: "house://blob", MIMEType: "application/x-thing", Blob: "AAEC"})
	add("house://both", "", mcp.TextResourceContents{URI: "house://both/1", Text: "one"},
		mcp.TextResourceContents{URI: "house://both/2", Text: "two", Meta: map[string]any{"page": "2"}})
	add("house://untyped", "", mcp.TextResourceContents{URI: "house://untyped", Text: "[ 2 ]"})
	h.AddResource(mcp.NewResource("house://slow", "slow"),
		func(ctx context.Context, _ mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			if h.slow.Add(1) == 1 { // the first time it waits for the connection to end
				h.hanging <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "house://slow", Text: "at last"}}, nil
		})
	h.AddResourceTemplate(mcp.NewResourceTemplate("house://room/{id}", "room", mcp.WithTemplateDescription("A room")),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, MIMEType: "text/plain", Text: "room of " + r.Params.URI}}, nil
		})
}

// ways are the transports that everything is tested over.
var ways = []struct {
	name    string
	dial    func(testing.TB, *server.MCPServer) proxyclient.Dial
	options []client.ClientOption
	// In the legacy era over HTTP mcp-go's server writes a notification to any
	// request of the session, and loses it when that one ends just then.
	loses bool
}{
	{"in process", overNothing, nil, false},
	{"pipe", overPipe, nil, false},
	{"pipe, legacy", overPipe, []client.ClientOption{client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION)}, false},
	{"http", overHTTP, nil, false},
	{"http, legacy", overHTTP, []client.ClientOption{client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION)}, true},
}

func overNothing(_ testing.TB, s *server.MCPServer) proxyclient.Dial {
	return func(context.Context) (transport.Interface, error) { return transport.NewInProcessTransport(s), nil }
}

// overPipe serves one session at a time, as stdio does.
func overPipe(t testing.TB, s *server.MCPServer) proxyclient.Dial {
	return (&pipes{server: func() *server.MCPServer { return s }}).dial(t)
}

// pipes are connections of the kind of stdio, which a test can cut.
type pipes struct {
	server func() *server.MCPServer
	dials  atomic.Int64
	mu     sync.Mutex // guards what follows, which is of the last connection
	cut    func()
	client transport.Interface
}

func (p *pipes) dial(t testing.TB) proxyclient.Dial {
	return func(context.Context) (transport.Interface, error) {
		p.dials.Add(1)
		toServer, fromClient := io.Pipe()
		toClient, fromServer := io.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		stdio := server.NewStdioServer(p.server())
		stdio.SetErrorLogger(log.New(io.Discard, "", 0))
		go func() {
			defer close(ended)
			_ = stdio.Listen(ctx, toServer, fromServer)
			_ = fromServer.Close()
			_ = toServer.Close()
		}()
		cut := func() {
			_ = fromServer.Close()
			_ = toServer.Close()
			cancel()
		}
		client := transport.NewIO(toClient, fromClient, io.NopCloser(nothing{}))
		p.mu.Lock()
		p.cut, p.client = cut, client
		p.mu.Unlock()
		t.Cleanup(func() {
			cut()
			<-ended
		})
		return client, nil
	}
}

// cutLast ends the last connection and returns once its client has seen it.
func (p *pipes) cutLast(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	await.Nil(t, func() error {
		err := p.client.SendNotification(t.Context(), mcp.JSONRPCNotification{JSONRPC: "2.0"})
		if errors.Is(err, transport.ErrTransportClosed) {
			return nil
		}
		return fmt.Errorf("a notification is sent: %w", err)
	})
}

// nothing is what a child says on stderr.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

func overHTTP(t testing.TB, s *server.MCPServer) proxyclient.Dial {
	site := newSite(t)
	site.start(s)
	return site.dial
}

// site is an HTTP server that a test can stop and start again at its address.
type site struct {
	t       testing.TB
	address string
	client  *http.Client
	dials   atomic.Int64
	stop    func()
}

func newSite(t testing.TB) *site {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = listener.Close()
	s := &site{t: t, address: listener.Addr().String(), stop: func() {},
		client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
	t.Cleanup(func() {
		s.stop()
		s.client.CloseIdleConnections()
	})
	return s
}

func (s *site) start(of *server.MCPServer) {
	s.t.Helper()
	var listener net.Listener
	await.Nil(s.t, func() (err error) {
		listener, err = net.Listen("tcp", s.address)
		return err
	})
	web := &http.Server{Handler: server.NewStreamableHTTPServer(of, server.WithStateful(true))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = web.Serve(listener)
	}()
	s.stop = sync.OnceFunc(func() {
		_ = web.Close()
		<-ended
		s.client.CloseIdleConnections() // else a call may meet a connection that ends just then
	})
}

func (s *site) dial(context.Context) (transport.Interface, error) {
	s.dials.Add(1)
	return transport.NewStreamableHTTP("http://"+s.address+"/mcp", transport.WithHTTPBasicClient(s.client),
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
}

// open opens a client that is closed with the test.
func open(t testing.TB, dial proxyclient.Dial, options ...proxyclient.Option) *proxyclient.Client {
	t.Helper()
	c := must.Get(proxyclient.Open(t.Context(), dial, options...))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}
