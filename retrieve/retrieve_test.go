package retrieve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func def(t testing.TB, server, raw string) *tool.Def {
	t.Helper()
	d := must.Get(tool.ParseDef(server, json.RawMessage(raw)))(t)
	return d
}

// echo answers with the call as it reached the tool.
func echo(d *tool.Def) tool.Handler {
	return func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(d.ID.String() + " " + string(call.Arguments)), nil
	}
}

// fewServers are three servers of a few tools each.
func fewServers(t testing.TB, handler func(*tool.Def) tool.Handler) []Server {
	t.Helper()
	return []Server{
		{Name: "github", Description: "Code hosting", Tools: tool.Of([]*tool.Def{
			def(t, "github", `{"name":"create_issue","description":"Create an issue in a repository. It is filed at once.","inputSchema":{"type":"object","properties":{"title":{"type":"string"},"labels":{"type":"array","items":{"type":"string"}},"state":{"enum":["open","closed"]}},"required":["title"]},"outputSchema":{"type":"object"},"annotations":{"destructiveHint":false,"x":1},"execution":{"taskSupport":"optional"},"icons":[{"src":"a:b"}],"_meta":{"k":1}}`),
			def(t, "github", `{"name":"search_code","description":"Search code across repositories","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}},"annotations":{"readOnlyHint":true}}`),
			def(t, "github", `{"name":"delete_repository","description":"Delete a repository forever","inputSchema":{"$ref":"file:///etc/passwd"}}`),
		}, handler)},
		{Name: "clock", Tools: tool.Of([]*tool.Def{
			def(t, "clock", `{"name":"now","description":"Tell the current time in a city","inputSchema":{"type":"object"}}`),
		}, handler)},
		{Name: "calendar", Tools: tool.Of([]*tool.Def{
			def(t, "calendar", `{"name":"add_event","description":"Add an event to the calendar","inputSchema":"no schema at all"}`),
		}, handler)},
	}
}

// newRetriever is a retriever over fewServers.
func newRetriever(t testing.TB, settings Settings) (*Retriever, *Catalog) {
	t.Helper()
	catalog := readBy(t, echo, fewServers(t, echo), "clock_*")
	return New(catalog, settings), catalog
}

// ask calls a handler and returns the text of its result.
func ask(t testing.TB, handler tool.Handler, arguments string) (text string, isError bool) {
	t.Helper()
	result := must.Get(handler(t.Context(), &tool.Call{Arguments: json.RawMessage(arguments)}))(t)
	var r struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
	}
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	if r.StructuredContent != nil {
		t.Errorf("%s goes out twice", r.Content[0].Text)
	}
	return r.Content[0].Text, r.IsError
}

func TestRetrieveToolsAnswersWithWhatIsNeededToCall(t *testing.T) {
	r, catalog := newRetriever(t, Settings{Health: func() Health { return Health{Ready: 2, Pending: 1} }})
	catalog.CountTokens(t.Context())
	text, isError := ask(t, r.Retrieve, `{"query":"open an issue in my repository","limit":"1","detail":"full"}`) // some models write numbers so
	if isError {
		t.Fatal(text)
	}
	var answer struct {
		Tools       []map[string]json.RawMessage
		Servers     map[string]string
		Index       map[string]any
		Tokens      int
		TokensSaved int `json:"tokens_saved"`
	}
	must.Do(t, json.Unmarshal([]byte(text), &answer))
	if len(answer.Tools) != 1 {
		t.Fatalf("%d tools, want 1: %s", len(answer.Tools), text)
	}
	for key, want := range map[string]string{
		"name": `"github_create_issue"`, "server": `"github"`, "registered": `false`,
		"annotations":  `{"destructiveHint":false,"x":1}`,
		"outputSchema": `{"type":"object"}`, "execution": `{"taskSupport":"optional"}`, "icons": `[{"src":"a:b"}]`, "_meta": `{"k":1}`,
		"inputSchema": `{"type":"object","properties":{"title":{"type":"string"},"labels":{"type":"array","items":{"type":"string"}},"state":{"enum":["open","closed"]}},"required":["title"]}`,
	} {
		if got := string(answer.Tools[0][key]); got != want {
			t.Errorf("%s = %s, want %s", key, got, want)
		}
	}
	if answer.Servers["github"] != "Code hosting" {
		t.Errorf("servers = %v", answer.Servers)
	}
	if want := map[string]any{"tools": 5, "servers_ready": 2, "servers_pending": 1, "servers_failed": 0, "search": "words"}; fmt.Sprint(answer.Index) != fmt.Sprint(want) {
		t.Errorf("index = %v, want %v", answer.Index, want)
	}
	if answer.Tokens <= 0 || answer.TokensSaved <= 0 {
		t.Errorf("tokens %d, saved %d", answer.Tokens, answer.TokensSaved)
	}
}

