package proxy_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"toolfinch/view"
)

// secretive is a server that takes a URI for more than is listed: it answers
// whatever it is asked about.
func secretive(t testing.TB) *script {
	s := newScript(t, "up", false, false)
	s.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`)
	s.list("resources", `{"uri":"res://up/open","name":"open"}`, `{"uri":"res://up/secret","name":"secret"}`)
	s.list("resourceTemplates", `{"uriTemplate":"res://up/{+path}","name":"any"}`, `{"uriTemplate":"res://up/user/{id}","name":"user"}`)
	s.on("resources/read", func(r *request) {
		r.result(`{"contents":[{"uri":` + string(part(r.Params, "uri")) + `,"text":"read"}]}`)
	})
	s.on("resources/subscribe", func(r *request) { r.result(`{}`) })
	s.on("completion/complete", func(r *request) { r.result(`{"completion":{"values":["secret"]}}`) })
	return s
}

// uriWays are those in which a client can have a server asked about a URI.
func (c *rawClient) uriWays() map[string]func(uri string) message {
	tool := func(name, arguments string) message { return c.ask("tools/call", toolCall(name, arguments)) }
	ways := map[string]func(uri string) message{
		"read":     func(uri string) message { return c.ask("resources/read", `{"uri":`+uri+`}`) },
		"complete": func(uri string) message { return c.ask("completion/complete", completing(uri)) },
		"proxy": func(uri string) message {
			return tool("proxy", `{"action":"call","type":"resource","path":`+uri+`}`)
		},
		"proxy, batch": func(uri string) message {
			return tool("proxy", `{"action":"batch","operations":[{"action":"call","type":"resource","path":`+uri+`}]}`)
		},
		"call_tool": func(uri string) message { return tool("call_tool", `{"name":`+uri+`}`) },
	}
	if !c.modern {
		ways["subscribe"] = func(uri string) message { return c.ask("resources/subscribe", `{"uri":`+uri+`}`) }
	}
	return ways
}

func completing(uri string) string {
	return `{"ref":{"type":"ref/resource","uri":` + uri + `},"argument":{"name":"path","value":"s"}}`
}

func TestAnExcludedResourceIsReachedByNoSpelling(t *testing.T) {
	templates := everything("templates", view.ExposureRetrieve)
	templates.Exclude = []view.Pattern{{Glob: "up.res://up/secret"}, {Glob: "up.res://up/user/{id}"}}
	lists := everything("lists", view.ExposureRetrieve)
	lists.Exclude = []view.Pattern{{Glob: "up.res://up/secret"}, {Glob: "up.res://up/{+path}"}, {Glob: "*.res://up/user/{id}"}}
	views := []view.Settings{templates, lists}
	for i := range views {
		views[i].ProxyTool = "proxy"
	}
	spellings := []string{
		"res://up/secret", "res://up/%73ecret", "RES://up/secret", "res://UP/secret", "res://up/./secret", "res://up/a/../secret", "res://up/%2e/secret",
		"res://up/secret?", "res://up/secret?x=1", "res://up/secret#", "res://up/secret#x", "res://up/secret/", "res://up//secret", "res://up/%2573ecret",
		"toolfinch:up/res://up/secret", "toolfinch:up/res://up/%73ecret", "toolfinch:up/RES://up/secret", "TOOLFINCH:up/res://up/./secret",
		"toolfinch:%75p/res://up/secret", "toolfinch:up/res://up/secret?", "toolfinch:up/secret", "toolfinch:up/toolfinch:up/res://up/secret",
		"res://up/user/7", "RES://up/user/7", "toolfinch:up/res://up/user/7", "up:secret", "secret", "res://up/user/{id}", "toolfinch:up/res://up/user/{id}",
	}
	s := secretive(t)
	config := configOf(t, []*script{s}, views...)
	config.REST = true
	p, url := openViews(t, "", config)
	asked := func() (all []message) {
		for _, method := range []string{"resources/read", "resources/subscribe", "completion/complete"} {
			all = append(all, s.got(method)...)
		}
		return all
	}
	for _, v := range views {
		for _, modern := range []bool{false, true} {
			c := viewClient(t, p, url, v.Name, modern)
			for way, ask := range c.uriWays() {
				for _, uri := range spellings {
					before := len(asked())
					got := ask(strconv.Quote(uri))
					if now := asked(); len(now) > before {
						t.Errorf("view %s, modern %v, %s: %s reached the server as %s and answered %s", v.Name, modern, way, uri, now[len(now)-1].raw, got.raw)
					}
				}
			}
			if modern {
				quoted, _ := json.Marshal(spellings)
				(&meeting{rawClient: c}).listen(`{"toolsListChanged":true,"resourceSubscriptions":` + string(quoted) + `}`)
			}
		}
		for _, uri := range spellings {
			for _, name := range []string{"proxy", "call_tool", uri} {
				body := `{"tool_id":` + strconv.Quote(name) + `,"arguments":{"action":"call","type":"resource","name":` + strconv.Quote(uri) + `,"path":` + strconv.Quote(uri) + `}}`
				curl(t, url, "POST", "/api/proxy/execute?view="+v.Name, body)
			}
		}
	}
	if got := asked(); len(got) > 0 {
		t.Errorf("the server was reached: %s", got[len(got)-1].raw)
	}
}

// What policies forbid of resources is forbidden in every spelling, for what is listed, for
// patterns and for templates; what they permit is permitted where it leads.
func TestAForbiddenResourceIsReachedByNoSpelling(t *testing.T) {
	for name, c := range map[string]struct {
		policies string
		denied   []string
		open     []string
	}{
		"listed": {`permit (principal, action, resource); forbid (principal, action, resource == Resource::"up.file:///Secret%20a.txt");`,
			[]string{"file:///Secret%20a.txt", "FILE:///Secret%20a.txt", "file:///%53ecret%20a.txt", "file:///x/../Secret%20a.txt", "toolfinch:up/FILE:///Secret%20a.txt", "toolfinch:up/toolfinch:up/file:///Secret%20a.txt",
				"file:///Secret a.txt", "file:///secret%20a.txt", "file:///Secret%2520a.txt", "file:/Secret%20a.txt", "file://localhost/Secret%20a.txt", "file:///Secret%20a.txt?x"},
			[]string{"file:///open.txt", "FILE:///open.txt", "file:///else.txt"}},
		"pattern": {`permit (principal, action, resource); forbid (principal, action, resource) when { resource.name like "file:///srv/secret/*" };`,
			[]string{"file:///srv/secret/a", "FILE:///srv/secret/a", "file:/srv/secret/a", "file://localhost/srv/secret/a", "file:///srv/x/../secret/a", "file:///srv/%73ecret/a", "file:///srv/x/..%2fsecret/a", "file:///srv/SECRET/a", "file:///srv/x/?/../../secret/a"},
			[]string{"file:///srv/a", "file:///srv/secrets"}},
		"permit": {`permit (principal, action, resource == Tool::"up.a"); permit (principal, action, resource) when { resource.name like "file:///srv/*" };`,
			[]string{"file:///srv/../etc/passwd", "file:///srv/%2e%2e/etc/passwd", "file:///srv/..%2fetc/passwd", `file:///srv/..\etc\passwd`, "file:///srv/?/../../etc/passwd", "file:///etc/passwd"},
			[]string{"file:///srv/a", "file:///srv/a%20b?x=1", "file:///srv/x/../a"}},
		"template": {`permit (principal, action, resource); forbid (principal, action, resource in Template::"up.note://all/{id}");`,
			[]string{"note://all/7", "NOTE://all/7", "note://ALL/7", "note:%2f%2fall/7", "note://me@all/7", "note://all//7", "note://all/{id}", "NOTE://all/{id}"},
			[]string{"note://some/7", "file:///open.txt"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "up", false, false)
			s.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`)
			s.list("resources", `{"uri":"file:///Secret%20a.txt","name":"secret"}`, `{"uri":"file:///open.txt","name":"open"}`)
			s.list("resourceTemplates", `{"uriTemplate":"note://all/{id}","name":"notes"}`)
			s.on("resources/read", func(r *request) { r.result(`{"contents":[]}`) })
			s.on("resources/subscribe", func(r *request) { r.result(`{}`) })
			s.on("completion/complete", func(r *request) { r.result(`{"completion":{"values":[]}}`) })
			all := everything("all", view.ExposureRetrieve)
			all.ProxyTool = "proxy"
			config := configOf(t, []*script{s}, all)
			config.Policies = policies(t, c.policies)
			p, url := openViews(t, "", config)
			for _, modern := range []bool{false, true} {
				client := viewClient(t, p, url, "all", modern)
				asked := func() int {
					return len(s.got("resources/read")) + len(s.got("resources/subscribe")) + len(s.got("completion/complete"))
				}
				for way, ask := range client.uriWays() {
					for _, uri := range c.denied {
						before := asked()
						if got := ask(strconv.Quote(uri)); asked() > before {
							t.Errorf("modern %v, %s: %s reached the server and answered %s", modern, way, uri, got.raw)
						}
					}
				}
				for _, uri := range c.open {
					if got := client.ask("resources/read", `{"uri":`+strconv.Quote(uri)+`}`); failed(got) {
						t.Errorf("modern %v: %s answers %s", modern, uri, got.raw)
					}
				}
			}
		})
	}
}

// What is listed is served in every equivalent spelling, and the server is asked
// for it as it lists it.
func TestAListedResourceIsServedInEquivalentSpellings(t *testing.T) {
	s := secretive(t)
	closed := everything("closed", view.ExposureRetrieve)
	closed.Exclude, closed.ProxyTool = []view.Pattern{{Glob: "up.res://up/secret"}, {Glob: "up.res://up/{+path}"}}, "proxy"
	p, url := openViews(t, "", configOf(t, []*script{s}, closed))
	for _, modern := range []bool{false, true} {
		c := viewClient(t, p, url, "closed", modern)
		for _, uri := range []string{"res://up/open", "RES://up/open", "res://up/%6fpen", "res://up/./open", "toolfinch:up/res://up/open", "toolfinch:up/RES://UP/%6Fpen"} {
			for way, ask := range c.uriWays() {
				if got := ask(strconv.Quote(uri)); failed(got) {
					t.Errorf("modern %v, %s: %s answers %s", modern, way, uri, got.raw)
				}
			}
		}
	}
	for _, method := range []string{"resources/read", "resources/subscribe", "completion/complete"} {
		all := s.got(method)
		if len(all) == 0 || slices.ContainsFunc(all, func(m message) bool {
			uri := partText(m.Params, "uri")
			if method == "completion/complete" {
				uri = partText(part(m.Params, "ref"), "uri")
			}
			return uri != "res://up/open"
		}) {
			t.Errorf("%s was sent as %v", method, all)
		}
	}
}

// A view that excludes nothing of a server still sends it nothing that it does not
// list only because the client names it; the default view, which has all, does.
func TestInAViewANameDoesNotLeadToWhatIsNotListed(t *testing.T) {
	for _, names := range [][]string{{"up"}, {"up", "other"}} {
		var scripts []*script
		for _, name := range names {
			one := newScript(t, name, false, false)
			one.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`)
			one.list("resources", `{"uri":"res://`+name+`/open","name":"open"}`)
			one.on("resources/read", func(r *request) { r.result(`{"contents":[]}`) })
			scripts = append(scripts, one)
		}
		p, url := openViews(t, "", configOf(t, scripts, everything("all", view.ExposureRetrieve)))
		for name, want := range map[string]bool{"all": false, view.Default: true} {
			for _, modern := range []bool{false, true} {
				c := viewClient(t, p, url, name, modern)
				for uri, read := range map[string]bool{
					"toolfinch:up/res://up/else": want,
					"toolfinch:up/res://up/open": true,
					"res://up/else":              len(names) == 1, // it can only be that one's
				} {
					if got := c.ask("resources/read", `{"uri":"`+uri+`"}`); failed(got) == read {
						t.Errorf("servers %v, view %s, modern %v: %s answers %s", names, name, modern, uri, got.raw)
					}
				}
			}
		}
	}
}
