package proxy_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
)

// openScripts runs a proxy in front of scripts and waits until it knows what
// they list.
func openScripts(t testing.TB, pinned []string, scripts ...*script) (*proxy.Proxy, string) {
	t.Helper()
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, Pinned: pinned}
	for _, s := range scripts {
		s.settings.ConnectTimeout = cmp.Or(s.settings.ConnectTimeout, await.Bound) // the machine may be busy
		config.Servers = append(config.Servers, s.settings)
	}
	return ready(t, changing(config))
}

// meeting is a client of one era that meets a server of one era.
type meeting struct {
	*rawClient
	up, two *script // two has other tools and is of the same era
}

// replies are what the client of a meeting says to each question.
var replies = map[string]string{
	"elicitation/create":     `"result":{"action":"accept","content":{"name":"\u003cé","n":12345678901234567890},"unknown":[1.0]}`,
	"sampling/createMessage": `"result":{"role":"assistant","content":{"type":"text","text":"<sampled>"},"model":"m","stopReason":"endTurn","unknown":1e400}`,
	"roots/list":             `"result":{"roots":[{"uri":"file:///home/r\u00f6ot","name":"r","unknown":{}}],"_meta":{"a/b":1.0}}`,
}

func reply(method string, _ json.RawMessage) string { return replies[method] }

