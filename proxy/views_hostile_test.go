package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
	starlark "toolfinch/view/script"
)

// caseless is a server in Go, whose JSON library does not look at the case of
// keys. It notes what it was asked for.
type caseless struct {
	settings upstream.Settings

	mu    sync.Mutex // guards asked
	asked []string
}

func newCaseless(t *testing.T) *caseless {
	c := &caseless{}
	s := server.NewMCPServer("go", "1", server.WithToolCapabilities(true), server.WithResourceCapabilities(false, true), server.WithPromptCapabilities(true),
		server.WithCompletions(), server.WithPromptCompletionProvider(c), server.WithResourceCompletionProvider(c))
	for _, name := range []string{"open", "closed"} {
		s.AddTool(mcp.NewTool(name, mcp.WithString("path")), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var arguments struct {
				Path string `json:"path"`
			}
			err := r.BindArguments(&arguments)
			c.note("tool", name, arguments.Path)
			return mcp.NewToolResultText("done"), err
		})
		s.AddPrompt(mcp.NewPrompt(name), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			c.note("prompt", name)
			return mcp.NewGetPromptResult("", nil), nil
		})
		uri := "file:///" + name
		s.AddResource(mcp.NewResource(uri, name), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			c.note("resource", uri)
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, Text: "x"}}, nil
		})
	}
	web := httptest.NewServer(server.NewStreamableHTTPServer(s))
	t.Cleanup(web.Close)
	c.settings = upstream.Settings{Name: "up", URL: web.URL + "/mcp", Protocol: upstream.ProtocolLegacy}
	return c
}

func (c *caseless) CompletePromptArgument(_ context.Context, name string, _ mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	c.note("completion", name)
	return &mcp.Completion{Values: []string{}}, nil
}

func (c *caseless) CompleteResourceArgument(_ context.Context, uri string, _ mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	c.note("completion", uri)
	return &mcp.Completion{Values: []string{}}, nil
}

func (c *caseless) note(what ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, strings.Join(what, " "))
}

// taken returns what was noted since the last time.
func (c *caseless) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

