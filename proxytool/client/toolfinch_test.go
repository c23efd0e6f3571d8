package client_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/demo"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy"
	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

// newToolfinch runs a toolfinch with a proxy tool in front of the house and two
// of the built-in servers, and returns where it is, how many tools it has, and how
// to restart it.
func newToolfinch(t testing.TB, h *house) (front *site, tools int, restart func()) {
	t.Helper()
	config := "proxy_tool: true\ndata_dir: " + filepath.ToSlash(t.TempDir()) + "\nservers:\n"
	add := func(name string, s *server.MCPServer) {
		up := newSite(t)
		up.start(s)
		config += fmt.Sprintf("  %s: {url: \"http://%s/mcp\"}\n", name, up.address)
	}
	add("house", h.MCPServer)
	tools = len(h.ListTools())
	for _, d := range demo.Servers() {
		if d.Name != "math" && d.Name != "text" {
			continue
		}
		s, closeServer, err := d.New(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closeServer() })
		add(d.Name, s)
		tools += len(s.ListTools())
	}
	path := filepath.Join(t.TempDir(), "toolfinch.yaml")
	must.Do(t, os.WriteFile(path, []byte(config), 0o600))
	front = newSite(t)
	stop := serve(t, path, front, tools)
	return front, tools, func() {
		stop()
		front.client.CloseIdleConnections()
		stop = serve(t, path, front, tools)
	}
}

// serve runs a toolfinch at the address of a site until it is stopped or the test
// ends.
func serve(t testing.TB, path string, front *site, tools int) (stop func()) {
	t.Helper()
	config, err := configs.Load(configs.Options{Path: path, Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	await.Nil(t, func() (err error) {
		listener, err = net.Listen("tcp", front.address)
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(ctx context.Context) error { return p.ServeHTTP(ctx, listener) }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Cleanup(stop)
	await.Nil(t, func() error {
		if n := p.Tools(); n != tools {
			return fmt.Errorf("%d tools are known, want %d", n, tools)
		}
		return nil
	})
	return stop
}

// One toolfinch serves all: it takes its time to start and to stop.
func TestToolfinch(t *testing.T) {
	h := newHouse(t)
	front, tools, restart := newToolfinch(t, h)
	t.Run("all is as it is directly", func(t *testing.T) { sameThroughToolfinch(t, front, tools) })
	t.Run("the bytes of the answer", func(t *testing.T) { bytesThroughToolfinch(t, front) })
	t.Run("filters, pages and batches", func(t *testing.T) { pagesThroughToolfinch(t, front) })
	t.Run("progress and calls given up", func(t *testing.T) { progressThroughToolfinch(t, h, front) })
	t.Run("a restart is not noticed", func(t *testing.T) { restartOfToolfinch(t, h, front, restart) })
}

func sameThroughToolfinch(t *testing.T, front *site, tools int) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			plain := ordinary(t, front.dial, era.options...)
			ours := open(t, front.dial, proxyclient.WithTransparent(), proxyclient.WithClientOptions(era.options...))
			for _, exchange := range slices.Concat(exchanges[1:4], []exchange{ // without tools: toolfinch lists others than it has
				{"call", call("house_echo", map[string]any{"text": "<hello> & \u00e9"})},
				{"structured", call("house_big", nil)},
				{"content of every kind", call("house_mixed", nil)},
				{"failure", call("house_fail", nil)},
				{"of a built-in server", call("text_count", map[string]string{"text": "one two"})},
				{"text", read("house://notes")},
				{"blob", read("house://blob")},
				{"of a template", read("house://room/7")},
				{"several contents", read("house://both")},
				{"prompt", func(ctx context.Context, s session) (any, error) {
					r, err := s.GetPrompt(ctx, getPrompt("house_greet", map[string]string{"name": "Ada"}))
					if err != nil {
						return nil, err
					}
					return []any{r.Description, r.Messages}, nil
				}},
			}) {
				want, err := exchange.run(t.Context(), plain)
				if err != nil {
					t.Errorf("%s: directly: %v", exchange.name, err)
					continue
				}
				got, err := exchange.run(t.Context(), ours)
				if err != nil {
					t.Errorf("%s: %v", exchange.name, err)
				} else if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s\nwant %s", exchange.name, asJSON(t, got), asJSON(t, want))
				}
			}
			all, err := ours.ListTools(t.Context(), mcp.ListToolsRequest{})
			if err != nil || len(all.Tools) != tools {
				t.Fatalf("%d tools, want %d: %v", len(all.Tools), tools, err)
			}
			if !slices.ContainsFunc(all.Tools, func(tool mcp.Tool) bool {
				return tool.Name == "house_echo" && tool.Description == "Answer with the arguments"
			}) {
				t.Errorf("tools = %s", asJSON(t, all.Tools))
			}
		})
	}
}

