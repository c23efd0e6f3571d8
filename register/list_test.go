package register

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// addItem adds a prompt, resource or template under an exposed name.
func addItem(t testing.TB, live *Live, kind tool.Kind, name, raw string, handler tool.Handler) {
	t.Helper()
	def := must.Get(tool.ParseKind(kind, "srv", []byte(raw)))(t)
	live.served(identity.Party{}).Source.(catalog)[name] = &tool.Tool{Name: name, Def: def, Handler: handler}
}

func request(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
}

// lists are the three lists of what is not a tool, with the key of a definition.
var lists = []struct {
	kind             tool.Kind
	method, key, own string
}{
	{tool.KindPrompt, "prompts/list", "prompts", "name"},
	{tool.KindResource, "resources/list", "resources", "uri"},
	{tool.KindTemplate, "resources/templates/list", "resourceTemplates", "uriTemplate"},
}

func TestDefinitionsAreListedAsTheyAreUnderTheirExposedNames(t *testing.T) {
	for _, list := range lists {
		t.Run(list.method, func(t *testing.T) {
			transports(t, `{}`, setup{}, func(t *testing.T, live *Live, c *conversation) {
				const rest = `"title":"<&>","size":9007199254740993,"icons":[{"src":"data:,","x":1.0}],"_meta":{"a/b":null},"unknown":{"` + "é" + `":"\u00e9"}}`
				addItem(t, live, list.kind, "a:same", `{"`+list.own+`":"a:same",`+rest, nil)
				addItem(t, live, list.kind, "b:shown", `{"first":1,"`+list.own+`":"b:own",`+rest, nil)
				got := await(t, c.post(request(1, list.method, `{}`)), `"id":1`)
				want := `{"jsonrpc":"2.0","id":1,"result":{"` + list.key + `":[{"` + list.own + `":"a:same",` + rest + `,{"first":1,"` + list.own + `":"b:shown",` + rest + `]}}`
				if got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		})
	}
}

func TestAnEmptyListIsAList(t *testing.T) {
	p := connect(t, serveHTTP(t, newLive(t, setup{})), "empty")
	for _, list := range lists {
		if got, want := p.messages(request(1, list.method, `{}`))[0], `{"jsonrpc":"2.0","id":1,"result":{"`+list.key+`":[]}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestLongListsComeInPages(t *testing.T) {
	for i, list := range lists {
		t.Run(list.method, func(t *testing.T) {
			items := []int{2*pageSize + 1, 3*pageSize - 1, 3 * pageSize}[i] // the last page may be full
			live := newLive(t, setup{})
			var want []string
			for i := range items {
				name := fmt.Sprintf("x:%04d<&>é", i)
				want = append(want, name)
				addItem(t, live, list.kind, name, fmt.Sprintf(`{%q:%q}`, list.own, name), nil)
			}
			p := connect(t, serveHTTP(t, live), "pages")
			var got []string
			params := `{}`
			for pages := 1; ; pages++ {
				result := rawjson.Member([]byte(p.messages(request(1, list.method, params))[0]), "result")
				for def := range rawjson.Elements(rawjson.Member(result, list.key)) {
					got = append(got, rawjson.Text(rawjson.Member(def, list.own)))
				}
				cursor := rawjson.Text(rawjson.Member(result, "nextCursor"))
				if cursor == "" {
					if pages != 3 {
						t.Errorf("%d pages, want 3", pages)
					}
					break
				}
				if strings.Contains(cursor, "x:") {
					t.Errorf("cursor %s is not opaque", cursor)
				}
				params = fmt.Sprintf(`{"cursor":%q}`, cursor)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d items over all pages, want %d in their order", len(got), items)
			}
			for _, cursor := range []string{`"bad"`, `"!"`, `""`, `7`, `{}`} {
				got := p.messages(request(1, list.method, `{"cursor":`+cursor+`}`))[0]
				if !strings.Contains(got, `"error":{"code":-32602,`) {
					t.Errorf("cursor %s: %.200s", cursor, got)
				}
			}
		})
	}
}

func TestModernListsSayHowLongTheyHold(t *testing.T) {
	newcomers(t, `{}`, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		addItem(t, live, tool.KindPrompt, "p", `{"name":"p"}`, nil)
		show(live, func(v *Served) { v.Source = cacheable{live.served(identity.Party{}).Source.(catalog)} })
		for method, want := range map[string]string{
			"tools/list":               `"cacheScope":"private","ttlMs":5000`,
			"prompts/list":             `"cacheScope":"public","ttlMs":1500`,
			"resources/list":           `"cacheScope":"private","ttlMs":5000`,
			"resources/templates/list": `"cacheScope":"private","ttlMs":5000`,
		} {
			got := n.answer(1, method, "")
			if !strings.Contains(got, `"result":{"resultType":"complete",`+want+`,`) {
				t.Errorf("%s: %s", method, got)
			}
		}
	})
}

// A cache may give what it keeps to anybody (public), or to anybody with the same credentials (private). So what
// depends on a client's name must not be kept, however it is listed to the client that asked.
func TestAListIsKeptOnlyByWhoMayUseIt(t *testing.T) {
	const groups = `{"extensions":{"` + tool.ExtensionGroups + `":{}}}`
	const hinted, private, stale = `"cacheScope":"public","ttlMs":60000`, `"cacheScope":"private","ttlMs":60000`, `"cacheScope":"private","ttlMs":0`
	naive := func(client string) bool { return strings.HasPrefix(client, "naive") }
	started := func(context.Context) *Served { return nil }
	for _, test := range []struct {
		what   string
		served func(v *Served, user string)
		tools  string // hints of tools/list, whoever asks
		others string // hints of the other lists; "": as tools/list
		differ bool   // tools/list differs between the clients
		groups bool   // tools/list differs for a client that declares groups
	}{
		{what: "the same to all", tools: hinted},
		{what: "portable schemas for some", served: func(v *Served, _ string) { v.Portable = naive }, tools: stale, others: hinted, differ: true},
		{what: "portable schemas for all", served: func(v *Served, _ string) { v.Portable = func(string) bool { return true } }, tools: hinted},
		{what: "short names for some", served: func(v *Served, _ string) {
			v.Prefixes, v.Short = naive, func(t *tool.Tool) string { return t.Name[:2] }
		}, tools: stale, others: hinted, differ: true},
		{what: "names short enough for all", served: func(v *Served, _ string) {
			v.Prefixes, v.Short = naive, func(t *tool.Tool) string { return t.Name }
		}, tools: hinted},
		{what: "groups", served: func(v *Served, _ string) {
			v.Direct = func(bool) bool { return true }
			v.Group(v.Source, func() []Group { return nil })
		}, tools: private, others: hinted, groups: true},
		{what: "policies", served: func(v *Served, user string) {
			v.Class = "class of " + user
			if user == "bob" {
				v.Meta = nil
			}
		}, tools: private, differ: true},
		{what: "policies about clients", served: func(v *Served, _ string) { v.Class, v.ByClient = "x", true }, tools: stale},
		{what: "a server starts", served: func(v *Served, _ string) { v.Started = started }, tools: `"cacheScope":"public","ttlMs":0`},
		{what: "how tools are listed is open", served: func(v *Served, _ string) { v.Unsettled = true }, tools: `"cacheScope":"public","ttlMs":0`},
	} {
		t.Run(test.what, func(t *testing.T) {
			live := newLive(t, setup{})
			for _, list := range lists {
				addItem(t, live, list.kind, "x:a", `{"`+list.own+`":"x:a"}`, nil)
			}
			addItem(t, live, tool.KindSkill, "skill://srv/a/SKILL.md", `{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a","description":"b"},"resources":"dynamic"}`, nil)
			declared := declaresAll
			declared.Extensions = map[string]json.RawMessage{tool.ExtensionSkills: json.RawMessage(`{}`)}
			odd := newTool(t, "odd", nil)
			odd.Def = must.Get(tool.ParseDef("s", json.RawMessage(`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"type":"array"}}}}`)))(t)
			source := keepable{live.served(identity.Party{}).Source.(catalog)}
			live.served = func(party identity.Party) *Served {
				v := &Served{Source: source, Declared: declared, Meta: []*tool.Tool{odd}}
				if test.served != nil {
					test.served(v, principalOf(party))
				}
				if v.Started != nil {
					v.Started = func(context.Context) *Served { return v }
				}
				return v.to(party.Groups)
			}
			p := &peer{t: t, url: serveHTTP(t, live)}
			for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list", "skills/list"} {
				ask := func(client, capabilities, user string) string {
					n := &newcomer{capabilities: capabilities}
					body := strings.Replace(n.body(1, method, ""), `"name":"new"`, `"name":"`+client+`"`, 1)
					return p.messages(body, append(n.headers(method, ""), "X-User", user)...)[0]
				}
				want := test.tools
				if method != "tools/list" && test.others != "" {
					want = test.others
				}
				first, other := ask("new", `{}`, "ann"), ask("naive", `{}`, "bob")
				for who, got := range map[string]string{"one": first, "another": other} {
					if !strings.Contains(got, `"result":{"resultType":"complete",`+want+`,`) {
						t.Errorf("%s of %s client says %.200s, want %s", method, who, got, want)
					}
				}
				if (first != other) != (test.differ && method == "tools/list") {
					t.Errorf("%s\n of one client: %s\n of another:    %s", method, first, other)
				}
				for capabilities, same := range map[string]bool{`{}`: true, `{"elicitation":{}}`: true, groups: !test.groups || method != "tools/list"} {
					if got := ask("new", capabilities, "ann"); (got == first) != same || !strings.Contains(got, want) {
						t.Errorf("%s with %s: %.500s\nbefore: %.500s", method, capabilities, got, first)
					}
				}
			}
		})
	}
}

// keepable is a catalog whose servers let everybody keep their lists.
type keepable struct{ catalog }

func (keepable) CacheHint(tool.Kind) (time.Duration, bool) { return time.Minute, true }

// A list that waited for a server is kept as long as that server says.
func TestAListSaysWhatHoldsWhenItIsMade(t *testing.T) {
	newcomers(t, `{}`, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		now := *live.served(identity.Party{})
		now.Source = keepable{now.Source.(catalog)}
		show(live, func(v *Served) {
			v.ListsWait, v.Started = time.Minute, func(context.Context) *Served { return &now }
		})
		for _, method := range []string{"tools/list", "prompts/list"} {
			if got := n.answer(1, method, ""); !strings.Contains(got, `"cacheScope":"public","ttlMs":60000`) {
				t.Errorf("%s: %.300s", method, got)
			}
		}
	})
}

// cacheable is a catalog whose prompts may be cached by everybody.
type cacheable struct{ catalog }

func (c cacheable) CacheHint(kind tool.Kind) (time.Duration, bool) {
	if kind == tool.KindPrompt {
		return 1500 * time.Millisecond, true
	}
	return c.catalog.CacheHint(kind)
}

// What an upstream said of its result stands; what it left out is added in the
// modern era only.
func TestResultsOfPromptsAndResources(t *testing.T) {
	const prompt, resource = `{"messages":[{"x":9007199254740993}],"unknown":"<&>"}`, `{"contents":[{"uri":"x:r","x":1.0}],"unknown":"<&>"}`
	const said = `{"contents":[],"ttlMs":7,"cacheScope":"public","resultType":"complete"}`
	prepare := func(t *testing.T, live *Live) {
		for _, item := range []struct {
			kind         tool.Kind
			name, result string
		}{{tool.KindPrompt, "p", prompt}, {tool.KindResource, "x:r", resource}, {tool.KindResource, "x:said", said}} {
			addItem(t, live, item.kind, item.name, fmt.Sprintf(`{%q:%q}`, item.kind.Key(), "own"), func(_ context.Context, call *tool.Call) (tool.Result, error) {
				if call.Kind != item.kind || call.Name != item.name || rawjson.Member(call.Params, "more") == nil {
					t.Errorf("call = %+v, params %s", call, call.Params)
				}
				if item.kind == tool.KindPrompt && string(call.Arguments) != `{"a":"1.0"}` {
					t.Errorf("arguments = %s", call.Arguments)
				}
				return tool.Result(item.result), nil
			})
		}
	}
	const getPrompt, read, readSaid = `"name":"p","arguments":{"a":"1.0"},"more":1`, `"uri":"x:r","more":1`, `"uri":"x:said","more":1`
	transports(t, `{}`, setup{}, func(t *testing.T, live *Live, c *conversation) {
		prepare(t, live)
		for _, test := range []struct{ method, members, want string }{
			{"prompts/get", getPrompt, prompt}, {"resources/read", read, resource}, {"resources/read", readSaid, said},
		} {
			got := await(t, c.post(request(1, test.method, "{"+test.members+"}")), `"id":1`)
			if want := `{"jsonrpc":"2.0","id":1,"result":` + test.want + `}`; got != want {
				t.Errorf("legacy %s\n got %s\nwant %s", test.method, got, want)
			}
		}
	})
	newcomers(t, `{}`, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		prepare(t, live)
		for _, test := range []struct{ method, members, want string }{
			{"prompts/get", getPrompt, `{"resultType":"complete",` + prompt[1:]},
			{"resources/read", read, `{"resultType":"complete","cacheScope":"private","ttlMs":0,` + resource[1:]},
			{"resources/read", readSaid, said},
		} {
			if got, want := n.answer(1, test.method, test.members), `{"jsonrpc":"2.0","id":1,"result":`+test.want+`}`; got != want {
				t.Errorf("modern %s\n got %s\nwant %s", test.method, got, want)
			}
		}
		show(live, func(v *Served) { v.Class = "not of all" })
		if got := n.answer(1, "resources/read", readSaid); !strings.Contains(got, strings.Replace(said, "public", "private", 1)) {
			t.Errorf("with policies: %s", got)
		}
	})
}