// The questions of the scripts.
var (
	form   = question{"elicitation/create", `{"mode":"form","message":"\u003cWho?>","requestedSchema":{"type":"object","properties":{"name":{"type":"string","x":1e400}}},"unknown":{"big":12345678901234567890}}`}
	visit  = question{"elicitation/create", `{"mode":"url","message":"Log in","url":"http://127.0.0.1/x","elicitationId":"e-1","unknown":null}`}
	sample = question{"sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"hi","x":1.0}}],"maxTokens":9007199254740993,"unknown":[ ]}`}
	roots  = question{"roots/list", `{"unknown":1.50}`}
)

var questions = []struct {
	name  string
	asked []question
}{
	{"form", []question{form}}, {"url", []question{visit}}, {"sample", []question{sample}}, {"roots", []question{roots}},
	{"several", []question{form, sample, roots}},
}

// everythingScript has a tool, a prompt and a resource for each question, and
// one of each thing beside.
func everythingScript(t testing.TB, k kind) *script {
	s := newScript(t, "one", k.modern, k.stdio)
	complete := ""
	if k.modern {
		complete, s.hints = `"resultType":"complete",`, `"resultType":"complete","ttlMs":60000,"cacheScope":"public",`
	}
	var tools, prompts, resources []string
	for _, q := range questions {
		tools = append(tools, `{"name":"`+q.name+`","description":"Asks the client: `+q.name+`","inputSchema":{"type":"object"}}`)
		prompts = append(prompts, `{"name":"`+q.name+`","description":"A prompt that asks"}`)
		resources = append(resources, `{"uri":"ask://`+q.name+`","name":"`+q.name+`"}`)
		for key, result := range map[string]string{
			"tools/call " + q.name:           `"content":[],"structuredContent":{"answers":[%s]}`,
			"prompts/get " + q.name:          `"messages":[],"answers":[%s]`,
			"resources/read ask://" + q.name: `"contents":[],"answers":[%s]`,
		} {
			s.on(key, func(r *request) {
				if answers, ok := r.need(1, q.asked...); ok {
					r.result(`{` + complete + fmt.Sprintf(result, joined(answers)) + `}`)
				}
			})
		}
	}
	for _, name := range []string{"rounds", "params", "progress", "log", "hang", "traced", "needs_url"} {
		tools = append(tools, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	tools = append(tools, `{"name":"mirrored","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`)
	s.on("tools/call mirrored", func(r *request) { r.result(`{` + complete + `"content":[]}`) })
	s.on("tools/call rounds", func(r *request) {
		first, ok := r.need(1, form)
		if !ok {
			return
		}
		second, ok := r.need(2, sample, roots)
		if !ok {
			return
		}
		if s.modern {
			first = nil // it was in the state
		}
		r.result(`{` + complete + `"content":[],"answers":[` + joined(append(first, second...)) + `]}`)
	})
	s.on("tools/call params", func(r *request) {
		r.result(`{` + complete + `"content":[],"params":` + string(r.Params) + `}`)
	})
	s.on("tools/call progress", func(r *request) {
		token := part(part(r.Params, "_meta"), "progressToken")
		for i := range 3 {
			r.notify("notifications/progress", fmt.Sprintf(`{"unknown":1e400,"progressToken":%s,"progress":%d.0,"total":9007199254740993,"message":"\u003c"}`, token, i))
		}
		r.result(`{` + complete + `"content":[]}`)
	})
	s.on("tools/call log", func(r *request) {
		for _, level := range []string{"debug", "info", "warning", "error"} {
			r.notify("notifications/message", `{"unknown":1e400,"level":"`+level+`","logger":"\u003c","data":{"big":12345678901234567890}}`)
		}
		r.result(`{` + complete + `"content":[]}`)
	})
	s.on("tools/call hang", func(r *request) { <-r.ended })
	s.on("tools/call traced", func(r *request) {
		var same []string
		for _, m := range without(members(part(r.Params, "_meta")), "progressToken") {
			if !strings.HasPrefix(m.key, "io.modelcontextprotocol/") {
				same = append(same, `"`+m.key+`":`+m.value)
			}
		}
		meta := `"_meta":{` + strings.Join(same, ",") + `}`
		if token := part(part(r.Params, "_meta"), "progressToken"); token != nil {
			r.notify("notifications/progress", `{`+meta+`,"progressToken":`+string(token)+`,"progress":1}`)
		}
		r.notify("notifications/message", `{"level":"error","data":1,`+meta+`}`)
		r.result(`{` + complete + `"content":[],` + meta + `}`)
	})
	s.list("tools", tools...)
	s.list("prompts", append(prompts, `{"name":"greet","description":"A friendly greeting","arguments":[{"name":"who","required":true}]}`)...)
	s.list("resources", append(resources, `{"uri":"file:///notes.txt","name":"Notes of the meeting","mimeType":"text/plain"}`)...)
	s.list("resourceTemplates", `{"uriTemplate":"db://{table}/{id}","name":"Rows of a database"}`)
	s.on("prompts/get greet", func(r *request) {
		r.result(`{` + complete + `"messages":[{"role":"user","content":{"type":"text","text":"hello"}}],"params":` + string(r.Params) + `}`)
	})
	read := func(r *request) {
		uri, _ := json.Marshal(r.about())
		r.result(`{` + complete + `"contents":[{"uri":` + string(uri) + `,"text":"<it>","unknown":1e400}]}`)
	}
	s.on("resources/read", read)
	s.on("resources/read db://none/1", func(r *request) {
		if s.modern {
			r.fail(`{"unknown":1e400,"code":-32602,"message":"not there","data":{"uri":"db://none/1"}}`)
			return
		}
		r.fail(`{"unknown":1e400,"code":-32002,"message":"not there","data":{"uri":"db://none/1"}}`)
	})
	s.on("completion/complete", func(r *request) {
		r.result(`{` + complete + `"completion":{"values":["a","b"],"total":9007199254740993},"params":` + string(r.Params) + `}`)
	})
	return s
}

func joined(raw []json.RawMessage) string {
	all := make([]string, len(raw))
	for i, one := range raw {
		all[i] = string(one)
	}
	return strings.Join(all, ",")
}

// replied are the result objects that a client of a meeting answers with.
func replied(asked ...question) string {
	var all []json.RawMessage
	for _, q := range asked {
		all = append(all, json.RawMessage(strings.TrimPrefix(replies[q.method], `"result":`)))
	}
	return joined(all)
}

// forEachMeeting runs a test for meetings of clients and servers in which any three of their
// eras and transports are combined in every way.
func forEachMeeting(t *testing.T, test func(t *testing.T, client, server kind)) {
	for _, server := range kinds {
		for _, client := range kinds {
			odd := client.modern != client.stdio != (server.modern != server.stdio)
			if odd {
				continue
			}
			t.Run(client.String()+" client, "+server.String()+" server", func(t *testing.T) {
				t.Parallel()
				test(t, client, server)
			})
		}
	}
}

func TestTheErasMeet(t *testing.T) {
	forEachMeeting(t, func(t *testing.T, client, server kind) {
		m := &meeting{up: everythingScript(t, server)}
		m.two = newScript(t, "two", server.modern, server.stdio)
		m.two.hints = m.up.hints
		m.two.list("tools", `{"name":"form","inputSchema":{"type":"object"}}`)
		m.two.on("tools/call form", m.up.handlers["tools/call form"])
		m.two.capabilities = `{"tools":{}}`
		p, url := openScripts(t, []string{"one.form"}, m.up, m.two)
		m.rawClient = newClient(t, p, url, client, can, reply)
		for _, test := range []struct {
			name string
			run  func(*testing.T, *meeting)
		}{
			{"the server is discovered", testDiscovery},
			{"lists", testLists},
			{"calls", testCalls},
			{"headers that mirror arguments", testMirrored},
			{"IDs", testIDs},
			{"progress", testProgress},
			{"log messages have their level", testLog},
			{"questions reach the client", testQuestions},
			{"questions of a tool that call_tool calls", testQuestionsByCallTool},
			{"several rounds", testRounds},
			{"request states are of use for one thing", testStates},
			{"the error that wants a URL opened", testNeedsURL},
			{"a URL that was dealt with", testURLDealtWith},
			{"trace context", testTraceContext},
			{"found and used through the meta-tools", testMetaTools},
			{"cancellation", testCancellation},
			{"unknown resources", testUnknownResource},
			{"list_changed of three kinds", testListChanged},
			{"subscriptions to resources", testSubscriptions},
		} {
			t.Run(test.name, func(t *testing.T) {
				m.rawClient.t = t
				m.clear()
				test.run(t, m)
			})
		}
	})
}

func testDiscovery(t *testing.T, m *meeting) {
	m.capabilities = `{}` // the library reads this request, and no number of can's
	defer func() { m.capabilities = can }()
	got := m.ask("server/discover", `{}`)
	if !m.modern {
		if string(part(got.Error, "code")) != "-32601" {
			t.Errorf("a legacy client gets %s", got.raw)
		}
		return
	}
	for key, want := range map[string]string{
		"resultType":   `"complete"`,
		"capabilities": `{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`,
	} {
		if value := compactSorted(t, part(got.Result, key)); value != want {
			t.Errorf("%s = %s, want %s", key, value, want)
		}
	}
	if versions := string(part(got.Result, "supportedVersions")); !strings.Contains(versions, `"2026-07-28"`) {
		t.Errorf("supportedVersions = %s", versions)
	}
	for _, key := range []string{"ttlMs", "cacheScope"} {
		if part(got.Result, key) == nil {
			t.Errorf("%s is missing in %s", key, got.Result)
		}
	}
}

// compactSorted is JSON with sorted keys.
func compactSorted(t *testing.T, raw []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	out := must.Get(json.Marshal(value))(t)
	return string(out)
}

func testLists(t *testing.T, m *meeting) {
	for method, key := range map[string]string{"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
		got := m.ask(method, `{}`)
		want := strings.Join(m.up.lists[key], ",")
		if key == "prompts" {
			want = strings.ReplaceAll(want, `"name":"`, `"name":"one_`)
			want = strings.Replace(want, `{"name":"one_who"`, `{"name":"who"`, 1)
		}
		if list := string(part(got.Result, key)); list != `[`+want+`]` {
			t.Errorf("%s = %s\nwant %s", method, list, want)
		}
		m.wantHints(t, got, m.up.modern)
	}
	tools := m.ask("tools/list", `{}`)
	if ttl := string(part(tools.Result, "ttlMs")); m.modern && ttl != "0" { // some clients are listed portable schemas
		t.Errorf("tools/list, which depends on the client's name, may be kept for %q ms", ttl)
	}
	if again := m.ask("tools/list", `{}`); string(again.Result) != string(tools.Result) {
		t.Errorf("the second tools/list = %s\nthe first %s", again.Result, tools.Result)
	}
	read := m.ask("resources/read", `{"uri":"file:///notes.txt"}`)
	if m.modern && (part(read.Result, "ttlMs") == nil || part(read.Result, "cacheScope") == nil) {
		t.Errorf("resources/read says nothing of keeping it: %s", read.Result)
	}
}

// wantHints asks a list for what the 2026-07-28 era wants of it, if the client
// is of that era: what the server said, else short and private.
func (m *meeting) wantHints(t *testing.T, got message, said bool) {
	t.Helper()
	var want []member
	if m.modern {
		want = []member{{"cacheScope", `"private"`}, {"resultType", `"complete"`}, {"ttlMs", "5000"}}
		if said {
			want = []member{{"cacheScope", `"public"`}, {"resultType", `"complete"`}, {"ttlMs", "60000"}}
		}
	}
	hints := without(members(got.Result), "tools", "prompts", "resources", "resourceTemplates")
	slices.SortFunc(hints, func(a, b member) int { return strings.Compare(a.key, b.key) })
	if !slices.Equal(hints, want) {
		t.Errorf("a list has beside it %v, want %v", hints, want)
	}
}

func testCalls(t *testing.T, m *meeting) {
	for _, test := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"one_params","arguments":{"a":12345678901234567890}}`, `"arguments":{"a":12345678901234567890}`},
		{"prompts/get", `{"name":"one_greet","arguments":{"who":"<me>"}}`, `"arguments":{"who":"<me>"}`},
		{"resources/read", `{"uri":"file:///notes.txt"}`, `"contents":[{"uri":"file:///notes.txt","text":"<it>","unknown":1e400}]`},
		{"resources/read", `{"uri":"db://people/7"}`, `"contents":[{"uri":"db://people/7","text":"<it>","unknown":1e400}]`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"one_greet","x":1},"argument":{"name":"who","value":"b"}}`, `"ref":{"type":"ref/prompt","name":"greet","x":1},"argument":{"name":"who","value":"b"}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"db://{table}/{id}"},"argument":{"name":"id","value":"1"}}`, `"ref":{"type":"ref/resource","uri":"db://{table}/{id}"}`},
	} {
		got := m.ask(test.method, test.params)
		if !strings.Contains(string(got.Result), test.want) {
			t.Errorf("%s %s = %s\nwant in it %s", test.method, test.params, got.raw, test.want)
		}
		kind := part(got.Result, "resultType")
		if m.modern && string(kind) != `"complete"` || !m.modern && !m.up.modern && kind != nil {
			t.Errorf("%s: resultType is %s", test.method, kind)
		}
	}
	for _, call := range m.up.got("tools/call") {
		version := partText(part(call.Params, "_meta"), "io.modelcontextprotocol/protocolVersion")
		if want := map[bool]string{true: "2026-07-28"}[m.up.modern]; version != want {
			t.Errorf("the server is told protocol version %q, want %q", version, want)
		}
		if m.up.modern && call.header != nil {
			if got := call.header.Get("Mcp-Method") + " " + call.header.Get("Mcp-Name"); got != "tools/call params" {
				t.Errorf("standard headers are %q", got)
			}
		}
	}
}

