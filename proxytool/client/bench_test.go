package client_test

import (
	"testing"

	"toolfinch/internal/must"
	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

// One call of a tool over HTTP: with mcp-go's client, with this one, and through
// the proxy tool.
func BenchmarkCall(b *testing.B) {
	args := map[string]string{"text": "hello"}
	h := newHouse(b)
	site := newSite(b)
	site.start(h.MCPServer)
	b.Run("mcp-go", func(b *testing.B) {
		c := ordinary(b, site.dial)
		for b.Loop() {
			must.Get(c.CallTool(b.Context(), callTool("echo", args)))(b)
		}
	})
	b.Run("direct", func(b *testing.B) {
		c := open(b, site.dial)
		for b.Loop() {
			must.Get(c.CallTool(b.Context(), callTool("echo", args)))(b)
		}
	})
	b.Run("transparent", func(b *testing.B) {
		c := open(b, site.dial, proxyclient.WithTransparent())
		for b.Loop() {
			must.Get(c.CallTool(b.Context(), callTool("echo", args)))(b)
		}
	})
	b.Run("proxy", func(b *testing.B) {
		c := open(b, site.dial)
		for b.Loop() {
			must.Get(c.Proxy(b.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", args))(b)
		}
	})
}
