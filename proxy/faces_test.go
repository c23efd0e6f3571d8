package proxy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/proxy"
	"toolfinch/upstream"
	"toolfinch/view"
)

// shop is an upstream that has tools of these names and does what they say.
func shop(t testing.TB, server string, tools ...string) *script {
	s := newScript(t, server, false, false)
	s.settings.Validate = true
	s.list("tools", goods(tools...)...)
	s.on("tools/call", func(r *request) {
		r.result(`{"content":[{"type":"text","text":"` + r.about() + `"}],"structuredContent":{"args":` + string(part(r.Params, "arguments")) + `}}`)
	})
	return s
}

func goods(tools ...string) (defs []string) {
	for _, name := range tools {
		defs = append(defs, `{"name":"`+name+`","description":"Sells a `+name+` of any colour. Ask for `+name+` by size.","inputSchema":{"type":"object","properties":{"size":{"type":"integer"},"colour":{"type":"string"}},"required":["size"]}}`)
	}
	return defs
}

// everything is a view of all tools.
func everything(name string, exposure view.Exposure) view.Settings {
	return view.Settings{Name: name, Exposure: exposure, DirectBelow: 3000, IncludeAll: true}
}

// viewClient is a client of a view over HTTP.
func viewClient(t testing.TB, p *proxy.Proxy, url, name string, modern bool) *rawClient {
	t.Helper()
	return newClientAt(t, p, url+"/mcp/"+name, kind{modern: modern}, `{}`, reply)
}

// changes lists other tools upstream and waits until every view, of which each has
// all of them, has those.
func (s *script) changes(t testing.TB, p *proxy.Proxy, defs ...string) {
	t.Helper()
	s.list("tools", defs...)
	s.tell(t, "notifications/tools/list_changed", `{}`)
	eventually(t, func() bool {
		return !slices.ContainsFunc(p.Views(), func(v *proxy.View) bool {
			n := 0
			for _, one := range v.Tools() {
				if one.Def.ID.Server == s.settings.Name {
					n++
				}
			}
			return n != len(defs)
		})
	})
}

// search_style: plain answers with a list of objects of three members, at the root too.
func TestPlainSearch(t *testing.T) {
	find := everything("find", view.ExposureSearch)
	find.SearchStyle = view.SearchPlain
	config := configOf(t, []*script{shop(t, "shop", "hat")}, find)
	config.DefaultView = configs.RootViews
	config.Servers = append(config.Servers, upstream.Settings{Name: "gone", Command: "toolfinch-test-no-such-program"})
	p, url := openViews(t, "", config)
	const want = `[{"name":"shop_hat","description":"Sells a hat of any colour. Ask for hat by size.","parameters":{"type":"object","properties":{"size":{"type":"integer"},"colour":{"type":"string"}},"required":["size"]}}]`
	for _, modern := range []bool{false, true} {
		for _, c := range []*rawClient{viewClient(t, p, url, "find", modern), newClient(t, p, url, kind{modern: modern}, `{}`, reply)} {
			for arguments, found := range map[string]string{`{"query":"sells a hat"}`: want, `{}`: want, `{"query":"zebra"}`: "[]"} {
				texts, structured := contents(c.ask("tools/call", toolCall("find_search_tools", arguments)).Result)
				if len(texts) != 2 || texts[0] != found || !strings.HasPrefix(texts[1], "failed: gone: ") || structured != "" {
					t.Errorf("%s: %q %s", arguments, texts, structured)
				}
			}
		}
	}
}

