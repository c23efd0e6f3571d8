package proxy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/proxy"
	"toolfinch/proxytool"
	"toolfinch/view"
)

// journal is what a proxy logs, a line of JSON each.
type journal struct{ await.Log }

// lines are those whose message is msg.
func (j *journal) lines(msg string) (all []string) {
	for line := range strings.Lines(j.String()) {
		if partText([]byte(line), "msg") == msg {
			all = append(all, line)
		}
	}
	return all
}

// openPortal runs a proxy until the test ends, and waits until its default view
// has as many tools.
func openPortal(t testing.TB, config *configs.Config, tools int) (*proxy.Proxy, string, *journal) {
	t.Helper()
	log := &journal{}
	p, url := running(t, config, proxy.WithLogger(slog.New(slog.NewJSONHandler(log, nil))))
	eventually(t, func() bool { return len(toolsOf(t, p, "")) == tools })
	return p, url, log
}

// portalScript has what the proxy tool can meet.
func portalScript(t testing.TB, k kind) *script {
	s := newScript(t, "one", k.modern, k.stdio)
	complete := ""
	if k.modern {
		complete, s.hints = `"resultType":"complete",`, `"resultType":"complete","ttlMs":60000,"cacheScope":"public",`
	}
	s.list("tools",
		`{"name":"mixed","title":"T","description":"Content of <every> kind","inputSchema":{"type":"object","properties":{"n":{"type":"integer","default":12345678901234567890,"x":1.0}},"$defs":{"z":{},"a":{}}},"unknown":1e400}`,
		`{"name":"fail","inputSchema":{"type":"object"}}`, `{"name":"refuse","inputSchema":{"type":"object"}}`,
		`{"name":"form","inputSchema":{"type":"object"}}`, `{"name":"progress","inputSchema":{"type":"object"}}`,
		`{"name":"hang","inputSchema":{"type":"object"}}`, `{"name":"params","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
	s.list("prompts", `{"name":"greet","description":"A \u003cfriendly> greeting","arguments":[{"name":"who","required":true}],"unknown":1.0}`)
	s.list("resources", `{"uri":"file:///notes.txt","name":"notes","unknown":12345678901234567890}`, `{"uri":"file:///data.json","name":"data","mimeType":"application/vnd.x+json"}`, `{"uri":"file:///blob","name":"blob"}`)
	s.list("resourceTemplates", `{"uriTemplate":"db://{table}/{id}","name":"Rows","x":1e400}`)
	s.on("tools/call mixed", func(r *request) {
		r.result(`{` + complete + `"content":[` + strings.Join(mixedContent, ",") + `],"structuredContent":{"z":12345678901234567890,"a":1.0,"b":"\u003c"},"unknown":[1e400],"_meta":{"a/b":2.50}}`)
	})
	s.on("tools/call fail", func(r *request) {
		r.result(`{` + complete + `"content":[{"type":"text","text":"it rained"}],"isError":true}`)
	})
	s.on("tools/call refuse", func(r *request) {
		r.fail(`{"code":-32099,"message":"not \u003ctoday>","data":{"big":12345678901234567890}}`)
	})
	s.on("tools/call form", func(r *request) {
		if answers, ok := r.need(1, form); ok {
			r.result(`{` + complete + `"content":[],"answers":[` + joined(answers) + `]}`)
		}
	})
	s.on("tools/call progress", func(r *request) {
		token := part(part(r.Params, "_meta"), "progressToken")
		for i := range 3 {
			r.notify("notifications/progress", fmt.Sprintf(`{"unknown":1e400,"progressToken":%s,"progress":%d.0,"total":3}`, token, i))
		}
		r.result(`{` + complete + `"content":[]}`)
	})
	s.on("tools/call hang", func(r *request) { <-r.ended })
	s.on("tools/call params", func(r *request) {
		r.result(`{` + complete + `"content":[],"arguments":` + string(part(r.Params, "arguments")) + `}`)
	})
	s.on("prompts/get greet", func(r *request) {
		r.result(`{` + complete + `"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hello <you>"},"x":1e400}],"arguments":` + string(part(r.Params, "arguments")) + `}`)
	})
	s.on("resources/read", func(r *request) {
		uri, _ := json.Marshal(r.about())
		r.result(`{` + complete + `"contents":[{"uri":` + string(uri) + `,"mimeType":"text/plain","text":"<it>","unknown":1.0}]}`)
	})
	s.on("resources/read file:///data.json", func(r *request) {
		r.result(`{` + complete + `"contents":[{"uri":"file:///data.json","mimeType":"application/vnd.x+json","text":"{ \"z\": 1.0, \"a\": 12345678901234567890 }"},{"uri":"file:///data.json","text":"{ not JSON"}]}`)
	})
	s.on("resources/read db://absent/refused", func(r *request) {
		r.fail(`{"code":-32098,"message":"no such row","data":{"big":12345678901234567890}}`)
	})
	s.on("resources/read file:///blob", func(r *request) {
		r.result(`{` + complete + `"contents":[{"uri":"file:///blob","mimeType":"application/json","blob":"e30="}]}`)
	})
	return s
}

// mixedContent are the content items of the tool mixed.
var mixedContent = []string{
	`{"type":"text","text":"a<b>&\u00e9","x":1e400}`,
	`{"type":"text","text":"{\"json\": true}","annotations":{"audience":["user"],"priority":0.50},"_meta":{"own/key":12345678901234567890}}`,
	`{"type":"image","data":"aGk=","mimeType":"image/png"}`,
	`{"type":"resource_link","uri":"file:///notes.txt","name":"notes"}`,
	`{"type":"resource","resource":{"uri":"file:///x","text":"1.0"}}`,
	`{"type":"hologram","depth":1.0}`,
}

// portalDefs are what clients are listed of a script.
func portalDefs(s *script, t proxytool.Type) []string {
	switch t {
	case proxytool.TypeResource:
		return slices.Concat(s.lists["resources"], s.lists["resourceTemplates"])
	case proxytool.TypePrompt:
		return prefixed(s.lists["prompts"])
	}
	defs := prefixed(s.lists["tools"])
	slices.SortFunc(defs, func(a, b string) int { // as tools/list has them
		return strings.Compare(partText([]byte(a), "name"), partText([]byte(b), "name"))
	})
	return defs
}

func prefixed(defs []string) (all []string) {
	for _, def := range defs {
		all = append(all, strings.Replace(def, `{"name":"`, `{"name":"one_`, 1))
	}
	return all
}

// portal uses the proxy tool, until no more input is wanted.
func (c *rawClient) portal(arguments string) message {
	c.t.Helper()
	return c.call("tools/call", toolCall("proxy", arguments))
}

func elements(raw json.RawMessage) (all []json.RawMessage) {
	_ = json.Unmarshal(raw, &all)
	return all
}

// embedded is the one embedded resource of an answer.
type embedded struct{ uri, mimeType, text string }

// only returns it, and fails the test unless it is alone and labelled, in its
// annotations and in its _meta, with what is given: keys and JSON in turn.
func only(t *testing.T, got message, labels ...string) embedded {
	t.Helper()
	content := elements(part(got.Result, "content"))
	if len(content) != 1 || partText(content[0], "type") != "resource" || failed(got) {
		t.Fatalf("the answer is not one embedded resource: %s", got.raw)
	}
	labelled(t, content[0], labels...)
	resource := part(content[0], "resource")
	if keys := members(resource); len(keys) != 3 {
		t.Errorf("the resource has %v", keys)
	}
	return embedded{partText(resource, "uri"), partText(resource, "mimeType"), partText(resource, "text")}
}

// labelled fails the test unless the content item has the labels.
func labelled(t *testing.T, item json.RawMessage, labels ...string) {
	t.Helper()
	for i := 0; i < len(labels); i += 2 {
		for _, where := range []string{"annotations", "_meta"} {
			if got := string(part(part(item, where), labels[i])); got != labels[i+1] {
				t.Errorf("%s has %s = %s, want %s: %s", where, labels[i], got, labels[i+1], item)
			}
		}
	}
}

var dataTypes = map[proxytool.Type]string{
	proxytool.TypeTool: `"Tool"`, proxytool.TypeResource: `"Resource | ResourceTemplate"`, proxytool.TypePrompt: `"Prompt"`,
}

var proxyTypes = []proxytool.Type{proxytool.TypeTool, proxytool.TypeResource, proxytool.TypePrompt}

func TestTheProxyToolBetweenTheEras(t *testing.T) {
	forEachMeeting(t, func(t *testing.T, client, server kind) {
		s := portalScript(t, server)
		config := configOf(t, []*script{s})
		config.ProxyTool = "proxy"
		p, url, _ := openPortal(t, config, len(s.lists["tools"]))
		m := &meeting{rawClient: newClient(t, p, url, client, can, reply), up: s}
		for _, test := range []struct {
			name string
			run  func(*testing.T, *meeting)
		}{
			{"lists are the definitions, byte for byte", portalLists},
			{"info is one definition, byte for byte", portalInfos},
			{"a tool's content is its own, annotated", portalTools},
			{"resources are embedded", portalResources},
			{"prompts are one embedded resource", portalPrompts},
			{"errors are those of the direct call", portalErrors},
			{"questions reach the client", portalQuestions},
			{"progress and cancellation", portalProgress},
		} {
			t.Run(test.name, func(t *testing.T) {
				m.rawClient.t = t
				m.clear()
				test.run(t, m)
			})
		}
	})
}

func portalLists(t *testing.T, m *meeting) {
	for _, typ := range proxyTypes {
		defs := portalDefs(m.up, typ)
		got := only(t, m.portal(`{"action":"list","type":"`+string(typ)+`"}`),
			"proxyAction", `"list"`, "proxyType", `"`+string(typ)+`"`, "proxyPath", "", "many", "true",
			"pythonType", dataTypes[typ], "dataType", dataTypes[typ], "totalCount", fmt.Sprint(len(defs)), "count", fmt.Sprint(len(defs)), "offset", "0")
		want := embedded{"proxy:list/" + string(typ), "application/json", `[` + strings.Join(defs, ",") + `]`}
		if got != want {
			t.Errorf("list %s = %+v\nwant %+v", typ, got, want)
		}
	}
	// What the servers themselves are asked is the list, and nothing else.
	for method, key := range map[string]string{"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
		own := m.ask(method, `{}`)
		for _, def := range elements(part(own.Result, key)) {
			typ := "resource"
			if key == "prompts" {
				typ = "prompt"
			}
			if got := only(t, m.portal(`{"action":"list","type":"`+typ+`"}`)); !strings.Contains(got.text, string(def)) {
				t.Errorf("%s lists %s, the proxy tool does not: %s", method, def, got.text)
			}
		}
	}
}

func portalInfos(t *testing.T, m *meeting) {
	for _, typ := range proxyTypes {
		for _, def := range portalDefs(m.up, typ) {
			path := partText([]byte(def), "name")
			if typ == proxytool.TypeResource {
				path = partText([]byte(def), "uri") + partText([]byte(def), "uriTemplate")
			}
			got := only(t, m.portal(`{"action":"info","type":"`+string(typ)+`","path":"`+path+`"}`),
				"proxyAction", `"info"`, "proxyType", `"`+string(typ)+`"`, "proxyPath", `"`+path+`"`, "many", "false", "pythonType", dataTypes[typ], "dataType", dataTypes[typ], "totalCount", "")
			if got.text != def || got.mimeType != "application/json" || !strings.HasPrefix(got.uri, "proxy:info/"+string(typ)+"/") {
				t.Errorf("info %s = %+v\nwant %s", path, got, def)
			}
		}
	}
	if got := only(t, m.portal(`{"action":"info","type":"resource","path":"notes"}`)); got.text != m.up.lists["resources"][0] {
		t.Errorf("a resource by its name = %+v", got)
	}
}

func portalTools(t *testing.T, m *meeting) {
	direct, got := m.call("tools/call", toolCall("one_mixed", `{}`)), m.portal(`{"action":"call","type":"tool","path":"one_mixed"}`)
	if a, b := without(members(direct.Result), "content"), without(members(got.Result), "content"); !slices.Equal(byKey(a), byKey(b)) {
		t.Errorf("beside the content the tool answers\n%v and through the proxy tool\n%v", a, b)
	}
	content := elements(part(got.Result, "content"))
	if len(content) != len(mixedContent) {
		t.Fatalf("%d content items, want %d: %s", len(content), len(mixedContent), got.raw)
	}
	for i, item := range content {
		labelled(t, item, "proxyAction", `"call"`, "proxyType", `"tool"`, "proxyPath", `"one_mixed"`)
		own := []byte(mixedContent[i])
		if a, b := without(members(own), "annotations", "_meta"), without(members(item), "annotations", "_meta"); !slices.Equal(a, b) {
			t.Errorf("item %d = %s, want %s", i, item, own)
		}
		for _, key := range []string{"annotations", "_meta"} {
			for _, mine := range members(part(own, key)) {
				if string(part(part(item, key), mine.key)) != mine.value {
					t.Errorf("item %d has lost %s.%s: %s", i, key, mine.key, item)
				}
			}
		}
	}
	failing := m.portal(`{"action":"call","type":"tool","path":"one_fail"}`)
	if string(part(failing.Result, "isError")) != "true" || !strings.Contains(failing.raw, `"it rained"`) {
		t.Errorf("a tool that fails = %s", failing.raw)
	}
	const arguments = `{"z":12345678901234567890,"a":1.0,"t":"\u003c<"}`
	quoted, _ := json.Marshal(arguments)
	for _, args := range []string{arguments, string(quoted)} { // as an object, and as JSON in a string
		if got := m.portal(`{"action":"call","type":"tool","path":"one_params","args":` + args + `}`); string(part(got.Result, "arguments")) != arguments {
			t.Errorf("the server heard %s", got.raw)
		}
	}
}

func portalResources(t *testing.T, m *meeting) {
	for path, uri := range map[string]string{"file:///notes.txt": "file:///notes.txt", "db://people/7": "db://people/7", "notes": "file:///notes.txt"} { // the second of the template, the last by its name
		got := m.portal(`{"action":"call","type":"resource","path":"` + path + `"}`)
		content := elements(part(got.Result, "content"))
		if len(content) != 1 || string(part(content[0], "resource")) != `{"uri":"`+uri+`","mimeType":"text/plain","text":"<it>","unknown":1.0}` {
			t.Fatalf("%s = %s", uri, got.raw)
		}
		labelled(t, content[0], "proxyAction", `"call"`, "proxyType", `"resource"`, "proxyPath", `"`+path+`"`)
		if part(got.Result, "contents") != nil {
			t.Errorf("the answer has contents of resources/read: %s", got.raw)
		}
	}
	content := elements(part(m.portal(`{"action":"call","type":"resource","path":"file:///data.json"}`).Result, "content"))
	if len(content) != 2 {
		t.Fatalf("%d items, want 2", len(content))
	}
	first, second := part(content[0], "resource"), part(content[1], "resource")
	if partText(first, "mimeType") != "application/json" || !strings.Contains(string(content[0]), `"contentType":"application/vnd.x+json"`) {
		t.Errorf("JSON = %s", content[0])
	}
	if value := compact(t, []byte(partText(first, "text"))); value != `{"z":1.0,"a":12345678901234567890}` {
		t.Errorf("JSON was re-encoded as %s", value)
	}
	if string(second) != `{"uri":"file:///data.json","text":"{ not JSON"}` {
		t.Errorf("what is no JSON = %s", second)
	}
	if got := m.portal(`{"action":"call","type":"resource","path":"file:///blob"}`); !strings.Contains(got.raw, `"resource":{"uri":"file:///blob","mimeType":"application/json","blob":"e30="}`) {
		t.Errorf("a blob = %s", got.raw)
	}
}

func portalPrompts(t *testing.T, m *meeting) {
	direct := m.call("prompts/get", `{"name":"one_greet","arguments":{"who":"<me>"}}`)
	got := only(t, m.portal(`{"action":"call","type":"prompt","path":"one_greet","args":{"who":"<me>"}}`),
		"proxyAction", `"call"`, "proxyType", `"prompt"`, "proxyPath", `"one_greet"`, "pythonType", `"GetPromptResult"`, "dataType", `"GetPromptResult"`)
	// The era's resultType belongs to the answer around it.
	a, b := without(members(direct.Result), "resultType", "ttlMs", "cacheScope"), without(members([]byte(got.text)), "resultType")
	if got.mimeType != "application/json" || !slices.Equal(a, b) {
		t.Errorf("prompt = %+v\ndirectly %s", got, direct.Result)
	}
}

func portalErrors(t *testing.T, m *meeting) {
	for _, test := range []struct{ method, params, arguments string }{
		{"tools/call", `{"name":"one_refuse"}`, `{"action":"call","type":"tool","path":"one_refuse"}`},
		{"resources/read", `{"uri":"db://absent/refused"}`, `{"action":"call","type":"resource","path":"db://absent/refused"}`},
	} {
		direct, got := m.ask(test.method, test.params), m.portal(test.arguments)
		if got.Error == nil || string(part(got.Error, "code")) != string(part(direct.Error, "code")) || string(part(got.Error, "data")) != string(part(direct.Error, "data")) {
			t.Errorf("%s answers %s\ndirectly %s", test.arguments, got.raw, direct.raw)
		}
	}
	for _, arguments := range []string{
		`{"action":"info","type":"tool","path":"one_absent"}`, `{"action":"call","type":"tool","path":"one_absent"}`,
		`{"action":"call","type":"tool","path":"proxy","args":{"action":"list","type":"tool"}}`, `{"action":"call","type":"tool","path":"retrieve_tools"}`,
		`{"action":"call","type":"tool","path":"params"}`, `{"action":"info","type":"resource","path":"file:///none"}`, `{"action":"info","type":"prompt","path":"greet"}`,
		`{"action":"call","type":"prompt","path":"one_absent"}`, `{"action":"call","type":"prompt","path":"file:///notes.txt"}`,
	} {
		if got := m.portal(arguments); !strings.Contains(told(got), "there is no ") {
			t.Errorf("%s answers %s, want an error result", arguments, got.raw)
		}
	}
	if got := m.portal(`{"action":"call","type":"tool","path":"one_paramz"}`); !strings.Contains(told(got), "nearest: one_params") {
		t.Errorf("a misspelt name is answered with %s", got.raw)
	}
	if got := m.portal(`{"action":"info","type":"resource","path":"db://people/7"}`); !strings.Contains(got.raw, `\"uriTemplate\":\"db://{table}/{id}\"`) {
		t.Errorf("info of a URI from a template is answered with %s", got.raw)
	}
	before := len(m.up.got("resources/read"))
	for _, path := range []string{"db://{table}/{id}", "Rows"} { // itself, and by its name
		if got := m.portal(`{"action":"call","type":"resource","path":"` + path + `"}`); !strings.Contains(told(got), "db://{table}/{id} is a template: fill in") {
			t.Errorf("the call of a template is answered with %s", got.raw)
		}
	}
	if n := len(m.up.got("resources/read")); n != before {
		t.Errorf("the server was asked for a template %d times", n-before)
	}
}