func TestBadQueriesSayWhatToDo(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	for arguments, want := range map[string]string{
		`{}`:                                "query is empty",
		`{"query":"  "}`:                    "query is empty",
		`{"query":7}`:                       "query must be text",
		`{"query":"x","limit":51}`:          "from 0 to 50",
		`{"query":"x","limit":2.5}`:         "from 0 to 50",
		`{"query":"x","server":"githib"}`:   "did you mean \"github\"?",
		`{"query":"x","detail":"verbose"}`:  "name, summary, full",
		`{"query":"x","detial":"full"}`:     "unknown argument",
		`["x"]`:                             "must be a JSON object",
		`{"queries":["a","b"],"query":"c"}`: "either query or queries",
		`{"queries":["a"," "]}`:             "query is empty",
		`{"queries":[1]}`:                   "queries must be an array of texts",
		`{"queries":["1","2","3","4","5","6","7","8","9"]}`: "at most 8",
		`{"query":"x","server":"github\n"}`:                 "did you mean \"github\"?",
	} {
		if text, isError := ask(t, r.Retrieve, arguments); !isError || !strings.Contains(text, want) {
			t.Errorf("%s: %s (error %v), want an error with %q", arguments, text, isError, want)
		}
	}
}

func TestServerNarrowsBeforeTheCut(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	text, _ := ask(t, r.Retrieve, `{"query":"create an issue in a repository","server":"calendar","limit":1,"detail":"name"}`)
	if strings.Contains(text, "github") {
		t.Errorf("a search in calendar found %s", text)
	}
	text, _ = ask(t, r.Retrieve, `{"query":"search_code","limit":1,"detail":"name"}`)
	if !strings.Contains(text, "github_search_code") {
		t.Errorf("an exact name is not first: %s", text)
	}
}

func TestRetrieveRegistersWhatItFound(t *testing.T) {
	var got []string
	r, _ := newRetriever(t, Settings{Register: func(_ context.Context, call *tool.Call, tools, _ []*tool.Tool) Registration {
		for _, found := range tools {
			got = append(got, call.Session+":"+found.Name)
		}
		return Registration{Names: map[string]bool{tools[0].Name: true}}
	}})
	result, err := r.Retrieve(t.Context(), &tool.Call{Session: "s1", Arguments: json.RawMessage(`{"query":"search code","limit":1,"detail":"full"}`)})
	if err != nil || !slices.Equal(got, []string{"s1:github_search_code"}) {
		t.Errorf("registered %v, error %v", got, err)
	}
	if !strings.Contains(string(result), `\"registered\":true`) {
		t.Errorf("result = %s", result)
	}
}

// The best are the first hits of confident answers: of a query with several hits one, of a doubtful one none.
func TestTheBestOfAQuery(t *testing.T) {
	var found, got []string
	r, _ := newRetriever(t, Settings{Register: func(_ context.Context, _ *tool.Call, tools, best []*tool.Tool) Registration {
		found, got = append(found, toolNames(tools)), append(got, toolNames(best))
		return Registration{}
	}})
	for _, query := range []string{"create issue", "labels"} {
		ask(t, r.Retrieve, `{"query":"`+query+`"}`)
	}
	if want := []string{"github_create_issue", ""}; !slices.Equal(got, want) || !strings.HasPrefix(found[0], want[0]+" ") || found[1] == "" {
		t.Errorf("the best of %q are %q, want %q", found, got, want)
	}
}

