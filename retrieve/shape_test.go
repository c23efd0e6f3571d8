package retrieve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolfinch/tool"
)

// shapedServers have tools whose arguments are named like parts of a call.
func shapedServers(t testing.TB) []Server {
	t.Helper()
	return append(fewServers(t, echo),
		Server{Name: "files", Tools: tool.Of([]*tool.Def{
			def(t, "files", `{"name":"read_file","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"lines":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}},"deep":{"type":"object","properties":{"n":{"type":"integer"}}},"follow":{"type":"boolean"}},"required":["path"],"additionalProperties":false}}`),
			def(t, "files", `{"name":"search","inputSchema":{"type":"object","properties":{"pattern":{"type":"string"}}}}`),
		}, echo)},
		Server{Name: "ops", Tools: tool.Of([]*tool.Def{
			def(t, "ops", `{"name":"run","inputSchema":{"type":"object","properties":{"input":{"type":"object"},"params":{"type":"string"},"name":{"type":"string"},"server":{"type":"string"}}}}`),
			def(t, "ops", `{"name":"search","inputSchema":{"type":"object"}}`),
			def(t, "ops", `{"name":"opsRestart","inputSchema":{"type":"object"}}`),
		}, echo)})
}

func shapedRetriever(t testing.TB) *Retriever {
	t.Helper()
	settings := Settings{}
	var r *Retriever
	settings.MetaTool = func(name string) *tool.Tool {
		for _, m := range append(r.MetaTools(), r.GateTools()...) {
			if m.Name == name {
				return m
			}
		}
		return nil
	}
	settings.Offer = Offer{Call: true}
	r = New(readBy(t, echo, shapedServers(t)), settings)
	return r
}

const (
	hello  = `github.search_code {"q":"x"}`
	create = `github.create_issue {"title":"t"}`
	empty  = `clock.now {}`
)

