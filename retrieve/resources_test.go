package retrieve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
	"toolfinch/register"
	"toolfinch/tool"
)

var _ register.Source = (*Catalog)(nil)

func ofKind(t testing.TB, kind tool.Kind, server, raw string) *tool.Def {
	t.Helper()
	d := must.Get(tool.ParseKind(kind, server, json.RawMessage(raw)))(t)
	return d
}

// listing makes a server of lines "KIND NAME", resources by their URI.
func listing(t testing.TB, name string, lines ...string) Server {
	t.Helper()
	s := Server{Name: name}
	for _, line := range lines {
		word, id, _ := strings.Cut(line, " ")
		kind := tool.Kind(word)
		if kind == "tool" {
			kind = tool.KindTool
		}
		s.Tools = append(s.Tools, tool.Of([]*tool.Def{ofKind(t, kind, name, fmt.Sprintf(`{%q:%q}`, kind.Key(), id))}, echo)...)
	}
	return s
}

func catalogOf(t testing.TB, servers ...Server) *Catalog {
	t.Helper()
	return newCatalog(t, servers)
}

func toolNames(tools []*tool.Tool) string {
	var out []string
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return strings.Join(out, " ")
}

func TestPromptsAndResourcesAreListedInTheOrderOfTheirServers(t *testing.T) {
	none, gh := "", "gh"
	b := listing(t, "b", "prompt z", "prompt a", "prompt a", "resource file:///2", "resource file:///1", "template x:{y}", "tool run", "prompt call_tool")
	b.Prefix = &none
	a := listing(t, "a", "prompt z", "resource file:///1", "template x:{y}", "template a:{y}", "tool run")
	c := listing(t, "c d/e", "prompt z", "tool z", "resource toolfinch:x/file:///1")
	c.Prefix = &gh
	catalog := catalogOf(t, b, a, c)
	for kind, want := range map[tool.Kind]string{
		tool.KindPrompt:   "z a call_tool a_z gh_z",
		tool.KindResource: "file:///2 toolfinch:b/file:///1 toolfinch:a/file:///1 toolfinch:c%20d%2Fe/toolfinch:x/file:///1",
		tool.KindTemplate: "toolfinch:b/x:{y} toolfinch:a/x:{y} a:{y}",
	} {
		if got := toolNames(catalog.Items(kind)); got != want {
			t.Errorf("%ss: %s\nwant %s", kind, got, want)
		}
	}
	if got, want := toolNames(catalog.Tools()), "a_run gh_z run"; got != want || catalog.Len() != 3 {
		t.Errorf("%d tools: %s, want %s", catalog.Len(), got, want)
	}
	if p, ok := catalog.Prompt("gh_z"); !ok || p.Def.ID.String() != "c d/e.z" || p.Def.ID.Kind != tool.KindPrompt {
		t.Errorf("gh_z: %v, %v", p, ok)
	}
	if _, ok := catalog.Prompt("run"); ok {
		t.Error("a tool is got as a prompt")
	}
	if got := catalog.Nearest("gh_y", 5); slices.Contains(got, "a_z") {
		t.Errorf("a prompt is near as a tool: %v", got)
	}
}

