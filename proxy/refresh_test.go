package proxy_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/mark3labs/mcp-go/server"

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
	p := open(t, dir, servers...)
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
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	p = open(t, dir, servers...)
	defer p.Close()
	if got, want := p.Unlisted(), []string{"gone"}; !slices.Equal(got, want) {
		t.Errorf("never listed are %v, want %v", got, want)
	}
}