func testMirrored(t *testing.T, m *meeting) {
	const call = `{"name":"one_mirrored","arguments":{"region":"caf\u00e9"}}`
	m.header = [2]string{"Mcp-Param-Region", headerValue("café")}
	defer func() { m.header = [2]string{} }()
	if got := m.ask("tools/call", call); got.Result == nil {
		t.Fatalf("answer = %s", got.raw)
	}
	calls := m.up.got("tools/call")
	header := calls[len(calls)-1].header
	if want := map[bool]string{true: headerValue("café")}[m.up.modern]; header != nil && header.Get("Mcp-Param-Region") != want {
		t.Errorf("the server got the header %q, want %q", header.Get("Mcp-Param-Region"), want)
	}
	if !m.modern || m.http == nil {
		return // it sends no such header, and nobody looks for one
	}
	m.header[1] = "elsewhere"
	if got := m.ask("tools/call", call); string(part(got.Error, "code")) != "-32020" {
		t.Errorf("with another value in the header: %s", got.raw)
	}
}

func testIDs(t *testing.T, m *meeting) {
	for _, id := range []string{`9007199254740993`, `-1`, `0`, `""`, `"\u003c\ud83d\ude00"`, `"1"`} {
		for _, method := range []string{"tools/list", "tools/call", "prompts/get"} {
			got := <-m.beginAs(id, method, `{"name":"one_greet"}`).answer
			if got.raw == "" {
				t.Errorf("no answer has the ID %s of a %s", id, method)
			}
		}
	}
}