func TestEveryURILeadsToOneServer(t *testing.T) {
	catalog := catalogOf(t,
		listing(t, "one", "resource file:///a", "resource both:1", "template notes://{+path}", "template both:{id}"),
		listing(t, "two", "resource file:///b", "resource both:1", "template notes://today/{name}", "template both:{id}", "template bad:{", "template long:{id:9999}{x:9999}"),
		listing(t, "three", "prompt p"),
		listing(t, "in/ner", "resource toolfinch:one/file:///a"),
	)
	for _, test := range []struct {
		what, uri  string
		server     string // "" for nobody
		own        string // "" for uri
		listed     bool
		exposed    string // "" for uri
		whyExposed string
	}{
		{"listed", "file:///a", "one", "", true, "", ""},
		{"listed, with its server", "toolfinch:one/file:///a", "one", "file:///a", true, "file:///a", "only one has it"},
		{"of several, with its server", "toolfinch:two/both:1", "two", "both:1", true, "", ""},
		{"of several, without", "both:1", "one", "", true, "toolfinch:one/both:1", "two have it"},
		{"another toolfinch's", "toolfinch:in%2Fner/toolfinch:one/file:///a", "in/ner", "toolfinch:one/file:///a", true, "", ""},
		{"not listed, with a server", "toolfinch:three/x:y", "three", "x:y", false, "", ""},
		{"not listed, with a server and a template", "toolfinch:two/both:7", "two", "both:7", false, "", ""},
		{"of a template", "notes://yesterday/a/b", "one", "", false, "", ""},
		{"of the template that says more of it", "notes://today/a", "two", "", false, "", ""},
		{"of a template of several", "both:7", "one", "", false, "", ""},
		{"of a template with lengths", "long:abc", "two", "", false, "", ""},
		{"nobody's", "file:///c", "", "", false, "", ""},
		{"a template itself", "bad:{", "", "", false, "", ""},
		{"a server there is not", "toolfinch:four/file:///a", "", "", false, "", ""},
		{"no more than a scheme", "toolfinch:", "", "", false, "", ""},
		{"longer than is compared", "notes://" + strings.Repeat("x", maxMatchedURI), "", "", false, "", ""},
		{"nothing", "", "", "", false, "", ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			found, ok := catalog.Resource(test.uri)
			if !ok || test.server == "" {
				if ok || test.server != "" {
					t.Fatalf("found %+v, want one of %q", found, test.server)
				}
				return
			}
			own, exposed := test.own, test.exposed
			if own == "" {
				own = test.uri
			}
			if exposed == "" {
				exposed = test.uri
			}
			if want := (tool.ID{Server: test.server, Name: own, Kind: tool.KindResource}); found.Def.ID != want {
				t.Errorf("leads to %v, want %v", found.Def.ID, want)
			}
			if (found.Def.Hash != "") != test.listed {
				t.Errorf("its definition is %+v", found.Def)
			}
			if got := catalog.Exposed(test.server, own); got != exposed {
				t.Errorf("clients know it by %s, want %s", got, exposed)
			}
			if result, err := found.Handler(t.Context(), &tool.Call{}); err != nil || !strings.Contains(string(result), test.server+".") {
				t.Errorf("it is read by %s, %v", result, err)
			}
		})
	}
	// Whatever a server names, clients get a URI that leads back to it.
	for _, server := range []string{"one", "two", "three", "in/ner"} {
		for _, own := range []string{"file:///a", "file:///b", "both:1", "both:2", "notes://x", "notes://today/x", "any:thing", "toolfinch:one/x:1", ""} {
			uri := catalog.Exposed(server, own)
			found, ok := catalog.Resource(uri)
			if want := (tool.ID{Server: server, Name: own, Kind: tool.KindResource}); !ok || found.Def.ID != want {
				t.Errorf("%s of %s is exposed as %s, which leads to %+v", own, server, uri, found)
			}
		}
	}
}

func TestWhatIsReadSaysTheURIThatWasAskedFor(t *testing.T) {
	answer := ""
	handler := func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result(answer), nil }
	servers := []Server{listing(t, "one", "resource x:1", "resource x:own"), listing(t, "two", "resource x:1")}
	for _, s := range servers {
		for _, resource := range s.Tools {
			resource.Handler = handler
		}
	}
	catalog := readBy(t, func(*tool.Def) tool.Handler { return handler }, servers)
	for _, test := range []struct{ uri, answer, want string }{
		{"toolfinch:two/x:1", `{"contents":[{"x":1.0,"uri":"x:1","text":"<a>"},{"uri":"x:1/part","blob":""}],"y":1e400}`,
			`{"contents":[{"x":1.0,"uri":"toolfinch:two/x:1","text":"<a>"},{"uri":"toolfinch:two/x:1/part","blob":""}],"y":1e400}`},
		{"toolfinch:one/x:1", `{"contents":[{"uri":"x:own"}]}`, `{"contents":[{"uri":"x:own"}]}`},
		{"toolfinch:two/y:2", `{"contents":[{"uri":"y:2"}]}`, `{"contents":[{"uri":"toolfinch:two/y:2"}]}`},
		{"x:own", `{"contents":[{"uri":"x:1"}]}`, `{"contents":[{"uri":"x:1"}]}`},
		{"toolfinch:two/x:1", `{"contents":["?",{"text":""}]}`, `{"contents":["?",{"text":""}]}`},
		{"toolfinch:two/x:1", `{}`, `{}`},
	} {
		found, ok := catalog.Resource(test.uri)
		if !ok {
			t.Fatalf("%s is not found", test.uri)
		}
		answer = test.answer
		got, err := found.Handler(t.Context(), &tool.Call{Kind: tool.KindResource, Name: test.uri})
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v; want %s", test.uri, got, err, test.want)
		}
	}
}