func TestKeysThatDifferInCaseDoNotGetPastAView(t *testing.T) {
	up := newCaseless(t)
	bound := []view.UpstreamTools{{Name: "up", Tools: []view.Override{{Tool: "open", Parameters: []view.Parameter{{Name: "path", Value: []byte(`"bound"`)}}}}}}
	config := configOf(t, nil,
		view.Settings{Name: "listed", Exposure: view.ExposureDirect, Tools: bound},
		view.Settings{Name: "searched", Exposure: view.ExposureSearch, Tools: bound},
		view.Settings{Name: "retrieved", Exposure: view.ExposureRetrieve, Tools: bound},
		view.Settings{Name: "most", Exposure: view.ExposureDirect, IncludeAll: true, Exclude: []view.Pattern{{Glob: "up.*closed"}}},
	)
	config.Servers = []upstream.Settings{up.settings}
	p, url := running(t, config)
	eventually(t, func() bool {
		return len(toolsOf(t, p, "listed")) == 1 && len(toolsOf(t, p, "searched")) == 1 && len(toolsOf(t, p, "retrieved")) == 1 && len(toolsOf(t, p, "most")) == 1
	})
	type ask struct{ view, method, params, want string }
	asks := []ask{
		{"most", "resources/read", `{"uri":"file:///open","URI":"file:///closed"}`, ""},
		{"most", "prompts/get", `{"name":"up_open","Name":"closed"}`, ""},
	}
	for _, ref := range []string{
		`"ref":{"type":"ref/prompt","name":"up_open"},"Ref":{"type":"ref/prompt","name":"closed"}`,
		`"ref":{"type":"ref/prompt","name":"up_open","Name":"closed"}`,
		`"ref":{"type":"ref/prompt","name":"up_open","NAME":"closed","n\u0041me":"closed"}`,
		`"ref":{"type":"ref/prompt","name":"up_open","Type":"ref/resource","uri":"file:///closed"}`,
		`"ref":{"type":"ref/prompt","name":"up_open","TYPE":"ref/resource","URI":"file:///closed"}`,
	} {
		want := "completion open"
		if strings.Contains(ref, `"Ref"`) {
			want = "" // refused: a member of params itself
		}
		asks = append(asks, ask{"most", "completion/complete", `{` + ref + `,"argument":{"name":"x","value":""}}`, want})
	}
	for _, posing := range []string{`"Name":"closed"`, `"NAME":"closed"`, `"Arguments":{"path":"sent"}`, `"argument\u017f":{"path":"sent"}`, `"URI":"file:///closed"`} {
		for name, arguments := range map[string]string{
			"listed up_open":              `{}`,
			"searched searched_call_tool": `{"name":"up_open","arguments":{}}`,
			"retrieved call_tool":         `{"name":"up_open","arguments":{}}`,
		} {
			in, name, _ := strings.Cut(name, " ")
			params := strings.TrimSuffix(toolCall(name, arguments), "}") + "," + posing + "}"
			asks = append(asks, ask{in, "tools/call", params, ""})
		}
	}
	for _, closed := range []string{`{"PATH":"sent"}`, `{"path":"sent"}`, `{"p\u0061th":"sent"}`} {
		asks = append(asks, ask{"retrieved", "tools/call", toolCall("up_open", closed), ""})
	}
	for _, modern := range []bool{false, true} {
		clients := map[string]*rawClient{}
		for _, in := range []string{"listed", "searched", "retrieved", "most"} {
			clients[in] = viewClient(t, p, url, in, modern)
		}
		for _, a := range asks {
			got, want := clients[a.view].ask(a.method, a.params), []string{a.want}
			if a.want == "" {
				want = nil
				if !strings.Contains(string(got.raw), "which the protocol spells") && !strings.Contains(string(got.raw), "the tool takes no argument") {
					t.Errorf("modern %v, %s %s: %s, want it refused", modern, a.method, a.params, got.raw)
				}
			}
			if asked := up.taken(); !slices.Equal(asked, want) {
				t.Errorf("modern %v, %s %s asked the server for %q, want %q: %s", modern, a.method, a.params, asked, want, got.raw)
			}
		}
	}
}

// secrecy is a hook after calls that a view relies on.
func secrecy(_ context.Context, _ *starlark.Info, _ json.RawMessage, result tool.Result) (tool.Result, error) {
	return tool.Result(strings.ReplaceAll(string(result), "SECRET", "hidden")), nil
}