func TestADirectViewListsAllItsTools(t *testing.T) {
	up := shop(t, "shop", "hat", "coat", "shoe")
	p, url := openViews(t, "", configOf(t, []*script{up}, everything("all", view.ExposureDirect)))
	for _, modern := range []bool{false, true} {
		t.Run(kind{modern: modern}.String(), func(t *testing.T) {
			up.changes(t, p, goods("hat", "coat", "shoe")...)
			c := viewClient(t, p, url, "all", modern)
			want := []string{"shop_coat", "shop_hat", "shop_shoe"}
			for range 3 {
				if got := c.listed(); !slices.Equal(got, want) {
					t.Fatalf("tools/list has %v, want %v", got, want)
				}
			}
			for _, meta := range []string{"retrieve_tools", "call_tool", "all_search_tools", "all_call_tool"} {
				if got := c.ask("tools/call", toolCall(meta, `{"query":"hat","name":"shop_hat"}`)); !failed(got) {
					t.Errorf("%s is there: %s", meta, got.raw)
				}
			}
			listening := (&meeting{rawClient: c}).listen(`{"toolsListChanged":true}`)
			up.changes(t, p, goods("hat", "coat", "shoe", "belt")...)
			c.hears("notifications/tools/list_changed", listening)
			if got, want := c.listed(), []string{"shop_belt", "shop_coat", "shop_hat", "shop_shoe"}; !slices.Equal(got, want) {
				t.Errorf("tools/list has %v, want %v", got, want)
			}
		})
	}
}

// What a session was shown first stays, unless it outgrows the context of a model; 2026-07-28
// clients, which have none, share one decision.
func TestAClientIsListedAllToolsWhileTheyCostLittle(t *testing.T) {
	up := shop(t, "shop", "hat")
	auto := everything("auto", view.ExposureAuto)
	auto.DirectBelow = 300
	p, url := openViews(t, "", configOf(t, []*script{up}, auto))
	items := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("item%02d", i))
		}
		return names
	}
	var listening func(json.RawMessage) bool
	lists := func(c *rawClient, want ...string) {
		t.Helper()
		if got := c.listed(); !slices.Equal(got, want) {
			t.Errorf("tools/list has %v, want %v", got, want)
		}
	}
	shopping := func(names []string) (all []string) {
		for _, name := range names {
			all = append(all, "shop_"+name)
		}
		return all
	}
	searched := []string{"retrieve_tools", "call_tool"}
	small, modern := viewClient(t, p, url, "auto", false), viewClient(t, p, url, "auto", true)
	become := func(now []string) {
		t.Helper()
		for _, c := range []*rawClient{small, modern} {
			c.clear()
		}
		up.changes(t, p, goods(now...)...)
		small.hears("notifications/tools/list_changed", nil)
		modern.hears("notifications/tools/list_changed", listening)
	}

	lists(small, "retrieve_tools", "shop_hat")
	lists(modern, "retrieve_tools", "shop_hat")
	if got := small.ask("tools/call", toolCall("retrieve_tools", `{"query":"sells a hat"}`)); failed(got) || !strings.Contains(string(got.Result), "shop_hat") {
		t.Errorf("retrieve_tools answers %s", got.raw)
	}
	if got := small.ask("tools/call", toolCall("call_tool", `{"name":"shop_hat","arguments":{"size":1}}`)); failed(got) {
		t.Errorf("call_tool, which is not listed, answers %s", got.raw)
	}
	listening = (&meeting{rawClient: modern}).listen(`{"toolsListChanged":true}`)

	become(items(10)) // more than a new session is listed
	lists(small, append([]string{"retrieve_tools"}, shopping(items(10))...)...)
	lists(modern, append([]string{"retrieve_tools"}, shopping(items(10))...)...)
	large := viewClient(t, p, url, "auto", false)
	lists(large, searched...)

	become([]string{"hat"})
	lists(large, searched...)
	if got := large.got("notifications/tools/list_changed"); len(got) > 0 {
		t.Errorf("a session heard of a list that did not change for it: %s", got[0].raw)
	}
	lists(small, "retrieve_tools", "shop_hat")
	lists(modern, "retrieve_tools", "shop_hat")

	become(items(60)) // more than anybody is listed
	lists(small, searched...)
	lists(modern, searched...)
	up.changes(t, p, goods("hat")...)
	lists(small, searched...)
	lists(modern, searched...)
}