func TestCallTool(t *testing.T) {
	r, _ := newRetriever(t, Settings{Validate: func(server string) bool { return true }})
	unchecked, _ := newRetriever(t, Settings{Validate: func(server string) bool { return false }})
	for _, test := range []struct {
		name, arguments, want string
		retriever             *Retriever
		most                  Kind
		isError               bool
	}{
		{"by exposed name", `{"name":"github_search_code","arguments":{"q":"x","big":12345678901234567890}}`, `github.search_code {"q":"x","big":12345678901234567890}`, r, KindDestructive, false},
		{"by server.tool", `{"name":"github.search_code"}`, `github.search_code {}`, r, KindDestructive, false},
		{"arguments sent as text", `{"name":"github_search_code","arguments":"{\"q\":\"x\"}"}`, `github.search_code {"q":"x"}`, r, KindDestructive, false},
		{"unknown", `{"name":"github_serch_code"}`, `nearest: github_search_code`, r, KindDestructive, true},
		{"violation with the schema", `{"name":"github_create_issue","arguments":{"labels":"bug"}}`, `"required":["title"]`, r, KindDestructive, true},
		{"violation by place", `{"name":"github_create_issue","arguments":{"title":"t","labels":"bug"}}`, `/labels:`, r, KindDestructive, true},
		{"no validation", `{"name":"github_create_issue","arguments":{"labels":"bug"}}`, `github.create_issue {"labels":"bug"}`, unchecked, KindDestructive, false},
		{"a schema that is no schema", `{"name":"calendar_add_event","arguments":{"x":1}}`, `calendar.add_event {"x":1}`, r, KindDestructive, false},
		{"a schema that names a file", `{"name":"github_delete_repository","arguments":{}}`, `github.delete_repository {}`, r, KindDestructive, false},
		{"read calls read", `{"name":"github_search_code"}`, `github.search_code`, r, KindRead, false},
		{"read refuses write", `{"name":"github_create_issue","arguments":{"title":"t"}}`, `call_tool_write`, r, KindRead, true},
		{"write refuses what says nothing of itself", `{"name":"clock_now"}`, `call_tool_destructive`, r, KindWrite, true},
		{"no name", `{"arguments":{}}`, `name is missing`, r, KindDestructive, true},
		{"arguments beside", `{"name":"clock_now","city":"Oslo"}`, `go into "arguments"`, r, KindDestructive, true},
		{"arguments no object", `{"name":"clock_now","arguments":[1]}`, `must be an object`, r, KindDestructive, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, isError := ask(t, test.retriever.CallTool(test.most, ""), test.arguments)
			if isError != test.isError || !strings.Contains(text, test.want) {
				t.Errorf("answer %q (error %v), want %q (error %v)", text, isError, test.want, test.isError)
			}
		})
	}
}