// told is the text of an error result, "" of anything else.
func told(got message) string {
	content := elements(part(got.Result, "content"))
	if got.Error != nil || !failed(got) || len(content) != 1 {
		return ""
	}
	return partText(content[0], "text")
}

func portalQuestions(t *testing.T, m *meeting) {
	got := m.portal(`{"action":"call","type":"tool","path":"one_form"}`)
	if want := strings.TrimPrefix(replies["elicitation/create"], `"result":`); string(part(got.Result, "answers")) != `[`+want+`]` {
		t.Errorf("the server learned %s, want %s", got.raw, want)
	}
	if asked := m.got("elicitation/create"); len(asked) != 1 || !strings.Contains(string(asked[0].Params), `"message":"\u003cWho?>"`) {
		t.Errorf("the client was asked %v", asked)
	}
}

func portalProgress(t *testing.T, m *meeting) {
	m.call("tools/call", `{"name":"proxy","arguments":{"action":"call","type":"tool","path":"one_progress"},"_meta":{"progressToken":"t\u003c"}}`)
	got := m.got("notifications/progress")
	if len(got) != 3 {
		t.Fatalf("%d progress notifications, want 3", len(got))
	}
	for i, one := range got {
		if want := fmt.Sprintf(`{"unknown":1e400,"progressToken":"t\u003c","progress":%d.0,"total":3}`, i); string(one.Params) != want {
			t.Errorf("progress %d = %s, want %s", i, one.Params, want)
		}
	}
	before := len(m.up.got("tools/call"))
	hanging := m.begin("tools/call", toolCall("proxy", `{"action":"call","type":"tool","path":"one_hang"}`))
	eventually(t, func() bool { return len(m.up.got("tools/call")) > before })
	hanging.cancel()
	eventually(t, func() bool {
		m.up.mu.Lock()
		defer m.up.mu.Unlock()
		for _, open := range m.up.open {
			if open.Method == "tools/call" {
				return false
			}
		}
		return true
	})
}