func bytesThroughToolfinch(t *testing.T, front *site) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			c := open(t, front.dial, proxyclient.WithClientOptions(era.options...))
			for _, test := range []struct {
				op   proxytool.Operation
				want string // in the bytes of the answer
			}{
				{proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "house_big"}, `"structuredContent":{"n":9007199254740993,"f":1.0,"b":1,"a":2}`},
				{proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "house_hologram"}, `"colour":"green"`},
				{proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "house_echo", Args: []byte(`{"n":9007199254740993,"f":1.0}`)}, `\"n\":9007199254740993,\"f\":1.0`},
				{proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeResource, Path: "house://data"}, `{\"n\":9007199254740993,\"f\":1.0,\"z\":1,\"a\":2}`},
				{proxytool.Operation{Action: proxytool.ActionInfo, Type: proxytool.TypeTool, Path: "house_echo"}, `\"readOnlyHint\":true`},
			} {
				r, err := c.Do(t.Context(), test.op)
				if err != nil || !strings.Contains(string(r.Raw), test.want) {
					t.Errorf("%s: %+v, %v", test.op.Path, r, err)
				}
			}
		})
	}
}

func pagesThroughToolfinch(t *testing.T, front *site) {
	c := open(t, front.dial)
	two := 2
	op := proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Filter: &proxytool.Filter{Server: "text"}, Limit: &two}
	total := 0
	for {
		list := decoded(t, c, op)
		for _, item := range list.Items {
			if name := rawjson.Text(rawjson.Member(item, "name")); !strings.HasPrefix(name, "text_") {
				t.Errorf("%s is not of the server", name)
			}
		}
		total += len(list.Items)
		if op.Cursor = list.Label.Page.Next; op.Cursor == "" {
			if total != list.Label.Page.Total || total < 3 {
				t.Errorf("%d tools of %d", total, list.Label.Page.Total)
			}
			break
		}
	}
	found := decoded(t, c, proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Filter: &proxytool.Filter{Query: "count the words of a text"}})
	if len(found.Items) == 0 || rawjson.Text(rawjson.Member(found.Items[0], "name")) != "text_count" {
		t.Errorf("found %s", found.Items)
	}
	batch := decoded(t, c, proxytool.Operation{Action: proxytool.ActionBatch, Operations: []proxytool.Operation{
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "house_echo"},
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "house_nobody"},
		{Action: proxytool.ActionCall, Type: proxytool.TypePrompt, Path: "house_greet", Args: []byte(`{"name":"Ada"}`)},
	}})
	for i, failed := range []bool{false, true, false} {
		if r := (&proxyclient.Result{Raw: batch.Items[i]}); r.Failed() != failed {
			t.Errorf("operation %d: %s", i, r.Raw)
		}
	}
}

func decoded(t *testing.T, c *proxyclient.Client, op proxytool.Operation) *proxytool.Decoded {
	t.Helper()
	r, err := c.Do(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Decode()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func progressThroughToolfinch(t *testing.T, h *house, front *site) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			c := open(t, front.dial, proxyclient.WithTransparent(), proxyclient.WithClientOptions(era.options...))
			var got []float64
			ctx := proxyclient.OnProgress(t.Context(), func(progress, _ float64, _ string) {
				got = append(got, progress)
				h.step("") <- struct{}{}
			})
			if _, err := c.CallTool(ctx, callTool("house_steps", nil)); err != nil || !slices.Equal(got, []float64{1, 2, 3}) {
				t.Errorf("progress = %v, %v", got, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-h.hanging
				cancel()
			}()
			if _, err := c.CallTool(ctx, callTool("house_hang", nil)); err == nil {
				t.Error("the call has an answer")
			}
			<-h.cancelled
		})
	}
}

func restartOfToolfinch(t *testing.T, h *house, front *site, restart func()) {
	clients := map[string]*proxyclient.Client{}
	for _, era := range eras {
		clients[era.name] = open(t, front.dial, proxyclient.WithTransparent(), proxyclient.WithClientOptions(era.options...))
	}
	restart()
	for era, c := range clients {
		before := h.echoes.Load()
		if _, err := c.CallTool(t.Context(), callTool("house_echo", nil)); err != nil || h.echoes.Load() != before+1 {
			t.Errorf("%s: %v, echo was called %d times", era, err, h.echoes.Load()-before)
		}
	}
}