func testProgress(t *testing.T, m *meeting) {
	for _, token := range []string{`"t\u003c1"`, `7`, `9007199254740993`} {
		m.clear()
		m.ask("tools/call", `{"name":"one_progress","_meta":{"progressToken":`+token+`}}`)
		got := m.got("notifications/progress")
		if len(got) != 3 {
			t.Fatalf("%d progress notifications with token %s, want 3", len(got), token)
		}
		for i, one := range got {
			want := fmt.Sprintf(`{"unknown":1e400,"progressToken":%s,"progress":%d.0,"total":9007199254740993,"message":"\u003c"}`, token, i)
			if string(one.Params) != want {
				t.Errorf("progress %d = %s, want %s", i, one.Params, want)
			}
		}
	}
}

func testLog(t *testing.T, m *meeting) {
	levels := func() (all []string) {
		m.clear()
		m.ask("tools/call", `{"name":"one_log"}`)
		for _, one := range m.got("notifications/message") {
			all = append(all, partText(one.Params, "level"))
			want := `{"unknown":1e400,"level":"` + all[len(all)-1] + `","logger":"\u003c","data":{"big":12345678901234567890}}`
			if string(one.Params) != want {
				t.Errorf("log message = %s, want %s", one.Params, want)
			}
		}
		return all
	}
	if got := levels(); m.modern && got != nil {
		t.Errorf("a client that named no level got %v", got)
	}
	if m.modern {
		m.level = "warning"
		defer func() { m.level = "" }()
	} else if got := m.ask("logging/setLevel", `{"level":"warning"}`); got.Result == nil {
		t.Fatalf("logging/setLevel = %s", got.raw)
	}
	if got := levels(); !slices.Equal(got, []string{"warning", "error"}) {
		t.Errorf("a client that wants warnings got %v", got)
	}
	if m.up.modern {
		calls := m.up.got("tools/call")
		if got := partText(part(calls[len(calls)-1].Params, "_meta"), "io.modelcontextprotocol/logLevel"); got != "warning" {
			t.Errorf("the server was told level %q with the call", got)
		}
		return
	}
	eventually(t, func() bool {
		return slices.ContainsFunc(m.up.got("logging/setLevel"), func(m message) bool { return partText(m.Params, "level") == "warning" })
	})
}