func TestErrorsOfPromptsAndResources(t *testing.T) {
	prepare := func(t *testing.T, live *Live) {
		for _, name := range []string{"fails", "broken", "silent"} {
			handler := func(context.Context, *tool.Call) (tool.Result, error) {
				switch name {
				case "fails":
					return nil, &tool.RPCError{Code: -31000, Raw: json.RawMessage(`{"code":-31000,"message":"<no>","data":[1.0],"x":1}`)}
				case "broken":
					return nil, fmt.Errorf("upstream srv: read: %w", errors.New("connection lost"))
				}
				return nil, nil
			}
			addItem(t, live, tool.KindPrompt, name, `{"name":"own"}`, handler)
			addItem(t, live, tool.KindResource, "x:"+name, `{"uri":"own"}`, handler)
		}
	}
	for _, test := range []struct {
		method, members string
		legacy, modern  string // the error object
		status          int    // of HTTP in the modern era
	}{
		{"prompts/get", `"name":"nope"`, `{"code":-32602,"message":"unknown prompt \"nope\""}`, "", 400},
		{"prompts/get", `"name":"x:fails"`, `{"code":-32602,"message":"unknown prompt \"x:fails\""}`, "", 400},
		{"resources/read", `"uri":"x:<nope>"`,
			`{"code":-32002,"message":"unknown resource \"x:\u003cnope\u003e\"","data":{"uri":"x:\u003cnope\u003e"}}`,
			`{"code":-32602,"message":"unknown resource \"x:\u003cnope\u003e\"","data":{"uri":"x:\u003cnope\u003e"}}`, 400},
		{"prompts/get", `"name":"fails"`, `{"code":-31000,"message":"<no>","data":[1.0],"x":1}`, "", 200},
		{"resources/read", `"uri":"x:fails"`, `{"code":-31000,"message":"<no>","data":[1.0],"x":1}`, "", 200},
		{"prompts/get", `"name":"broken"`, `{"code":-32603,"message":"upstream srv: read: connection lost"}`, "", 200},
		{"resources/read", `"uri":"x:broken"`, `{"code":-32603,"message":"upstream srv: read: connection lost"}`, "", 200},
		{"prompts/get", `"name":"silent"`, `{"code":-32603,"message":"there is no result"}`, "", 200},
	} {
		t.Run(test.method+" "+test.members, func(t *testing.T) {
			transports(t, `{}`, setup{}, func(t *testing.T, live *Live, c *conversation) {
				prepare(t, live)
				got := await(t, c.post(request(1, test.method, "{"+test.members+"}")), `"id":1`)
				if want := `{"jsonrpc":"2.0","id":1,"error":` + test.legacy + `}`; got != want {
					t.Errorf("legacy\n got %s\nwant %s", got, want)
				}
			})
			newcomers(t, `{}`, setup{}, func(t *testing.T, live *Live, n *newcomer) {
				prepare(t, live)
				want := test.modern
				if want == "" {
					want = test.legacy
				}
				want = `{"jsonrpc":"2.0","id":1,"error":` + want + `}`
				if got := n.answer(1, test.method, test.members); got != want {
					t.Errorf("modern\n got %s\nwant %s", got, want)
				}
				if n.stdio == nil {
					if status, _ := n.status(1, test.method, test.members); status != test.status {
						t.Errorf("status %d, want %d", status, test.status)
					}
				}
			})
		})
	}
}