func TestTheOnlyServerWithResourcesHasAll(t *testing.T) {
	tools := listing(t, "tools", "tool a")
	tools.Capabilities = json.RawMessage(`{"tools":{},"prompts":{}}`)
	files := Server{Name: "files", Capabilities: json.RawMessage(`{"resources":{}}`)}
	catalog := catalogOf(t, tools, files)
	found, ok := catalog.Resource("any:thing")
	if !ok || found.Def.ID.Server != "files" || found.Name != "any:thing" {
		t.Errorf("%+v, %v", found, ok)
	}
	catalog = with(t, catalog, []Server{tools, files, listing(t, "memo", "template memo:{x}")})
	if found, ok := catalog.Resource("any:thing"); ok {
		t.Errorf("one of two servers is guessed: %+v", found)
	}
}

func TestListsAreCachedAsLongAsAllServersAllow(t *testing.T) {
	with := func(kind string, ttl time.Duration, public bool) Server {
		s := listing(t, kind+fmt.Sprint(ttl, public), kind+" x")
		s.Cache = map[tool.Kind]CacheHint{s.Tools[0].Def.ID.Kind: {ttl, public}}
		return s
	}
	for _, test := range []struct {
		what    string
		servers []Server
		ttl     time.Duration
		public  bool
	}{
		{"nobody has prompts", nil, 5 * time.Second, false},
		{"others have none", []Server{with("tool", time.Hour, true)}, 5 * time.Second, false},
		{"one", []Server{with("prompt", time.Hour, true)}, time.Hour, true},
		{"one for its client alone", []Server{with("prompt", time.Hour, false)}, time.Hour, false},
		{"the shortest", []Server{with("prompt", time.Hour, true), with("prompt", time.Minute, true), with("tool", time.Second, false)}, time.Minute, true},
		{"not at all", []Server{with("prompt", time.Hour, true), with("prompt", 0, true)}, 0, true},
		{"one lists none now", []Server{with("prompt", time.Hour, true), {Name: "empty", Cache: map[tool.Kind]CacheHint{tool.KindPrompt: {time.Minute, false}}}}, time.Minute, false},
		{"one says nothing", []Server{with("prompt", time.Hour, true), listing(t, "s", "prompt y")}, 5 * time.Second, false},
		{"one says less than nothing", []Server{with("prompt", time.Second, true), listing(t, "s", "prompt y")}, time.Second, false},
	} {
		ttl, public := catalogOf(t, test.servers...).CacheHint(tool.KindPrompt)
		if ttl != test.ttl || public != test.public {
			t.Errorf("%s: %v, public %v, want %v, %v", test.what, ttl, public, test.ttl, test.public)
		}
	}
}

// newMixed is a retriever over servers that have tools, prompts and resources.
func newMixed(t testing.TB, settings Settings) (*Retriever, *Catalog) {
	t.Helper()
	answers := func(d *tool.Def) tool.Handler {
		return func(_ context.Context, call *tool.Call) (tool.Result, error) {
			switch d.ID.Kind {
			case tool.KindPrompt:
				if d.ID.Name == "ask_back" {
					return tool.Result(`{"resultType":"input_required","requestState":"s"}`), nil
				}
				return tool.Result(fmt.Sprintf(`{"description":"d","messages":[{"role":"user","content":{"type":"text","text":%q}},{"role":"assistant","content":{"type":"x","big":12345678901234567890}}]}`,
					string(call.Arguments)+" "+string(call.Params))), nil
			case tool.KindResource:
				return tool.Result(fmt.Sprintf(`{"contents":[{"uri":%q,"text":%q,"y":1.0},{"blob":"AA=="}],"_meta":{"z":1}}`, d.ID.Name, string(call.Arguments)+string(call.Params))), nil
			}
			return tool.TextResult(d.ID.String()), nil
		}
	}
	catalog := readBy(t, answers, []Server{
		{Name: "github", Description: "Code hosting", Tools: tool.Of([]*tool.Def{
			def(t, "github", `{"name":"review","description":"Review a change in a repository"}`),
			ofKind(t, tool.KindPrompt, "github", `{"name":"review","description":"Review a pull request. At length."}`),
			ofKind(t, tool.KindPrompt, "github", `{"name":"critique","title":"Critique","description":"Review code for a change. At length.","arguments":[{"name":"branch","required":true,"x":1.0},{"name":"depth"}]}`),
			ofKind(t, tool.KindPrompt, "github", `{"name":"ask_back"}`),
		}, answers)},
		{Name: "files", Tools: tool.Of([]*tool.Def{
			ofKind(t, tool.KindResource, "files", `{"uri":"file:///review/guide.md","name":"guide","description":"How to review a change","mimeType":"text/markdown"}`),
			ofKind(t, tool.KindTemplate, "files", `{"uriTemplate":"review://{change}","name":"change","description":"Review notes of one change"}`),
		}, answers)},
	})
	return New(catalog, settings), catalog
}