// A schema that nothing can be checked against costs a tool the check, and that is
// said once. Arguments beyond what is checked cost the call.
func TestCallsWithHostileSchemasAndArguments(t *testing.T) {
	fanOut := `"$ref":"#/$defs/d0","$defs":{`
	for i := range 40 {
		fanOut += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	catalog := readBy(t, echo, []Server{{Name: "s", Tools: tool.Of([]*tool.Def{
		def(t, "s", `{"name":"fan","inputSchema":{`+fanOut+`"d40":{}}}}`),
		def(t, "s", `{"name":"deep","inputSchema":`+strings.Repeat(`{"allOf":[`, 4_900)+`{}`+strings.Repeat(`]}`, 4_900)+`}`),
		def(t, "s", `{"name":"honest","inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":10}}}}`),
	}, echo)}})
	var said []string
	r := New(catalog, Settings{Unchecked: func(id tool.ID, err error) { said = append(said, id.Name+": "+err.Error()) }})
	for _, test := range []struct {
		name, arguments, want string
		isError               bool
	}{
		{"fan", `{"a":1}`, `s.fan {"a":1}`, false},
		{"fan", `{"a":1}`, `s.fan {"a":1}`, false},
		{"deep", `{}`, `s.deep {}`, false},
		{"deep", `{}`, `s.deep {}`, false},
		{"honest", `{"n":1e1000000000}`, `the number 1e1000000000`, true},
		{"honest", `{"n":` + strings.Repeat("7", 4_000_000) + `}`, `too long`, true},
		{"honest", `{"n":11}`, `/n:`, true},
	} {
		text, isError := ask(t, r.CallTool(KindDestructive, ""), `{"name":"s_`+test.name+`","arguments":`+test.arguments+`}`)
		if isError != test.isError || !strings.Contains(text, test.want) || len(text) > 10_000 {
			t.Errorf("%s: %.300s (error %t)", test.name, text, isError)
		}
	}
	if want := []string{"fan: checking this value against it would cost too much", "deep: it nests deeper than 100"}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

func TestMetaToolsAreSmallAndStayLoaded(t *testing.T) {
	var many []Server
	for i := range 200 {
		many = append(many, Server{Name: fmt.Sprintf("server-number-%d", i), Description: "What this server is for, at some length. More."})
	}
	for _, offer := range []Offer{{Call: true, About: many}, {Call: true, Split: true, About: many}, {About: many}} {
		size := 0
		r, _ := newRetriever(t, Settings{Offer: offer})
		for _, meta := range r.MetaTools() {
			raw := meta.Listed()
			size += len(raw)
			var d struct {
				Meta map[string]any `json:"_meta"`
			}
			if err := json.Unmarshal(raw, &d); err != nil || d.Meta["anthropic/alwaysLoad"] != true {
				t.Errorf("%s: %v %s", meta.Name, err, raw)
			}
		}
		if size > 2500 {
			t.Errorf("%+v: the meta-tools take %d bytes, want at most 2500", offer.Split, size)
		}
		if text := Instructions(offer.Intro(), offer.About); len(text) > maxInstructions+40 || !strings.Contains(text, "server-number-0") || !strings.Contains(text, "more") {
			t.Errorf("instructions of %d bytes: %s", len(text), text)
		}
	}
	r, _ := newRetriever(t, Settings{})
	if n := tool.CountTokens(r.Beside().Listed()); n > 80 { // 31 tools cost some 5,300
		t.Errorf("retrieve_tools costs %d tokens beside other tools, want at most 80", n)
	}
}

func TestACatalogFollowsChangesAndTheOneBeforeStays(t *testing.T) {
	_, catalog := newRetriever(t, Settings{})
	if got := catalog.Pinned(); len(got) != 1 || got[0].Name != "clock_now" {
		t.Errorf("pinned = %v", got)
	}
	before := New(catalog, Settings{})
	catalog = with(t, catalog, []Server{{Name: "clock", Tools: tool.Of([]*tool.Def{
		def(t, "clock", `{"name":"now","description":"Bake a cake"}`),
	}, echo)}})
	r := New(catalog, Settings{})
	found, err := r.Search(t.Context(), Query{Text: "bake cake", Limit: 5})
	if err != nil || len(found.Hits) != 1 || found.Hits[0].Name != "clock_now" {
		t.Errorf("found = %v, %v", found, err)
	}
	if found, _ := r.Search(t.Context(), Query{Text: "issue repository", Limit: 5}); len(found.Hits) != 0 {
		t.Errorf("removed tools are found: %v", found.Hits)
	}
	if _, err := catalog.Find("github.search_code"); err == nil {
		t.Error("a removed tool can be called")
	}
	// Who has the catalog of before finds what that had.
	if found, _ := before.Search(t.Context(), Query{Text: "bake cake", Limit: 5}); len(found.Hits) != 0 {
		t.Errorf("the catalog before finds what came after it: %v", found.Hits)
	}
	if found, _ := before.Search(t.Context(), Query{Text: "issue repository", Limit: 1}); len(found.Hits) != 1 || found.Hits[0].Name != "github_create_issue" {
		t.Errorf("the catalog before has lost its tools: %v", found.Hits)
	}
}

// What a server is for ends in a stop, however it was written.
func TestSearchToolsSayWhatTheyAreFor(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	for about, want := range map[string]string{
		"Code hosting":                 "list them. Code hosting. Then github_describe_tool says",
		"Code hosting. And more.":      "list them. Code hosting. Then github_describe_tool says",
		"":                             "list them. Then github_describe_tool says",
		"Which tools? Ask the server!": "list them. Which tools? Ask the server! Then github_describe_tool says",
	} {
		if got := r.SearchTools("github", "github", about)[0].Def.Description; !strings.Contains(got, want) {
			t.Errorf("%q: %s", about, got)
		}
	}
}