// direct_below is for routing_type AUTO: the others say how tools reach clients.
func TestOtherRoutingNeverListsAllTools(t *testing.T) {
	for routing, want := range map[configs.Routing][]string{
		configs.RoutingAuto: {"retrieve_tools", "shop_hat"}, configs.RoutingDynamic: {"retrieve_tools"}, configs.RoutingCallTool: {"retrieve_tools", "call_tool"},
	} {
		auto := everything("auto", view.ExposureAuto)
		auto.DirectBelow = 300
		config := configOf(t, []*script{shop(t, "shop", "hat")}, auto)
		config.Routing, config.DirectBelow = routing, 300
		p, url := openViews(t, "", config)
		for _, name := range []string{"auto", view.Default} {
			if got := viewClient(t, p, url, name, false).listed(); !slices.Equal(got, want) {
				t.Errorf("%s: tools/list of the view %s has %v, want %v", routing, name, got, want)
			}
		}
	}
}

// A server that failed is not waited for, or it would keep the tools of the others
// from being listed.
func TestAnAutoViewDoesNotWaitForAServerThatIsGone(t *testing.T) {
	up := shop(t, "shop", "hat")
	gone := newScript(t, "gone", false, false)
	gone.settings.URL, gone.settings.Command = "", "toolfinch-test-no-such-program"
	auto := everything("auto", view.ExposureAuto)
	auto.DirectBelow = 300
	p, url := openViews(t, "", configOf(t, []*script{up, gone}, auto))
	if got := viewClient(t, p, url, "auto", true).listed(); !slices.Equal(got, []string{"retrieve_tools", "shop_hat"}) {
		t.Errorf("tools/list has %v, want those of the other server", got)
	}
}

// contents are the texts of a result, and its structured content.
func contents(result json.RawMessage) (texts []string, structured string) {
	var blocks []json.RawMessage
	_ = json.Unmarshal(part(result, "content"), &blocks)
	for _, block := range blocks {
		texts = append(texts, partText(block, "text"))
	}
	return texts, string(part(result, "structuredContent"))
}

func TestToolsAreRegisteredForTheirOwnSession(t *testing.T) {
	up := shop(t, "shop", "hat", "coat", "shoe")
	p, url := openViews(t, "", configOf(t, []*script{up}, everything("x", view.ExposureRetrieve), everything("y", view.ExposureRetrieve)))
	sessions := map[string]*rawClient{}
	for name, in := range map[string]string{"one of x": "x", "another of x": "x", "one of y": "y", "of default": "default"} {
		sessions[name] = viewClient(t, p, url, in, false)
	}
	got := sessions["one of x"].ask("tools/call", toolCall("retrieve_tools", `{"query":"sells a hat","limit":1,"detail":"full"}`))
	if !strings.Contains(string(answerOf(got)), `"registered":true`) {
		t.Fatalf("retrieve_tools = %s", got.raw)
	}
	for name, c := range sessions {
		want := []string{"retrieve_tools", "call_tool"}
		if name == "one of x" {
			want = append(want, "shop_hat")
		}
		if got := c.listed(); !slices.Equal(got, want) {
			t.Errorf("the session %s is listed %v, want %v", name, got, want)
		}
		if got := c.got("notifications/tools/list_changed"); (len(got) > 0) != (name == "one of x") {
			t.Errorf("the session %s heard list_changed %d times", name, len(got))
		}
	}
}

