package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// step is one task of the demo client.
type step struct {
	want      string // what the user asks for
	query     string // query for retrieve_tools
	tool      string // tool to call; the query must find it
	arguments map[string]any
}

var steps = []step{
	{"What time is it in Tokyo when it is nine in the morning in Berlin?", "convert a time between time zones",
		"clock_convert_time", map[string]any{"time": "2026-03-02T09:00:00", "from": "Europe/Berlin", "to": "Asia/Tokyo"}},
	{"How far is a marathon in miles?", "convert kilometres to miles",
		"math_convert_units", map[string]any{"value": 42.195, "from": "km", "to": "mi"}},
	{"Remember that the spare key is with Ada.", "save a note",
		"notes_add", map[string]any{"title": "Spare key", "text": "The spare key is with Ada."}},
	{"Where was that key again?", "search my notes",
		"notes_search", map[string]any{"query": "key"}},
}

// Play runs a real MCP client over in and out. The client acts like an agent that uses the built-in servers through the
// proxy. Play prints each step to w.
func Play(ctx context.Context, in io.Reader, out io.WriteCloser, w io.Writer) error {
	p := &player{w: w, changed: make(chan struct{}, 1)}
	//lint:ignore SA1019 the demo shows list_changed in a session, which only the legacy era has
	c := client.NewClient(transport.NewIO(in, out, io.NopCloser(strings.NewReader(""))), client.WithLegacyProtocolOnly())
	defer c.Close()
	p.client = c
	if err := c.Start(ctx); err != nil {
		return err
	}
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == mcp.MethodNotificationToolsListChanged {
			select {
			case p.changed <- struct{}{}:
			default:
			}
		}
	})
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ClientInfo: mcp.Implementation{Name: "toolfinch-demo", Version: "1"}}}); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if err := p.waitForServers(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "A client has connected. tools/list shows %s.\n", strings.Join(p.list(ctx), ", "))
	for _, s := range steps {
		if err := p.step(ctx, s); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\nThe definitions this client was given cost %d tokens; listing all %d tools would have cost %d: %d %% saved.\n",
		p.spent, p.tools, p.all, 100*(p.all-p.spent)/max(p.all, 1))
	fmt.Fprintln(w, "\nNext: toolfinch demo --serve, or your own servers: see the README.")
	return nil
}

type player struct {
	client  *client.Client
	w       io.Writer
	changed chan struct{}

	spent      int // tokens of the retrieved definitions
	tools, all int // indexed tools, and tokens of a list of them
}

// found has the members of retrieve_tools' answer that the demo reads.
type found struct {
	Tools []foundTool `json:"tools"`
	Index struct {
		Tools  int `json:"tools"`
		Ready  int `json:"servers_ready"`
		Failed int `json:"servers_failed"`
	} `json:"index"`
	Tokens int  `json:"tokens"`
	Saved  *int `json:"tokens_saved"`
}

type foundTool struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Score       float64 `json:"score"`
	Registered  bool    `json:"registered"`
}

// waitForServers waits until every built-in server is connected and the tokens of its tools are counted.
func (p *player) waitForServers(ctx context.Context) error {
	for {
		f, err := p.retrieve(ctx, map[string]any{"query": "tools", "limit": 1, "server": "clock", "detail": "full"})
		if err != nil {
			return err
		}
		if f.Index.Ready == len(Servers()) && f.Saved != nil {
			fmt.Fprintf(p.w, "%d built-in MCP servers are running as child processes; %d tools are indexed.\n", f.Index.Ready, f.Index.Tools)
			p.tools, p.all = f.Index.Tools, f.Tokens+*f.Saved
			return nil
		}
		if f.Index.Failed > 0 {
			return fmt.Errorf("%d of the built-in servers failed to start", f.Index.Failed)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the built-in servers did not start: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *player) step(ctx context.Context, s step) error {
	fmt.Fprintf(p.w, "\nUser: %s\n", s.want)
	fmt.Fprintf(p.w, "  -> retrieve_tools %q\n", s.query)
	for len(p.changed) > 0 {
		<-p.changed
	}
	// An agent's client lists the tools again while the call that changed the list still runs: the proxy holds the
	// answer back until then.
	relisted := make(chan []string, 1)
	stop := make(chan struct{})
	go func() {
		select {
		case <-p.changed:
			relisted <- p.list(ctx)
		case <-stop:
			relisted <- nil
		}
	}()
	began := time.Now()
	f, err := p.retrieve(ctx, map[string]any{"query": s.query, "limit": 3, "detail": "full"})
	took := time.Since(began)
	close(stop)
	names := <-relisted
	if err != nil {
		return err
	}
	p.spent += f.Tokens
	for _, t := range f.Tools {
		fmt.Fprintf(p.w, "     %-24s %.2f  %s\n", t.Name, t.Score, firstLine(t.Description))
	}
	fmt.Fprintf(p.w, "     %d tokens instead of %d, in %s\n", f.Tokens, p.all, took.Round(time.Millisecond))
	if names != nil {
		fmt.Fprintf(p.w, "  <- tools/list_changed; tools/list now shows %d tools\n", len(names))
	}
	if !slices.ContainsFunc(f.Tools, func(t foundTool) bool { return t.Name == s.tool && t.Registered }) {
		return fmt.Errorf("the query %q did not bring %s", s.query, s.tool)
	}
	raw, _ := json.Marshal(s.arguments)
	fmt.Fprintf(p.w, "  -> %s %s\n", s.tool, raw)
	text, err := p.call(ctx, s.tool, s.arguments)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.w, "     %s\n", firstLine(text))
	return nil
}

func (p *player) retrieve(ctx context.Context, arguments map[string]any) (f found, err error) {
	text, err := p.call(ctx, "retrieve_tools", arguments)
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal([]byte(text), &f)
}

func (p *player) call(ctx context.Context, name string, arguments map[string]any) (string, error) {
	result, err := p.client.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{Name: name, Arguments: arguments}})
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	var text string
	for _, content := range result.Content {
		if block, ok := content.(mcp.TextContent); ok {
			text += block.Text
		}
	}
	if result.IsError {
		return "", fmt.Errorf("%s: %s", name, text)
	}
	return text, nil
}

func (p *player) list(ctx context.Context) []string {
	result, err := p.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range result.Tools {
		names = append(names, t.Name)
	}
	return names
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > 90 {
		s = strings.ToValidUTF8(s[:90], "") + "..."
	}
	return s
}