// What models send to call_tool, and the call that they mean. ERROR begins what is not certain.
var shapes = []struct{ name, arguments, want string }{
	{"as it should be", `{"name":"github_search_code","arguments":{"q":"x"}}`, hello},
	// Other names of the members.
	{"args", `{"name":"github_search_code","args":{"q":"x"}}`, hello},
	{"params", `{"name":"github_search_code","params":{"q":"x"}}`, hello},
	{"parameters", `{"name":"github_search_code","parameters":{"q":"x"}}`, hello},
	{"input", `{"name":"github_search_code","input":{"q":"x"}}`, hello},
	{"tool_input", `{"tool_name":"github_search_code","tool_input":{"q":"x"}}`, hello},
	{"tool_args", `{"tool":"github_search_code","tool_args":{"q":"x"}}`, hello},
	{"toolName, toolArguments", `{"toolName":"github_search_code","toolArguments":{"q":"x"}}`, hello},
	{"kwargs", `{"name":"github_search_code","kwargs":{"q":"x"}}`, hello},
	{"Name, Arguments", `{"Name":"github_search_code","Arguments":{"q":"x"}}`, hello},
	{"tool_name", `{"tool_name":"github_search_code","arguments":{"q":"x"}}`, hello},
	{"tool", `{"tool":"github_search_code","arguments":{"q":"x"}}`, hello},
	{"tool_id", `{"tool_id":"github_search_code","arguments":{"q":"x"}}`, hello},
	{"action, action_input", `{"action":"github_search_code","action_input":{"q":"x"}}`, hello},
	{"server and tool", `{"server":"github","tool":"search_code","arguments":{"q":"x"}}`, hello},
	{"server_name and tool_name", `{"server_name":"github","tool_name":"search_code","arguments":"{\"q\":\"x\"}"}`, hello},
	{"the server beside its tool's whole name", `{"server":"github","name":"github_search_code","arguments":{"q":"x"}}`, hello},
	{"both names", `{"name":"github_search_code","tool_name":"github_search_code","arguments":{"q":"x"}}`, hello},
	// Where the arguments stand.
	{"flat", `{"name":"github_search_code","q":"x"}`, hello},
	{"flat, empty arguments", `{"name":"github_search_code","arguments":{},"q":"x"}`, hello},
	{"flat, arguments null", `{"name":"github_search_code","arguments":null,"q":"x"}`, hello},
	{"some beside", `{"name":"github_create_issue","arguments":{"title":"t"},"state":"open"}`, `github.create_issue {"title":"t","state":"open"}`},
	{"twice the same", `{"name":"github_search_code","arguments":{"q":"x"},"q":"x"}`, hello},
	{"the whole call in arguments", `{"arguments":{"name":"github_search_code","arguments":{"q":"x"}}}`, hello},
	{"the whole call in arguments, and its name", `{"name":"github_search_code","arguments":{"name":"github_search_code","arguments":{"q":"x"}}}`, hello},
	{"arguments in arguments", `{"name":"github_search_code","arguments":{"arguments":{"q":"x"}}}`, hello},
	{"params in arguments", `{"name":"github_search_code","arguments":{"params":{"q":"x"}}}`, hello},
	{"flat in arguments", `{"arguments":{"name":"github_search_code","q":"x"}}`, hello},
	{"input of everything", `{"input":{"tool":"github_search_code","args":{"q":"x"}}}`, hello},
	{"OpenAI's form", `{"id":"call_1","type":"function","function":{"name":"github_search_code","arguments":"{\"q\":\"x\"}"}}`, hello},
	{"Anthropic's form", `{"type":"tool_use","id":"toolu_1","name":"github_search_code","input":{"q":"x"}}`, hello},
	{"JSON-RPC", `{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"github_search_code","arguments":{"q":"x"}}}`, hello},
	{"tool_call", `{"tool_call":{"name":"github_search_code","arguments":{"q":"x"}}}`, hello},
	{"the name as key", `{"github_search_code":{"q":"x"}}`, hello},
	{"call_tool through itself", `{"name":"call_tool","arguments":{"name":"github_search_code","arguments":{"q":"x"}}}`, hello},
	{"call_tool with a prefix through itself", `{"name":"mcp__toolfinch__call_tool","arguments":{"name":"github_search_code","arguments":{"q":"x"}}}`, hello},
	{"all as text", `"{\"name\":\"github_search_code\",\"arguments\":{\"q\":\"x\"}}"`, hello},
	{"all in a list", `[{"name":"github_search_code","arguments":{"q":"x"}}]`, hello},
	{"arguments in a list", `{"name":"github_search_code","arguments":[{"q":"x"}]}`, hello},
	{"arguments as text", `{"name":"github_search_code","arguments":"{\"q\":\"x\"}"}`, hello},
	{"arguments as text, twice", `{"name":"github_search_code","arguments":"\"{\\\"q\\\":\\\"x\\\"}\""}`, hello},
	{"arguments in a fence", "{\"name\":\"github_search_code\",\"arguments\":\"```json\\n{\\\"q\\\":\\\"x\\\"}\\n```\"}", hello},
	{"arguments as the only argument", `{"name":"github_search_code","arguments":"x"}`, hello},
	{"tool_calls", `{"tool_calls":[{"function":{"name":"clock_now","arguments":"{}"}}]}`, "[1] clock_now:\n" + empty},
	{"calls with other names", `{"calls":[{"tool":"clock_now","args":{}},{"tool_name":"github/search_code","q":"x"}]}`, "[1] clock_now:\n" + empty},
	// No arguments.
	{`""`, `{"name":"clock_now","arguments":""}`, empty},
	{"null", `{"name":"clock_now","arguments":null}`, empty},
	{"[]", `{"name":"clock_now","arguments":[]}`, empty},
	{`"null"`, `{"name":"clock_now","arguments":"null"}`, empty},
	{`"{}"`, `{"name":"clock_now","arguments":"{}"}`, empty},
	{"everything filled in", `{"name":"clock_now","arguments":{},"calls":[]}`, empty},
	// Values.
	{"a number as text", `{"name":"files_read_file","arguments":{"path":"a","lines":"5"}}`, `files.read_file {"path":"a","lines":5}`},
	{"a list as text", `{"name":"files_read_file","arguments":{"path":"a","tags":"[\"b\"]"}}`, `files.read_file {"path":"a","tags":["b"]}`},
	{"an object as text", `{"name":"files_read_file","arguments":{"path":"a","deep":"{\"n\":\"1\"}"}}`, `files.read_file {"path":"a","deep":{"n":1}}`},
	{"a boolean as text", `{"name":"files_read_file","arguments":{"path":"a","follow":"True"}}`, `files.read_file {"path":"a","follow":true}`},
	{"null for optional", `{"name":"files_read_file","arguments":{"path":"a","lines":null,"tags":null}}`, `files.read_file {"path":"a"}`},
	{"empty for optional", `{"name":"files_read_file","arguments":{"path":"a","lines":"","deep":""}}`, `files.read_file {"path":"a"}`},
	{"text as a number", `{"name":"github_create_issue","arguments":{"title":7}}`, `github.create_issue {"title":"7"}`},
	{"a choice in capitals", `{"name":"github_create_issue","arguments":{"title":"t","state":"Open"}}`, `github.create_issue {"title":"t","state":"open"}`},
	{"another case of an argument", `{"name":"files_read_file","arguments":{"Path":"a"}}`, `files.read_file {"path":"a"}`},
	{"flat, with text for numbers", `{"tool":"files/read_file","path":"a","lines":"5"}`, `files.read_file {"path":"a","lines":5}`},
	{"numbers in a list as text", `{"name":"files_read_file","arguments":{"path":"a","tags":[1,2]}}`, `files.read_file {"path":"a","tags":["1","2"]}`},
	{`"None" for optional`, `{"name":"files_read_file","arguments":{"path":"a","lines":"None"}}`, `files.read_file {"path":"a"}`},
	{"a number with spaces", `{"name":"files_read_file","arguments":{"path":"a","lines":" 5 "}}`, `files.read_file {"path":"a","lines":5}`},
	{"an argument in camel case", `{"name":"files_read_file","arguments":{"PATH":"a","Lines":5}}`, `files.read_file {"path":"a","lines":5}`},
	{"an argument of a list in a fence", "{\"name\":\"files_read_file\",\"arguments\":{\"path\":\"a\",\"tags\":\"```json\\n[\\\"b\\\"]\\n```\"}}", `files.read_file {"path":"a","tags":["b"]}`},
	{"too large a number for an integer", `{"name":"files_read_file","arguments":{"path":"a","lines":"1.5"}}`, "ERROR the arguments do not fit"},
	{"a list without brackets", `{"name":"files_read_file","arguments":{"path":"a","tags":"b"}}`, "ERROR the arguments do not fit"},
	// Names.
	{"server/tool", `{"name":"github/search_code","arguments":{"q":"x"}}`, hello},
	{"server:tool", `{"name":"github:search_code","arguments":{"q":"x"}}`, hello},
	{"server.tool", `{"name":"github.search_code","arguments":{"q":"x"}}`, hello},
	{"server__tool", `{"name":"github__search_code","arguments":{"q":"x"}}`, hello},
	{"server::tool", `{"name":"github::search_code","arguments":{"q":"x"}}`, hello},
	{"mcp__server__tool", `{"name":"mcp__github__search_code","arguments":{"q":"x"}}`, hello},
	{"mcp_server_tool", `{"name":"mcp_github_search_code","arguments":{"q":"x"}}`, hello},
	{"mcp__toolfinch__server_tool", `{"name":"mcp__toolfinch__github_search_code","arguments":{"q":"x"}}`, hello},
	{"mcp__other__server_tool", `{"name":"mcp__proxy__github_search_code","arguments":{"q":"x"}}`, hello},
	{"toolfinch.server_tool", `{"name":"toolfinch.github_search_code","arguments":{"q":"x"}}`, hello},
	{"toolfinch_server_tool", `{"name":"toolfinch_github_search_code","arguments":{"q":"x"}}`, hello},
	{"functions.server_tool", `{"name":"functions.github_search_code","arguments":{"q":"x"}}`, hello},
	{"bare", `{"name":"search_code","arguments":{"q":"x"}}`, hello},
	{"bare, behind our prefix", `{"name":"mcp__toolfinch__search_code","arguments":{"q":"x"}}`, hello},
	{"another case", `{"name":"GitHub_Search_Code","arguments":{"q":"x"}}`, hello},
	{"camel case", `{"name":"githubSearchCode","arguments":{"q":"x"}}`, hello},
	{"- for _", `{"name":"github-search-code","arguments":{"q":"x"}}`, hello},
	{"functions/server_tool", `{"name":"functions/github_search_code","arguments":{"q":"x"}}`, hello},
	{"tools.server.tool", `{"name":"tools.github.search_code","arguments":{"q":"x"}}`, hello},
	{"default_api.server_tool", `{"name":"default_api.github_search_code","arguments":{"q":"x"}}`, hello},
	{"functions.mcp__toolfinch__server_tool", `{"name":"functions.mcp__toolfinch__github_search_code","arguments":{"q":"x"}}`, hello},
	{"mcp__toolfinch__server__tool", `{"name":"mcp__toolfinch__github__search_code","arguments":{"q":"x"}}`, hello},
	{"mcp.server.tool", `{"name":"mcp.github.search_code","arguments":{"q":"x"}}`, hello},
	{"server-tool in capitals", `{"name":"GITHUB-SEARCH-CODE","arguments":{"q":"x"}}`, hello},
	{"server tool, with a space", `{"name":"github search_code","arguments":{"q":"x"}}`, `ERROR unknown tool`},
	{"bare, another case", `{"name":"Search_Code","arguments":{"q":"x"}}`, hello},
	{"bare, in back-ticks", "{\"name\":\"`search_code`\",\"arguments\":{\"q\":\"x\"}}", hello},
	{"back-ticks", "{\"name\":\"`github_search_code`\",\"arguments\":{\"q\":\"x\"}}", hello},
	{"quotes", `{"name":"\"github_search_code\"","arguments":{"q":"x"}}`, hello},
	{"brackets", `{"name":"github_search_code()","arguments":{"q":"x"}}`, hello},
	{"spaces around", `{"name":" github_search_code\n","arguments":{"q":"x"}}`, hello},
	{"another meta-tool", `{"name":"retrieve_tools"}`, `ERROR unknown tool "retrieve_tools"; it is a tool of toolfinch itself: call it directly`},
	{"several, of itself", `{"name":"call_tool","arguments":{"calls":[{"name":"clock_now"}]}}`, "[1] clock_now:\n" + empty},
	// The schema wants the literal.
	{"a tool's own input", `{"name":"ops_run","arguments":{"input":{"a":1}}}`, `ops.run {"input":{"a":1}}`},
	{"a tool's own params, flat", `{"name":"ops_run","params":"a=1"}`, `ops.run {"params":"a=1"}`},
	{"a tool's own name", `{"tool":"ops_run","name":"bob"}`, `ops.run {"name":"bob"}`},
	{"a tool's own server", `{"name":"ops_run","server":"prod"}`, `ops.run {"server":"prod"}`},
	{"a name that looks doubled", `{"name":"ops_opsRestart"}`, `ops.opsRestart {}`},
	// What is not certain.
	{"a tool's own input, or its arguments", `{"name":"ops_run","input":{"name":"bob"}}`, `ERROR the call has two meanings: send {"name": "ops_run", "arguments": {"name":"bob"}} or {"name": "ops_run", "arguments": {"input":{"name":"bob"}}}`},
	{"a bare name of two", `{"name":"search"}`, "ERROR unknown tool \"search\"; nearest: files_search, ops_search"},
	{"another server's", `{"server":"slack","name":"create_issue","arguments":{"title":"t"}}`, `ERROR unknown tool "create_issue"; nearest: github_create_issue`},
	{"another server's, in one name", `{"name":"slack/create_issue","arguments":{"title":"t"}}`, `ERROR unknown tool "slack/create_issue"`},
	{"another server's, with a prefix", `{"name":"mcp__slack__create_issue","arguments":{"title":"t"}}`, `ERROR unknown tool "mcp__slack__create_issue"`},
	{"two tools", `{"name":"github_search_code","tool":"clock_now"}`, `ERROR unknown argument of github_search_code "tool"`},
	{"two values", `{"name":"github_search_code","arguments":{"q":"x"},"q":"y"}`, "ERROR q is given twice"},
	{"one of no argument", `{"name":"github_search_code","q":"x","reason":"y"}`, `ERROR unknown argument of github_search_code "reason"; there are q`},
	{"one of no argument beside", `{"name":"github_search_code","arguments":{"q":"x"},"reason":"y"}`, `ERROR unknown argument of github_search_code "reason"; there are q`},
	{"one or two values", `{"name":"files_read_file","arguments":{"path":"a","tags":"b, c"}}`, "ERROR the arguments do not fit files_read_file:\n- /tags:"},
	{"arguments that do not fit", `{"name":"files_read_file","args":{"lines":"many"}}`, "ERROR the arguments do not fit files_read_file:"},
	{"a list of several", `{"name":"files_read_file","arguments":["a","b"]}`, "ERROR"},
	{"no name", `{"arguments":{"q":"x"}}`, "ERROR name is missing"},
	{"the exact name of one server, and another server", `{"server":"slack","name":"github_search_code","arguments":{"q":"x"}}`, `ERROR unknown argument of github_search_code "server"`},
	{"a call of another tool inside", `{"name":"github_search_code","arguments":{"name":"clock_now","arguments":{"q":"x"}}}`, `github.search_code {"name":"clock_now","arguments":{"q":"x"}}`},
	{"too many members", `{"tool":"github_search_code","q":"x"` + manyMembers() + `}`, "ERROR"},
	{"a prompt's or nobody's name", `{"tool":"nobody","args":{}}`, `ERROR unknown tool "nobody"`},
	{"words", `{"name":"search code"}`, "ERROR unknown tool"},
}