func testQuestions(t *testing.T, m *meeting) {
	for _, q := range questions {
		for _, way := range []struct{ method, params string }{
			{"tools/call", `{"name":"one_` + q.name + `"}`},
			{"prompts/get", `{"name":"one_` + q.name + `"}`},
			{"resources/read", `{"uri":"ask://` + q.name + `"}`},
		} {
			m.clear()
			got := m.call(way.method, way.params)
			if want := `"answers":[` + replied(q.asked...) + `]`; !strings.Contains(string(got.Result), want) {
				t.Errorf("%s %s = %s\nwant in it %s", way.method, way.params, got.raw, want)
			}
			m.wantAsked(t, q.asked)
		}
	}
}

func (m *meeting) wantAsked(t *testing.T, asked []question) {
	t.Helper()
	for _, one := range asked {
		if heard := m.got(one.method); len(heard) != 1 || string(heard[0].Params) != one.params {
			t.Errorf("the client was asked %v\nwant %s %s", heard, one.method, one.params)
		}
	}
}

func testQuestionsByCallTool(t *testing.T, m *meeting) {
	for _, q := range questions {
		m.clear()
		got := m.call("tools/call", `{"name":"call_tool","arguments":{"name":"one.`+q.name+`","arguments":{}}}`)
		if want := `"answers":[` + replied(q.asked...) + `]`; !strings.Contains(string(got.Result), want) {
			t.Errorf("call_tool %s = %s\nwant in it %s", q.name, got.raw, want)
		}
		m.wantAsked(t, q.asked)
	}
	// Several calls that ask, one after the other, since none says that it only reads.
	m.clear()
	got := m.call("tools/call", `{"name":"call_tool","arguments":{"calls":[{"name":"one_form"},{"name":"one.url"},{"name":"nobody"}]}}`)
	for _, want := range []string{`[1] one_form:`, `[2] one.url:`, `[3] nobody failed:`, `\"answers\":[`} {
		if !strings.Contains(string(got.Result), want) {
			t.Errorf("several calls that ask: %s\nwant in it %s", got.raw, want)
		}
	}
	if asked := m.got("elicitation/create"); len(asked) != 2 || string(asked[0].Params) != form.params || string(asked[1].Params) != visit.params {
		t.Errorf("the client was asked %v", asked)
	}
}

func testRounds(t *testing.T, m *meeting) {
	got := m.call("tools/call", `{"name":"one_rounds","arguments":{"kept":true}}`)
	want := replied(sample, roots)
	if !m.up.modern {
		want = replied(form, sample, roots)
	}
	if !strings.Contains(string(got.Result), `"answers":[`+want+`]`) {
		t.Errorf("answer = %s\nwant %s", got.raw, want)
	}
	for _, call := range m.up.got("tools/call") {
		if call.Method == "tools/call" && partText(call.Params, "name") == "rounds" && string(part(call.Params, "arguments")) != `{"kept":true}` {
			t.Errorf("the server was called with %s", call.Params)
		}
	}
}