func TestNoAnswerPassesAHookByPosingAsSomethingElse(t *testing.T) {
	kinds := map[string]string{"none": ``, "complete": `"resultType":"complete",`, "odd": `"resultType":"odd",`, "task": `"resultType":"task",`, "input": `"resultType":"input_required",`}
	var scripts []*script
	for _, modern := range []bool{false, true} {
		s := newScript(t, map[bool]string{false: "old", true: "new"}[modern], modern, false)
		var defs []string
		for name := range kinds {
			defs = append(defs, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
		}
		s.list("tools", defs...)
		s.on("tools/call", func(r *request) {
			r.result(`{` + kinds[r.about()] + `"content":[{"type":"text","text":"SECRET"}],"structuredContent":{"x":"SECRET"}}`)
		})
		scripts = append(scripts, s)
	}
	v := everything("v", view.ExposureDirect)
	v.Hooks.Post = []view.PostCall{secrecy}
	p, url := openViews(t, "", configOf(t, scripts, v))
	for _, modern := range []bool{false, true} {
		c := viewClient(t, p, url, "v", modern)
		for _, s := range scripts {
			for name := range kinds {
				if name == "input" && s.modern && !modern {
					continue // the client is asked while the call runs
				}
				got := c.ask("tools/call", toolCall(s.settings.Name+"_"+name, `{}`))
				seen := strings.Contains(got.raw, "hidden") || got.Error != nil // what is not of the era may be refused
				if strings.Contains(got.raw, "SECRET") || !seen {
					t.Errorf("%s server, modern client %v, %s: %s", s.settings.Name, modern, name, got.raw)
				}
			}
		}
	}
}

func TestAViewWithTheNameOfAServerHasNothingOfIt(t *testing.T) {
	inner, outer := insider(t), outsider(t)
	scripts := []*script{inner, outer}
	for _, exposure := range []view.Exposure{view.ExposureSearch, view.ExposureRetrieve} {
		v := view.Settings{Name: "outer", Exposure: exposure, Composites: []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "inner.open", Args: []byte(`{}`)}}}}}
		p, url := openOwn(t, scripts, configOf(t, scripts, v), "outer")
		for _, modern := range []bool{false, true} {
			c := viewClient(t, p, url, "outer", modern)
			call := "outer_call_tool"
			if exposure == view.ExposureRetrieve {
				call = "call_tool"
			}
			if got := c.ask("tools/call", toolCall(call, toolCall("both", `{}`))); failed(got) {
				t.Errorf("the tool of the view: %s", got.raw)
			}
			for _, uri := range []string{"toolfinch:outer/file:///any", "toolfinch:outer/file:///outer/zebra", "toolfinch:outer/outer-zebra://1", "outer-zebra://1"} {
				for method, params := range map[string]string{
					"tools/call":          toolCall(call, toolCall(uri, `{}`)),
					"resources/read":      `{"uri":"` + uri + `"}`,
					"resources/subscribe": `{"uri":"` + uri + `"}`,
					"completion/complete": `{"ref":{"type":"ref/resource","uri":"` + uri + `"},"argument":{"name":"x","value":""}}`,
				} {
					if got := c.ask(method, params); !failed(got) {
						t.Errorf("%s %s = %s", method, params, got.raw)
					}
				}
			}
		}
	}
	for _, method := range []string{"tools/call", "resources/read", "resources/subscribe", "completion/complete"} {
		if got := outer.got(method); len(got) > 0 {
			t.Errorf("the server was reached: %s", got[0].raw)
		}
	}
}

// openOwn is openViews for a view with tools of its own alone.
func openOwn(t *testing.T, scripts []*script, config *configs.Config, name string) (*proxy.Proxy, string) {
	t.Helper()
	p, url := running(t, config)
	eventually(t, func() bool { return p.Tools() == 4 && len(toolsOf(t, p, name)) == 1 })
	return p, url
}

// A view that is removed ends when its calls do, and nobody waits for that.
func TestAViewThatEndsSlowlyIsInNobodysWay(t *testing.T) {
	leavesNothing(t)
	up := shop(t, "shop", "hat")
	config := configOf(t, []*script{up}, everything("passing", view.ExposureDirect))
	p, url := openViews(t, "", config)
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	defer close(answer)
	up.on("tools/call hat", func(r *request) {
		asked <- struct{}{}
		<-answer
		r.result(`{"content":[]}`)
	})
	var calls []pending
	for _, modern := range []bool{false, true} {
		calls = append(calls, newClientAt(t, p, url+"/mcp/passing", kind{modern: modern}, `{}`, reply).begin("tools/call", toolCall("shop_hat", `{"size":1}`)))
		<-asked
	}
	reload(t, p, edited(config))
	up.changes(t, p, goods("hat", "coat")...)
	reload(t, p, edited(config, everything("passing", view.ExposureDirect)))
	for _, call := range calls {
		select {
		case got := <-call.answer:
			t.Errorf("a reload waited until the calls of the view had ended: %s", got.raw)
		default:
		}
	}
	if got := viewClient(t, p, url, "passing", false).listed(); len(got) != 2 {
		t.Errorf("it lists %v", got)
	}
}

