package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/must"
	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

// eras are what mcp-go's client can be made to speak.
var eras = []struct {
	name    string
	options []client.ClientOption
}{{"2026-07-28", nil}, {"legacy", []client.ClientOption{client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION)}}}

func TestARestartOfAnHTTPServerIsNotNoticed(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			site := newSite(t)
			site.start(newHouse(t).MCPServer)
			c := open(t, site.dial, proxyclient.WithTransparent(), proxyclient.WithClientOptions(era.options...))
			for _, use := range []struct {
				name string
				run  func() error
			}{
				{"call", func() error { _, err := c.CallTool(t.Context(), callTool("echo", nil)); return err }},
				{"list", func() error { _, err := c.ListTools(t.Context(), mcp.ListToolsRequest{}); return err }},
				{"read", func() error { _, err := c.ReadResource(t.Context(), readResource("house://notes")); return err }},
				{"get", func() error {
					_, err := c.GetPrompt(t.Context(), getPrompt("greet", map[string]string{"name": "Ada"}))
					return err
				}},
			} {
				site.stop()
				h := newHouse(t)
				site.start(h.MCPServer)
				if err := use.run(); err != nil {
					t.Errorf("%s: %v", use.name, err)
				}
				if n := h.echoes.Load(); use.name == "call" && n != 1 {
					t.Errorf("echo was called %d times", n)
				}
			}
		})
	}
}

func TestAServerThatIsAwayIsAnErrorUntilItIsBack(t *testing.T) {
	site := newSite(t)
	site.start(newHouse(t).MCPServer)
	c := open(t, site.dial)
	site.stop()
	_, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", nil)
	var away *net.OpError
	if !errors.As(err, &away) {
		t.Errorf("error = %v", err)
	}
	site.start(newHouse(t).MCPServer)
	if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", nil); err != nil {
		t.Errorf("once it is back: %v", err)
	}
}

func TestManyCallersDialOnce(t *testing.T) {
	site := newSite(t)
	site.start(newHouse(t).MCPServer)
	c := open(t, site.dial, proxyclient.WithClientOptions(client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION)))
	site.stop()
	h := newHouse(t)
	site.start(h.MCPServer)
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", nil); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if dials, calls := site.dials.Load(), h.echoes.Load(); dials != 2 || calls != 20 {
		t.Errorf("%d dials, %d calls of the tool", dials, calls)
	}
}

func TestACallThatNeverLeftIsSentAgain(t *testing.T) {
	h := newHouse(t)
	line := &pipes{server: func() *server.MCPServer { return h.MCPServer }}
	c := open(t, line.dial(t))
	line.cutLast(t)
	if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", nil); err != nil || h.echoes.Load() != 1 {
		t.Errorf("%d calls of the tool, %v", h.echoes.Load(), err)
	}
}

// Whether the tool has done its work nobody knows: the caller is to decide.
func TestACallOfAToolThatWasLostIsNotRepeated(t *testing.T) {
	for name, op := range map[string]proxytool.Operation{
		"call":  {Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "hang"},
		"batch": {Action: proxytool.ActionBatch, Operations: []proxytool.Operation{{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "hang"}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			line := &pipes{server: func() *server.MCPServer { return h.MCPServer }}
			c := open(t, line.dial(t))
			go func() {
				<-h.hanging
				line.cutLast(t)
			}()
			if _, err := c.Do(t.Context(), op); err == nil {
				t.Error("a lost call has an answer")
			}
			if dials := line.dials.Load(); dials != 1 {
				t.Errorf("%d dials", dials)
			}
			if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", nil); err != nil {
				t.Errorf("the next call: %v", err)
			}
			if n := len(h.hanging); n != 0 {
				t.Errorf("the tool was called %d times more", n)
			}
		})
	}
}

func TestAReadThatWasLostIsRepeated(t *testing.T) {
	h := newHouse(t)
	line := &pipes{server: func() *server.MCPServer { return h.MCPServer }}
	c := open(t, line.dial(t), proxyclient.WithTransparent())
	go func() {
		<-h.hanging
		line.cutLast(t)
	}()
	r, err := c.ReadResource(t.Context(), readResource("house://slow"))
	if err != nil || len(r.Contents) != 1 || h.slow.Load() != 2 {
		t.Errorf("%+v, %v, read %d times", r, err, h.slow.Load())
	}
}

func TestAServerThatComesBackChanged(t *testing.T) {
	plain := func(name string) *server.MCPServer {
		s := server.NewMCPServer("s", "1", server.WithToolCapabilities(true))
		s.AddTool(mcp.NewTool("greet"), nothingToDo)
		if name != "" {
			must.Do(t, proxytool.Attach(s, proxytool.WithName(name)))
		}
		return s
	}
	names := []string{"one", "two", ""}
	line := &pipes{}
	line.server = func() *server.MCPServer { return plain(names[line.dials.Load()-1]) }
	c := open(t, line.dial(t))
	line.cutLast(t)
	r, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "greet", nil)
	if err != nil || r.Text() != "nothing" || c.ToolName() != "two" {
		t.Errorf("%+v, %v, tool %s", r, err, c.ToolName())
	}
	line.cutLast(t)
	if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionInfo, "greet", nil); !errors.Is(err, proxyclient.ErrNoProxyTool) {
		t.Errorf("without a proxy tool: %v", err)
	}
	if dials := line.dials.Load(); dials != 3 { // dialling again would not bring one
		t.Errorf("%d dials", dials)
	}
}

func TestATransportThatIsThereOnceIsLostOnce(t *testing.T) {
	h := newHouse(t)
	line := &pipes{server: func() *server.MCPServer { return h.MCPServer }}
	inner := must.Get(line.dial(t)(t.Context()))(t)
	must.Do(t, inner.Start(t.Context()))
	c := open(t, proxyclient.Once(inner))
	must.Get(c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionInfo, "echo", nil))(t)
	line.cutLast(t)
	if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionInfo, "echo", nil); !errors.Is(err, proxyclient.ErrDialedOnce) {
		t.Errorf("error = %v", err)
	}
}

// dying is a transport whose calls of tools fail, the first one once gate is
// closed.
type dying struct {
	transport.Interface
	calls         atomic.Int64
	entered, gate chan struct{}
}

func (d *dying) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if r.Method != "tools/call" {
		return d.Interface.SendRequest(ctx, r)
	}
	if d.calls.Add(1) == 1 {
		close(d.entered)
		<-d.gate
	}
	return nil, transport.ErrTransportClosed
}

func TestACallThatLearnsLateOfALossKeepsTheNewConnection(t *testing.T) {
	dial := overNothing(t, newHouse(t).MCPServer)
	first := &dying{entered: make(chan struct{}), gate: make(chan struct{})}
	dials := 0
	c := open(t, func(ctx context.Context) (transport.Interface, error) {
		inner, err := dial(ctx)
		if dials++; dials == 1 {
			first.Interface = inner
			return first, err
		}
		return inner, err
	})
	info := func() {
		if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionInfo, "echo", nil); err != nil {
			t.Error(err)
		}
	}
	var late sync.WaitGroup
	late.Go(info)
	<-first.entered
	info() // over a new connection
	close(first.gate)
	late.Wait()
	if dials != 2 {
		t.Errorf("%d dials", dials)
	}
}