type mixedItem struct {
	Name, Kind, URI, URITemplate, Server, Use, Title, Description, MimeType string
	Arguments                                                               json.RawMessage
	Registered                                                              *bool
}

func (m mixedItem) what() string { return m.Kind + " " + m.Name + m.URI + m.URITemplate }

func askMixed(t *testing.T, r *Retriever, arguments string) (items []mixedItem, saved bool) {
	t.Helper()
	text, isError := ask(t, r.Retrieve, arguments)
	var answer struct {
		Tools       []mixedItem
		TokensSaved *int `json:"tokens_saved"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || isError {
		t.Fatalf("%s: %v", text, err)
	}
	return answer.Tools, answer.TokensSaved != nil
}

func TestRetrieveToolsFindsWhatKindItIsAsked(t *testing.T) {
	r, _ := newMixed(t, Settings{Offer: Offer{Call: true}})
	for kind, want := range map[string]string{
		``:                               " github_review",
		`,"kind":"tool"`:                 " github_review",
		`,"kind":null`:                   " github_review",
		`,"kind":"prompt"`:               "prompt github_critique, prompt github_review",
		`,"kind":"resource"`:             "resource file:///review/guide.md, template review://{change}",
		`,"kind":"any"`:                  "prompt github_critique, prompt github_review, resource file:///review/guide.md, template review://{change}, tool github_review",
		`,"kind":"any","server":"files"`: "resource file:///review/guide.md, template review://{change}",
	} {
		items, saved := askMixed(t, r, `{"query":"review a change","limit":10,"detail":"full"`+kind+`}`)
		var got []string
		for _, it := range items {
			got = append(got, it.what())
			if (it.Registered != nil) != (it.Kind == "" || it.Kind == "tool") || it.Server == "" {
				t.Errorf("%s: %+v", kind, it)
			}
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s\nwant %s", kind, strings.Join(got, ", "), want)
		}
		if saved != (!strings.Contains(kind, "prompt") && !strings.Contains(kind, "resource")) {
			t.Errorf("%s: tokens saved are told: %v", kind, saved)
		}
	}
	if text, isError := ask(t, r.Retrieve, `{"query":"x","kind":"tools"}`); !isError || !strings.Contains(text, "tool, prompt, resource, skill, any") {
		t.Errorf("a kind there is not: %s", text)
	}
}

func TestItemsSayHowToUseThem(t *testing.T) {
	for _, callTool := range []bool{true, false} {
		r, _ := newMixed(t, Settings{Offer: Offer{Call: callTool}})
		got := map[string]mixedItem{}
		items, _ := askMixed(t, r, `{"query":"review a change","limit":10,"kind":"any","detail":"full"}`)
		for _, it := range items {
			got[it.what()] = it
		}
		for what, want := range map[string]mixedItem{
			"prompt github_critique": {Title: "Critique", Description: "Review code for a change. At length.",
				Arguments: json.RawMessage(`[{"name":"branch","required":true,"x":1.0},{"name":"depth"}]`), Use: "prompts/get with this name, or call_tool with this name"},
			"prompt github_review":             {Description: "Review a pull request. At length.", Use: "prompts/get with this name"}, // call_tool would call the tool
			"resource file:///review/guide.md": {Title: "guide", Description: "How to review a change", MimeType: "text/markdown", Use: "resources/read with this uri, or call_tool with name = this uri"},
			"template review://{change}":       {Title: "change", Description: "Review notes of one change", Use: "fill in the uriTemplate, then resources/read with that uri, or call_tool with name = that uri"},
		} {
			it, ok := got[what]
			if !ok {
				t.Fatalf("%s is not among %v", what, got)
			}
			if !callTool {
				want.Use, _, _ = strings.Cut(want.Use, ", or call_tool")
			}
			want.Name, want.Kind, want.URI, want.URITemplate, want.Server = it.Name, it.Kind, it.URI, it.URITemplate, it.Server
			if fmt.Sprint(it) != fmt.Sprint(want) {
				t.Errorf("%s:\n%+v, want\n%+v", what, it, want)
			}
		}
	}
}

func TestOnlyToolsAreRegisteredAndLearned(t *testing.T) {
	var got []string
	calls := 0
	memory := NewMemory(nil, nil)
	r, _ := newMixed(t, Settings{Memory: memory, Register: func(_ context.Context, _ *tool.Call, tools, _ []*tool.Tool) Registration {
		calls++
		got = append(got, toolNames(tools))
		return Registration{}
	}})
	for _, kind := range []string{"any", "prompt", "resource", "tool"} {
		must.Get(r.Retrieve(t.Context(), &tool.Call{Session: "s", Arguments: json.RawMessage(`{"query":"review a change","limit":10,"kind":"` + kind + `"}`)}))(t)
	}
	if !slices.Equal(got, []string{"github_review", "github_review"}) {
		t.Errorf("registered %q in %d calls", got, calls)
	}
	memory.Called("s", tool.ID{Server: "github", Name: "critique", Kind: tool.KindPrompt})
	if prior := memory.Prior("", "review a change"); len(prior) != 0 {
		t.Errorf("a prompt is learned: %v", prior)
	}
}

func TestCallToolGetsPromptsAndReadsResources(t *testing.T) {
	r, _ := newMixed(t, Settings{})
	for _, test := range []struct{ what, params, want string }{
		{"a prompt", `{"name":"call_tool","arguments":{"name":"github_critique","arguments":{"branch":"main","depth":3,"none":null}},"_meta":{"a":1.0},"requestState":"s"}`,
			`{"content":[{"type":"text","text":"{\"branch\":\"main\",\"depth\":\"3\"} {\"name\":\"github_critique\",\"_meta\":{\"a\":1.0},\"requestState\":\"s\"}"},{"type":"x","big":12345678901234567890}],` +
				`"structuredContent":{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"{\"branch\":\"main\",\"depth\":\"3\"} {\"name\":\"github_critique\",\"_meta\":{\"a\":1.0},\"requestState\":\"s\"}"}},{"role":"assistant","content":{"type":"x","big":12345678901234567890}}]}}`},
		{"a listed resource", `{"arguments":{"name":"file:///review/guide.md"}}`,
			`{"content":[{"type":"resource","resource":{"uri":"file:///review/guide.md","text":"{\"uri\":\"file:///review/guide.md\"}","y":1.0}},{"type":"resource","resource":{"blob":"AA=="}}],` +
				`"structuredContent":{"contents":[{"uri":"file:///review/guide.md","text":"{\"uri\":\"file:///review/guide.md\"}","y":1.0},{"blob":"AA=="}],"_meta":{"z":1}}}`},
		{"one of a template", `{"arguments":{"name":"review://7","arguments":{"x":1}}}`, `"uri":"review://7"`},
		{"one that only looks like a URI of the only server", `{"arguments":{"name":"other://7"}}`, `"uri":"other://7"`},
		{"a tool before a prompt of its name", `{"arguments":{"name":"github_review"}}`, `"text":"github.review"`},
		{"input required", `{"arguments":{"name":"github_ask_back"}}`, `{"resultType":"input_required","requestState":"s"}`},
		{"a template itself", `{"arguments":{"name":"review://{change}"}}`, `fill in what stands in braces`},
		{"a name", `{"arguments":{"name":"github_crtique"}}`, `unknown tool \"github_crtique\"`},
		{"a name with a colon", `{"arguments":{"name":"github:critique"}}`, `unknown tool \"github:critique\"`},
	} {
		t.Run(test.what, func(t *testing.T) {
			var params struct{ Arguments json.RawMessage }
			must.Do(t, json.Unmarshal([]byte(test.params), &params))
			for _, most := range []Kind{KindRead, KindDestructive} {
				if most == KindRead && strings.Contains(test.what, "tool") {
					continue // whose kind call_tool_read refuses
				}
				result, err := r.CallTool(most, "")(t.Context(), &tool.Call{Arguments: params.Arguments, Params: json.RawMessage(test.params)})
				if err != nil || !json.Valid(result) {
					t.Fatalf("%s, %v", result, err)
				}
				whole := strings.HasPrefix(test.want, `{`)
				if whole && string(result) != test.want || !strings.Contains(string(result), test.want) {
					t.Errorf("%s: %s\nwant %s", most, result, test.want)
				}
			}
		})
	}
}