// manyMembers returns more members than a call has.
func manyMembers() string {
	var all strings.Builder
	for i := range maxMembers {
		fmt.Fprintf(&all, `,"a%d":1`, i)
	}
	return all.String()
}

func TestCallToolUnderstandsWhatModelsSend(t *testing.T) {
	r := shapedRetriever(t)
	lost := 0
	for _, test := range shapes {
		result, err := r.CallTool(KindDestructive, "")(t.Context(), &tool.Call{Session: "s", Arguments: json.RawMessage(test.arguments)})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var said struct {
			Content []struct{ Text string }
			IsError bool
		}
		if err := json.Unmarshal(result, &said); err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, block := range said.Content {
			texts = append(texts, block.Text)
		}
		text := strings.Join(texts, "\n")
		if said.IsError {
			text = "ERROR " + text
		}
		refused := strings.HasPrefix(text, "ERROR")
		if refused != strings.HasPrefix(test.want, "ERROR") {
			lost++
		}
		if !strings.Contains(text, test.want) || refused != strings.HasPrefix(test.want, "ERROR") {
			t.Errorf("%s: %s\n got %s\nwant %s", test.name, test.arguments, text, test.want)
		}
	}
	t.Logf("%d of %d steps are lost", lost, len(shapes))
}

// What models send to the meta-tools that search.
func TestSearchesUnderstandWhatModelsSend(t *testing.T) {
	r := shapedRetriever(t)
	tools := map[string]tool.Handler{}
	for _, m := range append(r.MetaTools(), r.SearchTools("all", "", "")...) {
		tools[m.Name] = m.Handler
	}
	const found = "github_search_code"
	for _, test := range []struct{ name, arguments, want string }{
		{RetrieveTools, `{"query":"search code"}`, found},
		{RetrieveTools, `{"q":"search code"}`, found},
		{RetrieveTools, `{"search_query":"search code","max_results":"3"}`, found},
		{RetrieveTools, `{"task":"search code","top_k":3}`, found},
		{RetrieveTools, `{"Query":"search code"}`, found},
		{RetrieveTools, `{"input":"search code"}`, found},
		{RetrieveTools, `{"arguments":{"query":"search code"}}`, found},
		{RetrieveTools, `{"params":{"q":"search code"}}`, found},
		{RetrieveTools, `"{\"query\":\"search code\"}"`, found},
		{RetrieveTools, `{"queries":"search code"}`, found},
		{RetrieveTools, `{"queries":"[\"search code\"]","query":""}`, found},
		{RetrieveTools, `{"query":"search code","server":null,"limit":null,"queries":[]}`, found},
		{RetrieveTools, `{"query":"search code","reason":"why"}`, `ERROR unknown argument "reason"; retrieve_tools takes`},
		{RetrieveTools, `{"q":"search code","search":"time"}`, `ERROR`},
		{RetrieveTools, `{"query":"search code","queries":["time"]}`, `ERROR send either query or queries`},
		{"all_search_tools", `{"text":"search code"}`, found},
		{"all_describe_tool", `{"tool_name":"github/search_code"}`, found},
		{"all_describe_tool", `{"name":"search"}`, `ERROR unknown tool`},
		{"all_call_tool", `{"tool":"github/search_code","q":"x"}`, "github.search_code"},
	} {
		text, isError := ask(t, tools[test.name], test.arguments)
		if isError {
			text = "ERROR " + text
		}
		if !strings.Contains(text, test.want) || isError != strings.HasPrefix(test.want, "ERROR") {
			t.Errorf("%s %s: %s, want %s", test.name, test.arguments, text, test.want)
		}
	}
}