func TestALargeResultIsReadByItsOwnSession(t *testing.T) {
	up := newScript(t, "big", false, false)
	up.list("tools", `{"name":"dump","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`)
	long := strings.Repeat("line of the dump\\n", 2000) + "the end"
	up.on("tools/call", func(r *request) { r.result(`{"content":[{"type":"text","text":"` + long + `"}]}`) })
	var views []view.Settings
	for _, exposure := range []view.Exposure{view.ExposureDirect, view.ExposureRetrieve, view.ExposureSearch} {
		kept := everything("kept-"+string(exposure), exposure)
		kept.Tools = []view.UpstreamTools{{Name: "big", Output: &view.OutputCache{MinSize: 10_000, Preview: 500}}}
		views = append(views, kept)
	}
	views = append(views, everything("whole", view.ExposureDirect))
	p, url := openViews(t, "", configOf(t, []*script{up}, views...))

	if c := viewClient(t, p, url, "whole", false); slices.Contains(c.listed(), "read_output") || len(c.ask("tools/call", toolCall("big_dump", `{}`)).Result) < len(long) {
		t.Error("a view that keeps nothing cuts a result, or offers to read on")
	}
	for _, settings := range views[:3] {
		t.Run(settings.Name, func(t *testing.T) {
			own, other, elsewhere := viewClient(t, p, url, settings.Name, false), viewClient(t, p, url, settings.Name, false), viewClient(t, p, url, "kept-direct", false)
			if names := own.listed(); !slices.Contains(names, "read_output") {
				t.Fatalf("read_output is not among %v", names)
			}
			got := own.ask("tools/call", toolCall("big_dump", `{}`))
			token := tokenIn(string(got.Result))
			if len(got.Result) > 5_000 || token == "" {
				t.Fatalf("the answer is %.600s", got.raw)
			}
			read := toolCall("read_output", `{"token":"`+token+`","lines":"2000-2001"}`)
			if got := own.ask("tools/call", read); failed(got) || !strings.Contains(string(got.Result), "the end") {
				t.Errorf("its own session reads %s", got.raw)
			}
			unknown := own.ask("tools/call", strings.ReplaceAll(read, token, strings.Repeat("A", len(token))))
			for what, c := range map[string]*rawClient{"another session": other, "a session of another view": elsewhere} {
				got := c.ask("tools/call", read)
				if !failed(got) || string(got.Result) != string(unknown.Result) {
					t.Errorf("%s reads %s\nwant what a made up token is answered: %s", what, got.raw, unknown.raw)
				}
			}
		})
	}
}

// tokenIn is the token that a preview names.
func tokenIn(answer string) string {
	for _, word := range strings.FieldsFunc(answer, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') }) {
		if len(word) == 26 {
			return word
		}
	}
	return ""
}

func TestAViewThatChangesNothingKeepsEveryByte(t *testing.T) {
	const odd = `{"unknown":1e400,"name":"odd","inputSchema":{"type":"object","definitions":{"a":{"minimum":1.0}},"x":12345678901234567890},"title":"\u003cé","annotations":{"z":[ ]}}`
	const result = `{"b":1.0,"content":[{"type":"text","text":"\u003c","u":1e400}],"structuredContent":{"n":12345678901234567890},"a":[ ]}`
	up := newScript(t, "up", false, false)
	up.list("tools", odd)
	up.list("prompts", `{"name":"p","arguments":[],"u":1.0}`)
	up.list("resources", `{"uri":"file:///r","name":"r","size":9007199254740993}`)
	up.list("resourceTemplates", `{"uriTemplate":"t://{x}","name":"t","u":1e400}`)
	up.on("tools/call", func(r *request) { r.result(result) })
	same := everything("same", view.ExposureRetrieve)
	p, url := openViews(t, "", configOf(t, []*script{up}, same, everything("direct", view.ExposureDirect)))
	usual, other, direct := viewClient(t, p, url, "default", false), viewClient(t, p, url, "same", false), viewClient(t, p, url, "direct", false)
	for _, ask := range []struct{ method, params string }{
		{"tools/list", `{}`}, {"prompts/list", `{}`}, {"resources/list", `{}`}, {"resources/templates/list", `{}`},
		{"tools/call", toolCall("retrieve_tools", `{"query":"odd"}`)},
		{"tools/list", `{}`},
		{"tools/call", toolCall("up_odd", `{"f":1.0,"big":12345678901234567890}`)},
		{"tools/call", toolCall("call_tool", `{"name":"up.odd","arguments":{"f":1.0}}`)},
		{"tools/call", toolCall("up_od", `{}`)},
	} {
		want, got := usual.ask(ask.method, ask.params), other.ask(ask.method, ask.params)
		if string(got.Result) != string(want.Result) || string(got.Error) != string(want.Error) {
			t.Errorf("%s %s = %s\nin the default view %s", ask.method, ask.params, got.raw, want.raw)
		}
	}
	if got, want := string(direct.ask("tools/list", `{}`).Result), `{"tools":[`+strings.Replace(odd, `"odd"`, `"up_odd"`, 1)+`]}`; got != want {
		t.Errorf("tools/list = %s\nwant %s", got, want)
	}
	if got := string(direct.ask("tools/call", toolCall("up_odd", `{"f":1.0}`)).Result); got != result {
		t.Errorf("the result is %s\nwant %s", got, result)
	}
}