func TestSwapFollowsPromptsAndResources(t *testing.T) {
	r, catalog := newMixed(t, Settings{})
	find := func(kinds []tool.Kind) string {
		found := must.Get(r.Search(t.Context(), Query{Text: "review", Limit: 10, Kinds: kinds}))(t)
		names := hitNames(found.Hits)
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	catalog = with(t, catalog, []Server{{Name: "github", Tools: tool.Of([]*tool.Def{
		ofKind(t, tool.KindPrompt, "github", `{"name":"critique","description":"Bake a cake"}`),
		ofKind(t, tool.KindPrompt, "github", `{"name":"new","description":"Review"}`),
	}, echo)}})
	r = New(catalog, Settings{})
	if got, want := find(tool.Kinds), "github_new"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	if got := find(nil); got != "" || catalog.Len() != 0 {
		t.Errorf("tools that are gone are found: %s", got)
	}
	if items := catalog.Items(tool.KindResource); len(items) != 0 {
		t.Errorf("resources that are gone are listed: %v", items)
	}
}

func TestUpstreamsInstructionsWithinBounds(t *testing.T) {
	long := strings.Repeat("ä sentence. ", 200)
	offer := Offer{About: []Server{
		{Name: "quiet", Instructions: " \n"},
		{Name: "short", Instructions: "Use it\nwell.\n"},
		{Name: "copy", Instructions: "Use it\nwell."},
		{Name: "long", Instructions: long},
		{Name: "endless", Instructions: strings.Repeat("é", 1000)},
	}}
	text := Instructions(offer.Intro(), offer.About)
	if strings.Contains(text, "of quiet") || !strings.Contains(text, "\n\nInstructions of short, copy:\nUse it\nwell.\n\nInstructions of long:\nä sentence. ") {
		t.Errorf("%s", text)
	}
	if strings.Contains(text, "left out") {
		t.Error("something is left out where there is room")
	}
	for _, name := range []string{"long", "endless"} {
		_, own, _ := strings.Cut(text, "of "+name+":\n")
		own, _, _ = strings.Cut(own, "\n\n")
		if len(own) > maxOwn || len(own) < maxOwn-15 || !strings.HasSuffix(own, "...") || strings.ToValidUTF8(own, "") != own {
			t.Errorf("%s: %d bytes: %q", name, len(own), own)
		}
		if name == "long" && !strings.HasSuffix(own, "ä...") && !strings.HasSuffix(own, "sentence....") {
			t.Errorf("cut within a word: %q", own[len(own)-20:])
		}
	}

	offer.About = nil
	for i := range 200 {
		offer.About = append(offer.About, Server{Name: fmt.Sprintf("server%d", i), Instructions: fmt.Sprint(i, long)})
	}
	offer.About = append(offer.About, Server{Name: "last", Instructions: "Small."})
	text = Instructions(offer.Intro(), offer.About)
	_, own, _ := strings.Cut(text, "\n\n")
	own, rest, cut := strings.Cut(own, "\n\nThe instructions of server")
	if !cut || len(own) > maxOwnTogether || len(own) < maxOwnTogether-maxOwn || len(rest) > maxNames+60 {
		t.Errorf("%d bytes of instructions, then %q", len(own), rest)
	}
	if !strings.HasPrefix(rest, "5, server6") || !strings.HasSuffix(rest, "more are left out.") || !strings.Contains(own, "Small.") {
		t.Errorf("left out: %s", rest)
	}
}