// What is wrong is refused over the wire as the tool's own error, in words, and
// reaches no server.
func TestTheProxyToolRefuses(t *testing.T) {
	s := portalScript(t, kind{})
	config := configOf(t, []*script{s})
	config.ProxyTool = "proxy"
	p, url, _ := openPortal(t, config, len(s.lists["tools"]))
	c := newClient(t, p, url, kind{}, `{}`, reply)
	for _, test := range []struct{ arguments, want string }{
		{`{}`, "action is required"},
		{`{"type":"tool"}`, "action is required"},
		{`{"action":"lits","type":"tool"}`, `did you mean "list"?`},
		{`{"action":"list"}`, "type is required"},
		{`{"action":"list","type":"tools"}`, `unknown type "tools"`},
		{`{"action":"list","type":"tool","path":"one_mixed"}`, "path is not allowed"},
		{`{"action":"info","type":"tool"}`, "path is required"},
		{`{"action":"info","type":"tool","path":""}`, "path is required"},
		{`{"action":"call","type":"tool","path":null}`, "path is required"},
		{`{"action":"list","type":"tool","args":{}}`, "args"},
		{`{"action":"info","type":"tool","path":"one_mixed","args":{}}`, "args"},
		{`{"action":"call","type":"tool","path":"one_mixed","args":[1]}`, "args must be an object"},
		{`{"action":"call","type":"tool","path":"one_mixed","args":"[1]"}`, "args must be an object"},
		{`{"action":"call","type":"tool","path":"one_mixed","pth":1}`, `unknown argument "pth"`},
		{`{"action":"call","type":"tool","path":"one_mixed","limit":1}`, "limit is only for action list"},
		{`{"action":"list","type":"tool","limit":0}`, "limit must be a whole number from 1 to 1000"},
		{`{"action":"list","type":"tool","offset":-1}`, "offset must be a whole number from 0"},
		{`{"action":"list","type":"tool","cursor":"x"}`, "cursor does not fit"},
		{`{"action":"batch","operations":[]}`, "operations is required"},
		{`{"action":"batch","type":"tool","operations":[{}]}`, "type is not allowed"},
	} {
		got := c.portal(test.arguments)
		content := elements(part(got.Result, "content"))
		if !failed(got) || len(content) != 1 || !strings.Contains(partText(content[0], "text"), test.want) {
			t.Errorf("%s answers %s, want an error result with %q", test.arguments, got.raw, test.want)
		}
	}
	if got := c.portal(`{"action":"list","type":"tool","args":null,"path":null}`); failed(got) {
		t.Errorf("null does not count as absent: %s", got.raw)
	}
	for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
		if got := s.got(method); len(got) > 0 {
			t.Errorf("the server was reached: %s", got[0].raw)
		}
	}
}