func TestCompletionIsOfTheUpstreamsOwnName(t *testing.T) {
	type asked struct{ server, params string }
	seen := make(chan asked, 1)
	settings := setup{Complete: func(_ context.Context, server string, call *tool.Call) (tool.Result, error) {
		seen <- asked{server, string(call.Params)}
		return tool.Result(`{"completion":{"values":["<&>"],"x":1.0}}`), nil
	}}
	prepare := func(t *testing.T, live *Live) {
		addItem(t, live, tool.KindPrompt, "srv_p", `{"name":"p"}`, nil)
		addItem(t, live, tool.KindTemplate, "srv+x:{id}", `{"uriTemplate":"x:{id}"}`, nil)
		addItem(t, live, tool.KindResource, "srv+x:1", `{"uri":"x:1"}`, nil)
	}
	const rest = `,"argument":{"name":"id","value":"9.0"},"context":{"arguments":{"n":1e400}},"unknown":"\u00e9"`
	tests := []struct{ ref, own string }{
		{`{"type":"ref/prompt","name":"srv_p","title":"kept"}`, `{"type":"ref/prompt","name":"p","title":"kept"}`},
		{`{"type":"ref/resource","uri":"srv+x:{id}"}`, `{"type":"ref/resource","uri":"x:{id}"}`},
		{`{"type":"ref/resource","uri":"srv+x:1"}`, `{"type":"ref/resource","uri":"x:1"}`},
	}
	unknown := []string{
		`{"type":"ref/prompt","name":"nope"}`, `{"type":"ref/prompt","uri":"srv+x:{id}"}`, `{"type":"ref/resource","uri":"x:nope"}`,
		`{"type":"ref/resource","name":"srv_p"}`, `{"type":"ref/tool","name":"srv_t001"}`, `{}`, `null`, `7`, `"srv_p"`,
	}
	transports(t, `{}`, settings, func(t *testing.T, live *Live, c *conversation) {
		prepare(t, live)
		for _, test := range tests {
			got := await(t, c.post(request(1, "completion/complete", `{"ref":`+test.ref+rest+`}`)), `"id":1`)
			if want := `{"jsonrpc":"2.0","id":1,"result":{"completion":{"values":["<&>"],"x":1.0}}}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got, want := <-seen, (asked{"srv", `{"ref":` + test.own + rest + `}`}); got != want {
				t.Errorf("the upstream was asked %s, want %s", got, want)
			}
		}
		for _, ref := range unknown {
			got := await(t, c.post(request(1, "completion/complete", `{"ref":`+ref+rest+`}`)), `"id":1`)
			if !strings.Contains(got, `"error":{"code":-32602,`) {
				t.Errorf("ref %s: %s", ref, got)
			}
		}
	})
	newcomers(t, everything, settings, func(t *testing.T, live *Live, n *newcomer) {
		prepare(t, live)
		got := n.answer(1, "completion/complete", `"ref":`+tests[0].ref+rest)
		if want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","completion":{"values":["<&>"],"x":1.0}}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		<-seen
	})
}

func TestCompletionPassesErrorsAndTakesNoQuestions(t *testing.T) {
	newcomers(t, everything, setup{Complete: func(ctx context.Context, _ string, call *tool.Call) (tool.Result, error) {
		_, err := call.Client.Ask(ctx, "roots/list", nil)
		return nil, err
	}}, func(t *testing.T, live *Live, n *newcomer) {
		addItem(t, live, tool.KindPrompt, "p", `{"name":"p"}`, nil)
		if got := n.answer(1, "completion/complete", `"ref":{"type":"ref/prompt","name":"p"}`); !strings.Contains(got, `"error":{"code":-32601,`) {
			t.Errorf("answer = %s", got)
		}
	})
}

func TestWhatIsDeclaredIsWhatIsDeclared(t *testing.T) {
	for _, test := range []struct {
		name    string
		offered Declared
		want    string // of the capabilities, sorted as mcp-go writes them
	}{
		{"nothing", Declared{}, `{"tools":{"listChanged":true}}`},
		{"prompts", Declared{Prompts: true}, `{"prompts":{"listChanged":true},"tools":{"listChanged":true}}`},
		{"resources", Declared{Resources: true}, `{"resources":{"listChanged":true},"tools":{"listChanged":true}}`},
		{"subscriptions", Declared{Resources: true, Subscribe: true}, `{"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`},
		{"all", Declared{Prompts: true, Resources: true, Subscribe: true, Completions: true, Logging: true}, `{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			check := func(what, message string) {
				t.Helper()
				var answer struct {
					Result struct {
						Capabilities map[string]any
						Instructions string
					}
				}
				must.Do(t, json.Unmarshal([]byte(message), &answer))
				if got, _ := json.Marshal(answer.Result.Capabilities); string(got) != test.want {
					t.Errorf("%s declares %s, want %s", what, got, test.want)
				}
				if answer.Result.Instructions != "do <this>" {
					t.Errorf("%s: instructions %q", what, answer.Result.Instructions)
				}
			}
			live := newLive(t, setup{})
			show(live, func(v *Served) { v.Declared, v.Instructions = test.offered, "do <this>" })
			url := serveHTTP(t, live)
			p := &peer{t: t, url: url}
			check("initialize", p.messages(hello(`{}`))[0])
			n := &newcomer{t: t, url: url, capabilities: `{}`}
			check("server/discover", n.answer(1, "server/discover", ""))
			d := serveStdio(t, t.Context(), live)
			d.send(hello(`{}`))
			check("initialize over stdio", d.until(`"id":"i"`))
			d.in.Close()
			for d.lines.Scan() {
			}
			<-d.ended
		})
	}
}

// A header that mirrors an argument must say what the argument says, where the
// tool's schema wants it.
func TestHeadersThatMirrorArguments(t *testing.T) {
	live := newLive(t, setup{})
	def, err := tool.ParseDef("srv", json.RawMessage(`{"name":"routed","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	live.served(identity.Party{}).Source.(catalog)["srv_routed"] = &tool.Tool{Name: "srv_routed", Def: def, Handler: func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.TextResult("routed"), nil
	}}
	n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: `{}`}
	const name = "Mcp-Param-Region"
	for _, test := range []struct {
		what, arguments string
		headers         []string
		ok              bool
	}{
		{"the same", `{"region":"eu"}`, []string{name, "eu"}, true},
		{"the same in base64", `{"region":"é"}`, []string{name, "=?base64?w6k=?="}, true},
		{"neither", `{"n":1}`, nil, true},
		{"another", `{"region":"eu"}`, []string{name, "us"}, false},
		{"no header", `{"region":"eu"}`, nil, false},
		{"no argument", `{}`, []string{name, "us"}, false},
		{"a header nobody wants", `{"region":"eu"}`, []string{name, "eu", "Mcp-Param-Other", "x"}, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			members := `"name":"srv_routed","arguments":` + test.arguments
			p := &peer{t: t, url: n.url}
			response := p.post(n.body(1, "tools/call", members), append(n.headers("tools/call", members), test.headers...)...)
			response.Body.Close()
			got := p.messages(n.body(1, "tools/call", members), append(n.headers("tools/call", members), test.headers...)...)[0]
			switch {
			case test.ok && (response.StatusCode != http.StatusOK || !strings.Contains(got, "routed")):
				t.Errorf("%s, %s; want it called", response.Status, got)
			case !test.ok && (response.StatusCode != http.StatusBadRequest || !strings.Contains(got, `"code":-32020`)):
				t.Errorf("%s, %s; want 400 and -32020", response.Status, got)
			}
		})
	}
	// The stream of a legacy client and stdio know no headers.
	p := connect(t, n.url, "legacy")
	if got := p.messages(call(1, "srv_routed", `{"region":"eu"}`))[0]; !strings.Contains(got, "routed") {
		t.Errorf("legacy: %s", got)
	}
	n.stdio = overStdio(t, live, "")
	if got := n.answer(1, "tools/call", `"name":"srv_routed","arguments":{"region":"eu"}`); !strings.Contains(got, "routed") {
		t.Errorf("stdio: %s", got)
	}
}

// Methods of one era are unknown in the other.
func TestMethodsOfTheOtherEra(t *testing.T) {
	transports(t, `{}`, setup{}, func(t *testing.T, _ *Live, c *conversation) {
		got := await(t, c.post(request(1, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)), `"id":1`)
		if !strings.Contains(got, `"error":{"code":-32601,`) {
			t.Errorf("legacy: %s", got)
		}
	})
	newcomers(t, everything, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		addItem(t, live, tool.KindResource, "x:r", `{"uri":"x:r"}`, nil)
		for method, members := range map[string]string{
			"resources/subscribe": `"uri":"x:r"`, "resources/unsubscribe": `"uri":"x:r"`, "logging/setLevel": `"level":"debug"`, "ping": ``,
		} {
			if got := n.answer(1, method, members); !strings.Contains(got, `"error":{"code":-32601,`) {
				t.Errorf("modern %s: %s", method, got)
			}
			if n.stdio == nil {
				if status, _ := n.status(1, method, members); status != http.StatusNotFound {
					t.Errorf("modern %s: status %d, want 404", method, status)
				}
			}
		}
	})
}