// The first request of all makes the endpoint that the end of a view shuts down.
func TestTheFirstRequestComesWithTheEndOfItsView(t *testing.T) {
	leavesNothing(t)
	up := shop(t, "shop", "hat")
	scripts := []*script{up}
	first := func(url string) {
		const body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
		request, _ := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		if response, err := http.DefaultClient.Do(request); err == nil { // or the proxy is gone
			response.Body.Close()
		}
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	t.Run("removed", func(t *testing.T) {
		config := configOf(t, scripts)
		p, url := openViews(t, "", config)
		for i := range 5 {
			name := fmt.Sprintf("passing%d", i)
			reload(t, p, edited(config, everything(name, view.ExposureDirect)))
			asking.Go(func() { first(url + "/mcp/" + name) })
			reload(t, p, config)
		}
		asking.Wait()
	})
	for i := range 2 {
		t.Run(fmt.Sprintf("shut down %d", i), func(t *testing.T) {
			_, url := openViews(t, "", configOf(t, scripts, everything("v", view.ExposureDirect)))
			for _, name := range []string{"v", "default"} {
				asking.Go(func() { first(url + "/mcp/" + name) })
			}
		})
	}
}

// Two servers whose names are one in the characters of tools' names.
func TestServersOfLikeNamesHaveTheirOwnSearchTools(t *testing.T) {
	a, b := shop(t, "a.b", "hat"), shop(t, "a_b", "hat")
	scripts := []*script{a, b}
	for _, s := range scripts {
		s.on("tools/call", func(r *request) { r.result(`{"content":[],"by":"` + s.settings.Name + `"}`) })
	}
	p, url := openViews(t, "", configOf(t, scripts, everything("v", view.ExposureSearchPerServer)))
	c := viewClient(t, p, url, "v", false)
	names := slices.DeleteFunc(c.listed(), func(name string) bool { return name == "retrieve_tools" })
	if slices.Sort(names); len(names) != 6 || len(slices.Compact(slices.Clone(names))) != 6 {
		t.Fatalf("listed are %v, want six", names)
	}
	reached := map[string]bool{}
	for _, name := range names {
		prefix, calls := strings.CutSuffix(name, "_call_tool")
		if !calls {
			continue
		}
		for i, own := range scripts {
			other := scripts[1-i]
			got := c.ask("tools/call", toolCall(name, toolCall(own.settings.Name+".hat", `{"size":1}`)))
			if failed(got) {
				continue // the other's
			}
			reached[own.settings.Name] = true
			if partText(got.Result, "by") != own.settings.Name {
				t.Errorf("%s is answered %s", name, got.raw)
			}
			if got := c.ask("tools/call", toolCall(name, toolCall(other.settings.Name+".hat", `{"size":1}`))); !failed(got) {
				t.Errorf("%s calls what is of %s, too: %s", name, other.settings.Name, got.raw)
			}
			found := must.Get(p.View("v"))(t)
			mine, _ := found.Find(own.settings.Name + ".hat")
			theirs, _ := found.Find(other.settings.Name + ".hat")
			if got := c.ask("tools/call", toolCall(prefix+"_search_tools", `{}`)); !strings.Contains(got.raw, mine.Name) || strings.Contains(got.raw, theirs.Name) {
				t.Errorf("%s_search_tools finds %s, want %s alone", prefix, got.raw, mine.Name)
			}
		}
	}
	if len(reached) != 2 {
		t.Errorf("reached are %v", reached)
	}
}

// A client that subscribed to a whole hears of its parts, but not of those that
// its view leaves out, be that only since.
func TestUpdatesOfExcludedResourcesAreNotTold(t *testing.T) {
	s := newScript(t, "up", false, false)
	s.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`)
	s.list("resources", `{"uri":"file:///d","name":"d"}`, `{"uri":"file:///d/private/zebra","name":"x"}`, `{"uri":"file:///e","name":"e"}`)
	v := everything("v", view.ExposureDirect)
	v.Exclude = []view.Pattern{{Glob: "up.file:///d/private/*"}}
	config := configOf(t, []*script{s}, v)
	p, url := openViews(t, "", config)
	for _, modern := range []bool{false, true} {
		reload(t, p, config)
		c := viewClient(t, p, url, "v", modern)
		eventually(t, func() bool { return strings.Contains(c.ask("resources/list", `{}`).raw, "file:///e") })
		(&meeting{rawClient: c}).listen(`{"resourceSubscriptions":["file:///d","file:///e"]}`)
		if !modern {
			for _, uri := range []string{"file:///d", "file:///e"} {
				if got := c.ask("resources/subscribe", `{"uri":"`+uri+`"}`); got.Error != nil {
					t.Fatalf("resources/subscribe = %s", got.raw)
				}
			}
		}
		// told are the URIs that the client hears of, the last of which is d.
		told := func(uris ...string) (heard []string) {
			t.Helper()
			c.clear()
			for _, uri := range append(uris, "file:///d") {
				s.tell(t, "notifications/resources/updated", `{"uri":"`+uri+`"}`)
			}
			c.hears("notifications/resources/updated", func(params json.RawMessage) bool { return partText(params, "uri") == "file:///d" })
			for _, m := range c.got("notifications/resources/updated") {
				heard = append(heard, partText(m.Params, "uri"))
			}
			return heard
		}
		if got, want := told("file:///d/private/zebra", "file:///e"), []string{"file:///e", "file:///d"}; !slices.Equal(got, want) {
			t.Errorf("modern %v: the client heard of %v, want %v", modern, got, want)
		}
		if got, want := told("file:///d/public"), []string{"file:///d/public", "file:///d"}; !slices.Equal(got, want) {
			t.Errorf("modern %v: the client heard of %v, want %v", modern, got, want)
		}
		less := v
		less.Exclude = append(slices.Clone(v.Exclude), view.Pattern{Glob: "up.file:///e"})
		reload(t, p, edited(config, less))
		if got, want := told("file:///e"), []string{"file:///d"}; !slices.Equal(got, want) {
			t.Errorf("modern %v: after an edit the client heard of %v, want %v", modern, got, want)
		}
	}
}

func TestAToolOfAViewWithTheIDOfAServersToolIsLeftOut(t *testing.T) {
	inner := insider(t)
	v := narrowed("inner", view.ExposureSearch)
	v.RunScript = &view.ScriptLimits{}
	v.Composites = []view.Composite{{Name: "open", Steps: []view.Step{{Key: "step", Tool: "inner.close_zebra", Args: []byte(`{}`)}}}}
	p, url := openViews(t, "", configOf(t, []*script{inner}, v))
	eventually(t, func() bool { // until the server is listed the view has the other
		problems := p.Problems()
		return slices.Equal(toolsOf(t, p, "inner"), []string{"renamed"}) && len(problems) == 1 && !problems[0].Warning && strings.Contains(problems[0].Message, `"open"`)
	})
	c := viewClient(t, p, url, "inner", false)
	for _, name := range []string{"inner.open", "renamed"} {
		c.ask("tools/call", toolCall("inner_call_tool", toolCall(name, `{}`)))
	}
	c.ask("tools/call", toolCall("run_script", `{"script":"result = call_tool(\"inner.open\")"}`))
	var called []string
	for _, m := range inner.got("tools/call") {
		called = append(called, partText(m.Params, "name"))
	}
	if want := []string{"open", "open", "open"}; !slices.Equal(called, want) {
		t.Errorf("called were %v, want %v", called, want)
	}
}

// Who the header names is believed: an edit must not make it one that the
// reverse proxy lets through.
func TestThePrincipalHeaderIsThatOfTheStart(t *testing.T) {
	up := shop(t, "shop", "hat")
	told := func(name string) view.Settings {
		v := everything(name, view.ExposureDirect)
		v.Hooks.Pre = []view.PreCall{func(_ context.Context, info *starlark.Info, _ json.RawMessage) (json.RawMessage, error) {
			return nil, &view.AbortError{Reason: "you are [" + info.Principal + "]"}
		}}
		return v
	}
	config := configOf(t, []*script{up}, told("old"))
	config.PrincipalHeader = "X-Old"
	p, url := openViews(t, "", config)
	next := edited(config, told("old"), told("new"))
	next.PrincipalHeader = "X-New"
	reload(t, p, next)
	for _, name := range []string{"old", "new"} {
		for header, want := range map[string]string{"X-Old": "you are [root]", "X-New": "you are []"} {
			c := viewClient(t, p, url, name, true)
			c.header = [2]string{header, "root"}
			if got := c.ask("tools/call", toolCall("shop_hat", `{"size":1}`)); !strings.Contains(string(got.Result), want) {
				t.Errorf("view %s, header %s: %s, want in it %s", name, header, got.raw, want)
			}
		}
	}
}