// What a view has, and nothing else, is in reach of its proxy tool, under the
// names that the view gives; what is outside is told apart from what does not
// exist by nothing.
func TestTheProxyToolKeepsTheBoundaryOfItsView(t *testing.T) {
	for _, exposure := range view.Exposures {
		t.Run(string(exposure), func(t *testing.T) {
			t.Parallel()
			inner, outer := insider(t), outsider(t)
			narrow := narrowed("narrow", exposure)
			narrow.ProxyTool = "proxy"
			p, url := openViews(t, "", configOf(t, []*script{inner, outer}, narrow))
			for _, modern := range []bool{false, true} {
				c := viewClient(t, p, url, "narrow", modern)
				if !slices.Contains(c.listed(), "proxy") {
					t.Errorf("the proxy tool is not listed: %v", c.listed())
				}
				for _, typ := range proxyTypes {
					got := c.portal(`{"action":"list","type":"` + string(typ) + `"}`)
					discreet(t, got)
					defs := elements([]byte(only(t, got, "many", "true").text))
					if typ != proxytool.TypeTool && len(defs) > 0 || typ == proxytool.TypeTool && !slices.ContainsFunc(defs, func(def json.RawMessage) bool { return partText(def, "name") == "renamed" }) {
						t.Errorf("of type %s there are %s", typ, defs)
					}
					for _, filter := range []string{`{"server":"outer"}`, `{"query":"wipe the zebra"}`, `{"query":"zebra","server":"outer"}`, `{"tags":["zebra"]}`, `{"prefix":"outer"}`} {
						got := c.portal(`{"action":"list","type":"` + string(typ) + `","filter":` + filter + `}`)
						discreet(t, got, `\"outer\"`)
						if strings.Contains(filter, "outer") && !failed(got) && only(t, got, "totalCount", "0").text != "[]" {
							t.Errorf("filter %s lists %s", filter, got.raw)
						}
					}
				}
				absent := map[string]string{}
				for typ, paths := range map[proxytool.Type][]string{
					proxytool.TypeTool: outsideTools, proxytool.TypePrompt: outsidePrompts, proxytool.TypeResource: outsideResources,
				} {
					for _, action := range []string{"info", "call"} {
						of := func(path string) string {
							return `{"action":"` + action + `","type":"` + string(typ) + `","path":"` + path + `"}`
						}
						absent[action] = strings.ReplaceAll(told(c.portal(of("qqqq"))), "qqqq", "")
						for _, path := range paths {
							got := c.portal(of(path))
							discreet(t, got, path)
							if told(got) == "" {
								t.Errorf("%s is in reach: %s", of(path), got.raw)
								continue
							}
							without, _, _ := strings.Cut(strings.ReplaceAll(told(got), path, ""), "; nearest")
							if !strings.HasPrefix(absent[action], without) {
								t.Errorf("%s answers %s, what does not exist %s", of(path), without, absent[action])
							}
							batch := c.portal(`{"action":"batch","operations":[` + of(path) + `]}`)
							discreet(t, batch, path)
							if results := elements([]byte(only(t, batch).text)); string(part(results[0], "isError")) != "true" {
								t.Errorf("in a batch %s is in reach: %s", of(path), batch.raw)
							}
						}
					}
				}
				got := c.portal(`{"action":"call","type":"tool","path":"renamed","args":{"path":"<a>","f":1.0}}`)
				if string(part(part(got.Result, "structuredContent"), "heard")) != `{"path":"<a>","f":1.0}` {
					t.Errorf("the tool inside answers %s", got.raw)
				}
				info := only(t, c.portal(`{"action":"info","type":"tool","path":"renamed"}`))
				if partText([]byte(info.text), "name") != "renamed" || string(part([]byte(info.text), "unknown")) != "1e400" {
					t.Errorf("the tool inside is %s", info.text)
				}
			}
			for _, call := range slices.Concat(inner.got("tools/call"), outer.got("tools/call")) {
				if partText(call.Params, "name") != "open" || partText(part(call.Params, "arguments"), "path") != "<a>" {
					t.Errorf("a server was reached: %s", call.raw)
				}
			}
			for _, s := range []*script{inner, outer} {
				for _, method := range []string{"prompts/get", "resources/read"} {
					if got := s.got(method); len(got) > 0 {
						t.Errorf("%s was reached: %s", s.settings.Name, got[0].raw)
					}
				}
			}
		})
	}
}