// What a client's tools/call means.
func TestMeantIsTheCallThatIsCertain(t *testing.T) {
	r := shapedRetriever(t)
	for _, test := range []struct{ name, arguments, want, with string }{
		{"github_search_code", `{"q":"x","other":1}`, "github_search_code", ``},
		{"files_read_file", `{"path":"a","lines":5}`, "files_read_file", ``},
		{"files_read_file", `{"path":"a","lines":"5"}`, "files_read_file", ``}, // the server's own matter
		{"files_read_file", `"{\"path\":\"a\"}"`, "files_read_file", `{"path":"a"}`},
		{"clock_now", `""`, "clock_now", `{}`},
		{"clock_now", `[]`, "clock_now", `{}`},
		{"calendar_add_event", `{"a":"5"}`, "calendar_add_event", ``},
		{"mcp__toolfinch__github_search_code", `{}`, "github_search_code", ``},
		{"github.search_code", `{}`, "github_search_code", ``},
		{"search_code", `{}`, "github_search_code", ``},
		{"GITHUB-SEARCH-CODE", `{}`, "github_search_code", ``},
		{"mcp__toolfinch__retrieve_tools", `{"query":"x"}`, "retrieve_tools", ``},
		{"call_tool", `{"name":"retrieve_tools","arguments":{"query":"x"}}`, "retrieve_tools", `{"query":"x"}`},
		{"call_tool", `{"name":"mcp__toolfinch__retrieve_tools","arguments":"{\"query\":\"x\"}"}`, "retrieve_tools", `{"query":"x"}`},
		{"call_tool", `{"name":"retrieve_tools","query":"x"}`, "retrieve_tools", `{"query":"x"}`},
		{"call_tool", `{"name":"retrieve_tools"}`, "call_tool", ``},
		{"call_tool", `{"name":"provision_tools","arguments":{"query":"x"}}`, "call_tool", ``}, // it changes something
		{"call_tool", `{"name":"github_search_code","arguments":{"q":"x"}}`, "call_tool", ``},
		{"execute_tool", `{"name":"retrieve_tools","arguments":{"query":"x"}}`, "execute_tool", ``},
		{"search", `{}`, "", ``},
		{"github_serch_code", `{}`, "", ``},
		{"slack/create_issue", `{}`, "", ``},
	} {
		call := &tool.Call{Name: test.name, Arguments: json.RawMessage(test.arguments)}
		listed, _ := r.catalog.Lookup(test.name)
		if listed == nil {
			listed = r.settings.MetaTool(test.name)
		}
		meant, inner, hint := r.Meant(listed, call)
		name, with := "", test.with
		if meant != nil {
			name = meant.Name
		}
		if with == "" {
			with = test.arguments
		}
		if name != test.want || string(inner.Arguments) != with || meant != nil && inner.Name != name || (hint == nil) != (inner == call) {
			t.Errorf("%s %s: %s %s, want %s %s", test.name, test.arguments, name, inner.Arguments, test.want, with)
		}
	}
}

