package proxy_test

import (
	"strings"
	"testing"
)

// appScript is a server with an app, and a tool that only the app calls.
func appScript(t testing.TB, name string, k kind) *script {
	s := newScript(t, name, k.modern, k.stdio)
	s.capabilities = `{"tools":{},"resources":{},"extensions":{"io.modelcontextprotocol/ui":{"x":1},"io.modelcontextprotocol/skills":{},"com.example/more":{}}}`
	uri := "ui://" + name + "/main"
	s.list("tools", `{"name":"weather","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"`+uri+`"}}}`,
		`{"name":"refresh","inputSchema":{"type":"object"},"_meta":{"ui":{"visibility":["app"]}}}`)
	s.list("resources", `{"uri":"`+uri+`","name":"main"}`)
	s.on("resources/read", func(r *request) { r.result(`{"resultType":"complete","contents":[]}`) })
	for _, tool := range []string{"weather", "refresh"} {
		s.on("tools/call "+tool, func(r *request) {
			r.result(`{"resultType":"complete","content":[],"structuredContent":{"of":"` + name + `"}}`)
		})
	}
	return s
}

func TestAppsInAllCombinationsOfEras(t *testing.T) {
	const ui = `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`
	for _, k := range []kind{{}, {modern: true}} {
		for _, server := range []kind{{}, {modern: true}} {
			t.Run(k.String()+" client, "+server.String()+" server", func(t *testing.T) {
				one, two := appScript(t, "one", server), appScript(t, "two", server)
				p, url := openScripts(t, nil, one, two)
				c := newClient(t, p, url, k, ui, reply)
				hello := "initialize"
				if k.modern {
					hello = "server/discover"
				}
				if declared := part(part(c.ask(hello, `{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":`+ui+`}`).Result, "capabilities"), "extensions"); string(declared) != `{"io.modelcontextprotocol/ui":{"x":1}}` { // methods of others are not passed on
					t.Errorf("declared extensions: %s", declared)
				}
				if list := c.ask("tools/list", `{}`); strings.Contains(list.raw, "refresh") {
					t.Errorf("a tool for apps alone is listed: %s", list.raw)
				}
				for _, name := range []string{"two", "one"} {
					if got := c.ask("resources/read", `{"uri":"ui://`+name+`/main"}`); got.Error != nil {
						t.Fatal(got.raw)
					}
					got := c.ask("tools/call", `{"name":"refresh"}`)
					switch {
					case k.modern && got.Error == nil: // without a session nobody knows whose app it is
						t.Errorf("a name of two servers' apps is taken: %s", got.raw)
					case !k.modern && string(part(part(got.Result, "structuredContent"), "of")) != `"`+name+`"`:
						t.Errorf("the app of %s got %s", name, got.raw)
					}
				}
				if got := c.ask("tools/call", `{"name":"one_refresh"}`); got.Error != nil {
					t.Errorf("by its exposed name: %s", got.raw)
				}
				told := part(one.got("tools/call")[0].Params, "_meta")
				if !server.modern {
					told = one.got("initialize")[0].Params
				}
				if !strings.Contains(string(told), `"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}`) {
					t.Errorf("the server was told %s", told)
				}
			})
		}
	}
}