// The tool is there where the configuration says so, under the name that it says,
// and a reload is enough.
func TestTheProxyToolIsWhereItIsConfigured(t *testing.T) {
	s := shop(t, "shop", "hat")
	off, named := everything("off", view.ExposureRetrieve), everything("named", view.ExposureDirect)
	named.ProxyTool = "portal"
	config := configOf(t, []*script{s}, off, named)
	p, url := openViews(t, "", config)
	for _, name := range []string{"default", "off"} {
		for _, modern := range []bool{false, true} {
			c := viewClient(t, p, url, name, modern)
			if got := c.listed(); slices.Contains(got, "proxy") || slices.Contains(got, "portal") {
				t.Errorf("view %s lists %v", name, got)
			}
			for _, called := range []string{"proxy", "portal"} {
				if got := c.call("tools/call", toolCall(called, `{"action":"list","type":"tool"}`)); !failed(got) {
					t.Errorf("%s in view %s answers %s", called, name, got.raw)
				}
			}
		}
	}
	c := viewClient(t, p, url, "named", false)
	if got := c.listed(); !slices.Contains(got, "portal") || slices.Contains(got, "proxy") {
		t.Errorf("view named lists %v", got)
	}
	if got := c.call("tools/call", toolCall("portal", `{"action":"list","type":"tool"}`)); !strings.Contains(only(t, got).text, `"shop_hat"`) {
		t.Errorf("portal answers %s", got.raw)
	}
	if got := c.call("tools/call", toolCall("proxy", `{"action":"list","type":"tool"}`)); !failed(got) {
		t.Errorf("a proxy tool with another name is called by proxy, too: %s", got.raw)
	}

	c = viewClient(t, p, url, "off", false)
	c.listed()
	for _, name := range []string{"proxy", ""} {
		c.clear()
		off.ProxyTool = name
		reload(t, p, edited(config, off, named))
		c.hears("notifications/tools/list_changed", nil)
		if got := slices.Contains(c.listed(), "proxy"); got != (name != "") {
			t.Errorf("with proxy_tool %q it is listed: %v", name, got)
		}
		if got := c.portal(`{"action":"list","type":"tool"}`); failed(got) != (name == "") {
			t.Errorf("with proxy_tool %q it answers %s", name, got.raw)
		}
	}
}