func testStates(t *testing.T, m *meeting) {
	if !m.modern {
		return // it has no request states
	}
	const form = `{"name":"one_form"}`
	first := m.ask("tools/call", form)
	state := partText(first.Result, "requestState")
	if state == "" {
		t.Fatalf("there is no state in %s", first.raw)
	}
	decoded, _ := base64.RawURLEncoding.DecodeString(state)
	for _, words := range []string{state, string(decoded)} {
		if strings.Contains(words, "server's own") || strings.Contains(words, "round") {
			t.Errorf("the state shows what the server said: %s", words)
		}
	}
	repeated := func(params, state string) message {
		other := message{Result: first.Result}
		quoted, _ := json.Marshal(state)
		other.Result = json.RawMessage(strings.Replace(string(first.Result), string(part(first.Result, "requestState")), string(quoted), 1))
		return m.ask("tools/call", m.again(params, other))
	}
	forged := []byte(state)
	forged[len(forged)/2] ^= 1
	if forged[len(forged)/2] == '"' || forged[len(forged)/2] == '\\' {
		forged[len(forged)/2] = 'A'
	}
	before := len(m.up.got("tools/call")) + len(m.two.got("tools/call"))
	for what, test := range map[string]struct{ params, state string }{
		"with another tool":            {`{"name":"one_sample"}`, state},
		"with another server's tool":   {`{"name":"two_form"}`, state},
		"with one character changed":   {form, string(forged)},
		"cut short":                    {form, state[:len(state)-2]},
		"made up":                      {form, "made up"},
		"the server's own":             {form, secret + "1"},
		"through call_tool, elsewhere": {`{"name":"call_tool","arguments":{"name":"two.form","arguments":{}}}`, state},
	} {
		got := repeated(test.params, test.state)
		if code := string(part(got.Error, "code")); code != "-32602" {
			t.Errorf("%s: %s, want error -32602", what, got.raw)
		}
	}
	if after := len(m.up.got("tools/call")) + len(m.two.got("tools/call")); after != before {
		t.Errorf("%d calls with states that are not theirs have reached a server", after-before)
	}
	if got := repeated(form, state); got.Result == nil || strings.Contains(got.raw, "input_required") {
		t.Errorf("with its own tool: %s", got.raw)
	}
}

func testNeedsURL(t *testing.T, m *meeting) {
	if m.up.modern {
		return // the error is of revision 2025-11-25
	}
	const failure = `{"unknown":1e400,"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","elicitationId":"e-2","url":"http://127.0.0.1/y","message":"Log in","unknown":1.0}],"more":[]}}`
	calls := 0
	m.up.on("tools/call needs_url", func(r *request) {
		if calls++; calls == 1 {
			r.fail(failure)
			return
		}
		r.result(`{"content":[],"calls":` + fmt.Sprint(calls) + `}`)
	})
	got := m.ask("tools/call", `{"name":"one_needs_url"}`)
	if !m.modern {
		if string(got.Error) != failure {
			t.Errorf("error = %s\nwant %s", got.Error, failure)
		}
	} else {
		requests := members(part(got.Result, "inputRequests"))
		const want = `{"mode":"url","elicitationId":"e-2","url":"http://127.0.0.1/y","message":"Log in","unknown":1.0}`
		if len(requests) != 1 || string(part([]byte(requests[0].value), "params")) != want {
			t.Fatalf("answer = %s\nwant in it %s", got.raw, want)
		}
		if got = m.ask("tools/call", m.again(`{"name":"one_needs_url"}`, got)); string(part(got.Result, "calls")) != "2" {
			t.Errorf("the second call = %s", got.raw)
		}
	}
}

// Who was to open a URL learns that it was dealt with, in revision 2025-11-25.
func testURLDealtWith(t *testing.T, m *meeting) {
	if m.modern || m.up.modern {
		return
	}
	m.call("tools/call", `{"name":"one_url"}`) // asks for e-1; the test before was told of e-2
	for _, id := range []string{"e-1", "e-2"} {
		want := `{"elicitationId":"` + id + `","unknown":1.0}`
		m.up.tell(t, "notifications/elicitation/complete", want)
		m.hears("notifications/elicitation/complete", func(params json.RawMessage) bool { return string(params) == want })
	}
}