func BenchmarkMeant(b *testing.B) {
	r := shapedRetriever(b)
	t, _ := r.catalog.Lookup("files_read_file")
	call := &tool.Call{Name: t.Name, Arguments: json.RawMessage(`{"path":"a","lines":5,"tags":["a","b"],"deep":{"n":1},"follow":true}`)}
	for b.Loop() {
		r.Meant(t, call)
	}
}

func TestAMendedCallShowsTheRightFormOnceASession(t *testing.T) {
	r := shapedRetriever(t)
	const form = `the right form is {"name": "github_search_code", "arguments": {"q":"x"}}`
	for i, test := range []struct {
		session, arguments string
		shown              bool
	}{
		{"a", `{"name":"github_search_code","arguments":{"q":"x"}}`, false},
		{"a", `{"name":"github_search_code","arguments":{"q":"x","other":1}}`, false},
		{"a", `{"tool":"github/search_code","q":"x"}`, true},
		{"a", `{"tool":"github/search_code","q":"x"}`, false},
		{"b", `{"name":"github_search_code","q":"x"}`, true},
		{"", `{"name":"github_search_code","q":"x"}`, true},
		{"", `{"name":"github_search_code","q":"x"}`, true}, // no session: each time
	} {
		result, err := r.CallTool(KindDestructive, "")(t.Context(), &tool.Call{Session: test.session, Arguments: json.RawMessage(test.arguments)})
		var text string
		for _, block := range blocksOf(result) {
			var b struct{ Text string }
			if err := json.Unmarshal(block, &b); err != nil {
				t.Fatal(err)
			}
			text += b.Text + "\n"
		}
		if shown := strings.Contains(text, form); err != nil || shown != test.shown {
			t.Errorf("%d: %s, error %v", i, text, err)
		}
	}
	asks := tool.Result(`{"resultType":"input_required","inputRequests":{}}`)
	if got := r.hinted(&tool.Call{}, asks, form); string(got) != string(asks) {
		t.Errorf("a question is changed: %s", got)
	}
	for i := range maxTold + 1 {
		r.catalog.told.first(fmt.Sprint(i), "form")
	}
	if n := len(r.catalog.told.seen); n > maxTold {
		t.Errorf("%d sessions are remembered", n)
	}
}