// The gate holds for the proxy tool and the operations of its batches.
func TestTheProxyToolIsNoWayAroundTheGate(t *testing.T) {
	s := shop(t, "shop", "hat", "coat")
	config := configOf(t, []*script{s})
	config.ProxyTool, config.Gating = "proxy", &view.Gating{MaxTools: 5, MaxTokens: 5000}
	p, url, _ := openPortal(t, config, 2)
	for _, k := range kinds[:2] {
		c, other := newClient(t, p, url, k, `{}`, reply), newClient(t, p, url, kind{}, `{}`, reply)
		const buy, want = `{"action":"call","type":"tool","path":"shop_hat","args":{"size":1}}`, "Tool shop_hat not provisioned. Use provision_tools first."
		batch := `{"action":"batch","operations":[` + buy + `]}`
		refused := func(c *rawClient, when string) {
			t.Helper()
			for _, arguments := range []string{buy, batch} {
				got := c.portal(arguments)
				if !strings.Contains(got.raw, want) || strings.Contains(got.raw, "structuredContent") || arguments == buy && !failed(got) {
					t.Errorf("%s, %s %s answers %s", k, when, arguments, got.raw)
				}
			}
		}
		refused(c, "before")
		if n := len(elements([]byte(only(t, c.portal(`{"action":"list","type":"tool"}`)).text))); n != 2 {
			t.Errorf("%d tools are listed, want all: looking is free", n)
		}
		if got := c.call("tools/call", toolCall("provision_tools", `{"tool_ids":["shop_hat"]}`)); failed(got) {
			t.Fatalf("provision_tools answers %s", got.raw)
		}
		for _, arguments := range []string{buy, batch} {
			if got := c.portal(arguments); failed(got) || strings.Contains(got.raw, "not provisioned") {
				t.Errorf("%s, provisioned: %s answers %s", k, arguments, got.raw)
			}
		}
		refused(other, "in another session")
		c.call("tools/call", toolCall("unprovision_tools", `{"tool_ids":["shop_hat"]}`))
		refused(c, "after")
	}
}