// Two views over one server share its subscriptions and its log level.
func TestViewsShareWhatAServerTells(t *testing.T) {
	up := newScript(t, "up", false, false)
	up.list("tools", `{"name":"x"}`)
	up.list("resources", `{"uri":"file:///r","name":"r"}`)
	p, url := openViews(t, "", configOf(t, []*script{up}, everything("x", view.ExposureDirect), everything("y", view.ExposureSearch)))
	x, y, bystander := viewClient(t, p, url, "x", false), viewClient(t, p, url, "y", false), viewClient(t, p, url, "default", false)

	t.Run("subscriptions", func(t *testing.T) {
		const resource = `{"uri":"file:///r"}`
		for _, c := range []*rawClient{x, y} {
			if got := c.ask("resources/subscribe", resource); got.Result == nil {
				t.Fatalf("subscribe = %s", got.raw)
			}
		}
		up.tell(t, "notifications/resources/updated", resource)
		x.hears("notifications/resources/updated", nil)
		y.hears("notifications/resources/updated", nil)
		if got := up.got("resources/subscribe"); len(got) != 1 {
			t.Errorf("the server was subscribed to %d times, want once", len(got))
		}
		x.ask("resources/unsubscribe", resource)
		x.clear()
		y.clear()
		up.tell(t, "notifications/resources/updated", resource)
		y.hears("notifications/resources/updated", nil)
		if got := up.got("resources/unsubscribe"); len(got) != 0 {
			t.Error("the server was left while a session of the other view is subscribed")
		}
		y.ask("resources/unsubscribe", resource)
		eventually(t, func() bool { return len(up.got("resources/unsubscribe")) == 1 })
		for name, c := range map[string]*rawClient{"x": x, "default": bystander} {
			if got := c.got("notifications/resources/updated"); len(got) > 0 {
				t.Errorf("the session of %s was not subscribed and heard %s", name, got[0].raw)
			}
		}
	})

	t.Run("log levels", func(t *testing.T) {
		level := func() string {
			all := up.got("logging/setLevel")
			if len(all) == 0 {
				return ""
			}
			return partText(all[len(all)-1].Params, "level")
		}
		for _, step := range []struct {
			c        *rawClient
			says, is string
		}{
			{x, "warning", "warning"},
			{y, "debug", "debug"},
			{x, "error", "debug"},
			{y, "critical", "error"},
		} {
			step.c.ask("logging/setLevel", `{"level":"`+step.says+`"}`)
			if got := level(); got != step.is {
				t.Errorf("after one said %s the server was told %s, want %s", step.says, got, step.is)
			}
		}
		up.tell(t, "notifications/message", `{"level":"error","data":"e"}`)
		up.tell(t, "notifications/message", `{"level":"critical","data":"c"}`)
		fits := func(params json.RawMessage) bool { return partText(params, "data") == "c" }
		x.hears("notifications/message", fits)
		y.hears("notifications/message", fits)
		if got := len(x.got("notifications/message")); got != 2 {
			t.Errorf("x, at error, heard %d messages, want 2", got)
		}
		if got := len(y.got("notifications/message")); got != 1 {
			t.Errorf("y, at critical, heard %d messages, want 1", got)
		}
	})
}