// A name that may be of a server that is not there, or of a held definition, means no other tool.
func TestSpellingsMeanNoOtherServersTool(t *testing.T) {
	servers := append(fewServers(t, echo), Server{Name: "evil", Tools: tool.Of([]*tool.Def{
		def(t, "evil", `{"name":"bank_pay"}`), def(t, "evil", `{"name":"call_tool"}`), def(t, "evil", `{"name":"wipe"}`), def(t, "evil", `{"name":"stay"}`),
	}, echo)})
	servers[0].Held = []Held{{Tool: &tool.Tool{Def: def(t, "github", `{"name":"wipe"}`)}, Why: "is new"}}
	catalog := readBy(t, echo, servers)
	for _, test := range []struct {
		name   string
		absent []Absent
		want   string
	}{
		{"bank_pay", nil, "evil_bank_pay"},
		{"bank_pay", []Absent{{Server: "bank", Prefix: "bank"}}, ""},
		{"Bank-Pay", []Absent{{Server: "bank", Prefix: "bank"}}, ""},
		{"mcp__bank__pay", []Absent{{Server: "bank"}}, ""},
		{"stay", []Absent{{Server: "bank", Starting: 1}}, ""}, // it may have it
		{"evil/stay", []Absent{{Server: "bank", Starting: 1}}, "evil_stay"},
		{"evil/stay", []Absent{{Server: "evil", Listed: true}}, "evil_stay"},
		{"wipe", nil, ""},
		{"github-wipe", nil, ""},
		{"evil/wipe", nil, "evil_wipe"},
		{"call_tool", nil, ""},
		{"CALL_TOOL", nil, ""},
		{strings.Repeat("x", 10_000), nil, ""},
		{"``", nil, ""},
	} {
		r := New(catalog, Settings{Health: func() Health { return Health{Absent: test.absent} }})
		got := ""
		if found, _ := r.resolve(test.name); found != nil {
			got = found.Name
		}
		if got != test.want {
			t.Errorf("%.40q with %v: %q, want %q", test.name, test.absent, got, test.want)
		}
	}
}