// What a filter leaves out takes no place in the answer to its query, however
// much of it fits better.
func TestFiltersOfTheProxyToolChooseBeforeTheQueryCuts(t *testing.T) {
	var hats []string
	for i := range 120 {
		hats = append(hats, fmt.Sprintf("hat_%d", i))
	}
	many, few := shop(t, "many", hats...), newScript(t, "few", false, false)
	few.list("tools", `{"name":"look","description":"Looks at whatever there is, and at the far end of the shop at one hat, too","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
	config := configOf(t, []*script{many, few})
	config.ProxyTool = "proxy"
	p, url, _ := openPortal(t, config, 121)
	c := newClient(t, p, url, kind{}, `{}`, reply)
	for _, filter := range []string{
		`{"query":"hat","server":"few"}`, `{"query":"hat","prefix":"few_"}`, `{"query":"hat","tags":["read-only"]}`, `{"tags":["read-only"]}`, `{"prefix":"few_"}`,
	} {
		got := only(t, c.portal(`{"action":"list","type":"tool","filter":`+filter+`}`), "totalCount", "1")
		if defs := elements([]byte(got.text)); len(defs) != 1 || partText(defs[0], "name") != "few_look" {
			t.Errorf("filter %s lists %.300s", filter, got.text)
		}
	}
}

// Clients of the extension may look for the name that its own servers give the tool.
func TestTheProxyToolUnderTheNameOfTheExtension(t *testing.T) {
	v := everything("v", view.ExposureRetrieve)
	v.ProxyTool = "mcp:proxy"
	p, url := openViews(t, "", configOf(t, []*script{shop(t, "shop", "hat")}, v))
	c := viewClient(t, p, url, "v", false)
	if names := c.listed(); !slices.Contains(names, "mcp:proxy") {
		t.Fatalf("listed are %v", names)
	}
	got := c.ask("tools/call", toolCall("mcp:proxy", `{"action":"call","type":"tool","path":"shop.hat","args":{"size":3}}`))
	if string(part(part(got.Result, "structuredContent"), "args")) != `{"size":3}` {
		t.Errorf("it answers %s", got.raw)
	}
}