func testTraceContext(t *testing.T, m *meeting) {
	const context = `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"vendor=\u0061","baggage":"k=v,é=1","com.example/x":[1e400]`
	if m.modern {
		m.level = "error"
		defer func() { m.level = "" }()
	}
	for _, params := range []string{
		`{"name":"one_traced","_meta":{"progressToken":"p",` + context + `}}`,
		`{"_meta":{` + context + `,"progressToken":"p"},"name":"call_tool","arguments":{"name":"one.traced","arguments":{}}}`,
	} {
		m.clear()
		got := m.ask("tools/call", params)
		calls := m.up.got("tools/call")
		sent := foreign(calls[len(calls)-1].Params)
		if want := members([]byte(`{` + context + `}`)); !slices.Equal(sent, want) {
			t.Errorf("the server got %v\nwant %v", sent, want)
		}
		want := `{` + context + `}`
		progress, log := m.got("notifications/progress"), m.got("notifications/message")
		if len(progress) != 1 || len(log) != 1 {
			t.Fatalf("heard %v and %v for %s", progress, log, params)
		}
		for what, one := range map[string]json.RawMessage{"result": got.Result, "progress": progress[0].Params, "log message": log[0].Params} {
			if meta := string(part(one, "_meta")); meta != want {
				t.Errorf("_meta of the %s is %s\nwant %s", what, meta, want)
			}
		}
	}
}

func testMetaTools(t *testing.T, m *meeting) {
	for _, test := range []struct{ arguments, want string }{
		{`{"query":"a friendly greeting","kind":"prompt"}`, "one_greet"},
		{`{"query":"notes of the meeting","kind":"resource"}`, "file:///notes.txt"},
		{`{"query":"rows of a database","kind":"any"}`, "db://{table}/{id}"},
		{`{"query":"asks the client form"}`, "one_form"},
	} {
		got := m.ask("tools/call", `{"name":"retrieve_tools","arguments":`+test.arguments+`}`)
		if !strings.Contains(string(got.Result), test.want) {
			t.Errorf("retrieve_tools %s = %s\nwant in it %s", test.arguments, got.raw, test.want)
		}
	}
	for _, test := range []struct{ name, arguments, want string }{
		{"one_greet", `{"who":"me"}`, `"content":[{"type":"text","text":"hello"}]`},
		{"file:///notes.txt", `{}`, `"content":[{"type":"resource","resource":{"uri":"file:///notes.txt","text":"<it>","unknown":1e400}}]`},
		{"db://people/7", `{}`, `"uri":"db://people/7"`},
	} {
		got := m.ask("tools/call", `{"name":"call_tool","arguments":{"name":"`+test.name+`","arguments":`+test.arguments+`}}`)
		if !strings.Contains(string(got.Result), test.want) {
			t.Errorf("call_tool %s = %s\nwant in it %s", test.name, got.raw, test.want)
		}
	}
	// A prompt and a resource that ask, used as tools.
	for _, name := range []string{"one_form", "ask://form"} {
		m.clear()
		got := m.call("tools/call", `{"name":"call_tool","arguments":{"name":"`+name+`"}}`)
		if want := `"answers":[` + replied(form) + `]`; !strings.Contains(string(got.Result), want) {
			t.Errorf("call_tool %s = %s\nwant in it %s", name, got.raw, want)
		}
		m.wantAsked(t, []question{form})
	}
}

func testCancellation(t *testing.T, m *meeting) {
	ended := make(chan string, 1)
	begun := make(chan string, 1)
	m.up.on("tools/call hang", func(r *request) {
		begun <- string(r.ID)
		<-r.ended
		ended <- string(r.ID)
	})
	call := m.begin("tools/call", `{"name":"one_hang"}`)
	id := <-begun
	call.cancel()
	if got := <-ended; got != id {
		t.Errorf("request %s ended, want %s", got, id)
	}
	says := !m.modern || m.http == nil // else the client ends its request, without a reason
	told := func() bool {
		return slices.ContainsFunc(m.up.got("notifications/cancelled"), func(m message) bool {
			reason := text(part(m.Params, "reason"))
			if reason == "context canceled" || says && reason != "enough" {
				t.Errorf("the server is told the reason %q", reason)
			}
			return string(part(m.Params, "requestId")) == id
		})
	}
	if m.up.modern && m.up.settings.URL != "" { // the end of the request says it
		if told() {
			t.Error("a server of the 2026-07-28 era was sent a notification over HTTP")
		}
		return
	}
	eventually(t, told)
}