// A view's names hide the tools' own, and what a caller may not use is as unknown as what there is not, in every
// spelling.
func TestSpellingsKeepBoundaries(t *testing.T) {
	servers := fewServers(t, echo)
	hat := def(t, "shop", `{"name":"hat"}`)
	servers = append(servers, Server{Name: "shop", Tools: []*tool.Tool{{Name: "headgear", Def: hat, Handler: echo(hat)}}})
	whole := readBy(t, echo, servers)
	part := whole.Only(Allowed{
		Use:    func(def *tool.Def, _ string) bool { return def.ID.String() != "github.search_code" },
		Find:   func(*tool.Def, string) bool { return true },
		Server: func(string) bool { return true },
	})
	for _, catalog := range []*Catalog{whole, part} {
		r := New(catalog, Settings{})
		for _, name := range []string{"hat", "shop_hat", "shop/hat", "SHOP__HAT", "mcp__shop__hat", "mcp__toolfinch__shop_hat", "`hat`", "github_search_code", "github/search_code", "search_code", "mcp__github__search_code", "Search-Code"} {
			hidden := strings.Contains(strings.ToLower(name), "search") && catalog == part
			if !hidden && !strings.Contains(strings.ToLower(name), "hat") {
				continue
			}
			meant, _, _ := r.Meant(nil, &tool.Call{Name: name})
			said, isError := ask(t, r.CallTool(KindDestructive, ""), string(objectOf([]member{{"name", []byte(fmt.Sprintf("%q", name))}})))
			if meant != nil || !isError || !strings.HasPrefix(said, "unknown tool") || hidden && strings.Contains(said, "github_search_code\"") != strings.Contains(name, "github_search_code") {
				t.Errorf("%s means %v: %s", name, meant, said)
			}
		}
		for _, name := range []string{"HEADGEAR", "`headgear`", "mcp__toolfinch__headgear"} {
			if meant, _, _ := r.Meant(nil, &tool.Call{Name: name}); meant == nil || meant.Name != "headgear" {
				t.Errorf("%s means %v", name, meant)
			}
		}
		if meant, _, _ := r.Meant(nil, &tool.Call{Name: "create_issue"}); meant == nil || meant.Name != "github_create_issue" {
			t.Errorf("a bare name means %v", meant)
		}
	}
}

func TestShortNamesLeaveRoomForAPrefix(t *testing.T) {
	long := strings.Repeat("very_", 8) + "long_name"
	catalog := readBy(t, echo, []Server{{Name: "server", Tools: tool.Of([]*tool.Def{
		def(t, "server", `{"name":"`+long+`"}`), def(t, "server", `{"name":"`+long+`r"}`), def(t, "server", `{"name":"short"}`),
	}, echo)}})
	seen := map[string]bool{}
	for _, one := range catalog.Tools() {
		name := ShortName(one)
		found, ok := catalog.Lookup(name)
		if len("mcp__toolfinch__"+name) > 64 || seen[name] || !ok || found != one || len(one.Name) <= 48 && name != one.Name {
			t.Errorf("%s is listed as %s, which finds %v", one.Name, name, found)
		}
		seen[name] = true
	}
	if _, ok := catalog.Lookup("server_very_very_very_very_very_very_ve_00000000"); ok {
		t.Error("a hash that nobody has finds a tool")
	}
}
