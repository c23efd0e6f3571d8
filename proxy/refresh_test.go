package proxy_test

import (
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/upstream"
)

// A server counts as listed once it has said what it has, be that nothing, and
// then for every later run.
func TestServersAreMetOnce(t *testing.T) {
	dir := t.TempDir()
	empty := httptest.NewServer(server.NewStreamableHTTPServer(server.NewMCPServer("empty", "1", server.WithToolCapabilities(true))))
	t.Cleanup(empty.Close)
	servers := []upstream.Settings{
		settings("shop", newUpstream(t, 5).URL), settings("gone", "http://127.0.0.1:1/mcp"), settings("empty", empty.URL),
	}
	p := openWorkspace(t, configFor(dir, servers...))
	if got, want := p.Unlisted(), []string{"shop", "gone", "empty"}; !slices.Equal(got, want) {
		t.Fatalf("never listed are %v, want %v", got, want)
	}
	done := 0
	rows := p.Refresh(t.Context(), func(proxy.Refreshed) { done++ }, "empty", "gone", "unheard of")
	if done != 3 || rows[0].Server != "empty" || rows[0].Err != nil || rows[1].Err == nil || rows[2].Err == nil {
		t.Errorf("%d done: %+v", done, rows)
	}
	if p.Tools() != 0 {
		t.Errorf("%d tools are known of servers that were not asked", p.Tools())
	}
	p.Refresh(t.Context(), nil, "shop")
	if p.Tools() != 5 {
		t.Errorf("%d tools are known, want 5", p.Tools())
	}
	must.Do(t, p.Close())

	p = openWorkspace(t, configFor(dir, servers...))
	defer p.Close()
	if got, want := p.Unlisted(), []string{"gone"}; !slices.Equal(got, want) {
		t.Errorf("never listed are %v, want %v", got, want)
	}
}

// What is malformed in a list is said once, and what of it is held, by the
// name of its tool.
func TestListsAreSpokenOfOnce(t *testing.T) {
	s := newScript(t, "shop", false, false)
	const malformed, mended = `{"name":"odd","inputSchema":{"type":"object"},"title":5}`, `{"name":"bare"}`
	s.list("tools", malformed, mended, `{"name":"hat","inputSchema":{"type":"object"}}`)
	var log strings.Builder
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, Servers: []upstream.Settings{s.settings}}
	p := openWorkspace(t, config, proxy.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	defer p.Close()
	first := p.Refresh(t.Context(), nil)[0]
	if first.Err != nil || first.Faults.LeftOut != 1 || first.Faults.Mended != 1 || p.Tools() != 2 {
		t.Errorf("%d tools, %+v", p.Tools(), first)
	}
	p.Refresh(t.Context(), nil)
	s.list("tools", malformed, mended, `{"name":"hat","inputSchema":{"type":"object"},"description":"Another"}`)
	if third := p.Refresh(t.Context(), nil)[0]; !slices.Equal(third.Diff.Changed, []string{"hat"}) {
		t.Errorf("changed are %v", third.Diff.Changed)
	}
	for _, line := range []string{
		`clients would refuse the whole list" server=shop tool=odd reason="title is a number, not text"`,
		`a malformed definition is served mended" server=shop tool=bare reason="inputSchema is missing:`,
		`definitions are held until you approve them: toolfinch pins" server=shop changed=1 new=0 names=[hat]`,
	} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%d times in the log: %s\n%s", n, line, log.String())
		}
	}
}

// A workspace that does not learn leaves the store of its data directory as it is,
// be it that of another configuration.
func TestAWorkspaceWritesNothing(t *testing.T) {
	dir := t.TempDir()
	shop, other := settings("shop", newUpstream(t, 5).URL), settings("other", newUpstream(t, 7).URL)
	learn(t, configFor(dir, shop))
	w := must.Get(proxy.OpenWorkspace(t.Context(), configFor(dir, other)))(t)
	if w.Tools() != 0 {
		t.Errorf("it has %d tools of a server that it does not name", w.Tools())
	}
	if row := w.Refresh(t.Context(), nil)[0]; row.Err != nil || row.Lost != nil || row.Diff.Total != 7 || w.Tools() != 7 {
		t.Errorf("%d tools, %+v", w.Tools(), row)
	}
	must.Do(t, w.Close())
	for config, want := range map[*configs.Config]int{configFor(dir, shop): 5, configFor(dir, other): 0} {
		w := must.Get(proxy.OpenWorkspace(t.Context(), config))(t)
		if w.Tools() != want {
			t.Errorf("afterwards %d tools of %s are known, want %d", w.Tools(), config.Servers[0].Name, want)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