func testUnknownResource(t *testing.T, m *meeting) {
	got := m.ask("resources/read", `{"uri":"db://none/1"}`)
	code := "-32602"
	if !m.modern && !m.up.modern {
		code = "-32002"
	}
	if want := `{"unknown":1e400,"code":` + code + `,"message":"not there","data":{"uri":"db://none/1"}}`; string(got.Error) != want {
		t.Errorf("error = %s\nwant %s", got.Error, want)
	}
}

func testListChanged(t *testing.T, m *meeting) {
	listening := m.listen(`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`)
	m.up.list("tools", `{"name":"form","description":"Changed","inputSchema":{"type":"object"}}`) // it is pinned
	m.up.list("prompts", `{"name":"new"}`)
	m.up.list("resources", `{"uri":"file:///new","name":"n"}`)
	m.up.list("resourceTemplates", `{"uriTemplate":"db://{table}/{id}","name":"changed"}`)
	for _, list := range []string{"tools", "prompts", "resources"} {
		m.up.tell(t, "notifications/"+list+"/list_changed", `{}`)
	}
	for _, list := range []string{"tools", "prompts", "resources"} {
		m.hears("notifications/"+list+"/list_changed", listening)
	}
	for method, want := range map[string]string{
		"tools/list":               `{"name":"one_form","description":"Changed","inputSchema":{"type":"object"}}`,
		"prompts/list":             `"prompts":[{"name":"one_new"}]`,
		"resources/list":           `"resources":[{"uri":"file:///new","name":"n"}]`,
		"resources/templates/list": `"resourceTemplates":[{"uriTemplate":"db://{table}/{id}","name":"changed"}]`,
	} {
		if got := m.ask(method, `{}`); !strings.Contains(got.raw, want) {
			t.Errorf("%s = %s\nwant in it %s", method, got.raw, want)
		}
	}
}

// listen subscribes a 2026-07-28 client; it returns what its notifications have
// to satisfy. A legacy client needs none of it.
func (m *meeting) listen(filter string) func(json.RawMessage) bool {
	if !m.modern {
		return nil
	}
	listening := m.begin("subscriptions/listen", `{"notifications":`+filter+`}`)
	mine := func(params json.RawMessage) bool {
		return string(part(part(params, "_meta"), "io.modelcontextprotocol/subscriptionId")) == listening.id
	}
	m.hears("notifications/subscriptions/acknowledged", mine)
	m.t.(*testing.T).Cleanup(func() {
		listening.cancel()
		if m.http != nil {
			<-listening.answer
		}
	})
	return mine
}

func testSubscriptions(t *testing.T, m *meeting) {
	const uri = "db://people/7"
	subscribed := func() int { return len(m.up.got("resources/subscribe")) - len(m.up.got("resources/unsubscribe")) }
	if m.up.modern {
		subscribed = func() int {
			all := m.up.got("subscriptions/listen")
			return strings.Count(string(part(all[len(all)-1].Params, "notifications")), uri)
		}
	}
	var leave func()
	var listening func(json.RawMessage) bool
	t.Run("subscribed", func(t *testing.T) {
		m.rawClient.t = t
		if m.modern {
			listening = m.listen(`{"resourceSubscriptions":["` + uri + `"]}`)
		} else {
			if got := m.ask("resources/subscribe", `{"uri":"`+uri+`"}`); got.Result == nil {
				t.Fatalf("resources/subscribe = %s", got.raw)
			}
			leave = func() { m.ask("resources/unsubscribe", `{"uri":"`+uri+`"}`) }
		}
		eventually(t, func() bool { return subscribed() == 1 })
		m.up.tell(t, "notifications/resources/updated", `{"unknown":1e400,"uri":"`+uri+`","twice":1,"twice":2}`)
		got := m.hears("notifications/resources/updated", listening)
		want := `{"unknown":1e400,"uri":"` + uri + `","twice":1,"twice":2}`
		if m.modern {
			want = `{"_meta":` + string(part(got.Params, "_meta")) + `,` + want[1:]
		}
		if string(got.Params) != want {
			t.Errorf("updated = %s\nwant %s", got.Params, want)
		}
	})
	m.rawClient.t = t
	if leave != nil {
		leave()
	}
	eventually(t, func() bool { return subscribed() == 0 })
}
