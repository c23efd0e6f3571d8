package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
)

// gatedView is fewServers behind a gate. clock_now is pinned.
type gatedView struct {
	*Retriever
	terms *atomic.Pointer[gate.Terms]
	gate  *gate.Gate
	tools map[string]*tool.Tool // the meta-tools
}

// nobody is the clients of a gate that has no sessions.
type nobody struct{}

func (nobody) Knows(string) bool                      { return false }
func (nobody) Relist(context.Context, string, string) {}

func newGated(t testing.TB, budget gate.Budget) *gatedView {
	t.Helper()
	root := NewCatalog(echo)
	t.Cleanup(func() { _ = root.Close() })
	view := &gatedView{terms: &atomic.Pointer[gate.Terms]{}, tools: map[string]*tool.Tool{}}
	view.terms.Store(&gate.Terms{Catalog: root, Budget: &budget})
	view.gate = gate.New(gate.Options{Clients: nobody{}}, func() gate.Terms { return *view.terms.Load() }, slog.New(slog.DiscardHandler))
	view.swap(t, fewServers(t, echo))
	return view
}

// swap puts the gate around every tool, as whoever builds a view does.
func (v *gatedView) swap(t testing.TB, servers []Server) {
	t.Helper()
	for _, s := range servers {
		for i, one := range s.Tools {
			s.Tools[i] = &tool.Tool{Name: one.Name, Def: one.Def, Handler: v.gate.Layer(one.Def.ID)(one.Handler)}
		}
	}
	catalog := with(t, v.catalog(), servers, "clock_*")
	v.Retriever = New(catalog, Settings{Gate: v.gate, Offer: Offer{Call: true}})
	v.terms.Store(&gate.Terms{Catalog: catalog, Budget: v.terms.Load().Budget})
	for _, meta := range slices.Concat(v.GateTools(), v.MetaTools(), v.SearchTools("v", "", "")) {
		v.tools[meta.Name] = meta
	}
}

func (v *gatedView) catalog() *Catalog { return v.terms.Load().Catalog.(*Catalog) }

// as calls a meta-tool for a principal, "" for nobody, and returns the text of
// the answer, which begins with "ERROR " where it is one.
func (v *gatedView) as(t testing.TB, principal, name, arguments string) string {
	t.Helper()
	result, err := v.tools[name].Handler(t.Context(), &tool.Call{Name: name, Principal: principal, Arguments: json.RawMessage(arguments)})
	if err != nil { // the live server shows it as a tool error
		return "ERROR " + err.Error()
	}
	text, isError := ask(t, func(context.Context, *tool.Call) (tool.Result, error) { return result, nil }, "")
	if isError {
		return "ERROR " + text
	}
	return text
}

// have returns what a principal has provisioned.
func (v *gatedView) have(t testing.TB, principal string) string {
	t.Helper()
	list := must.Get(v.Provisions(&tool.Call{Principal: principal}))(t)
	return toolIDsOf(list.Provisioned)
}

func toolIDsOf(tools []ProvisionedTool) string {
	var out []string
	for _, one := range tools {
		out = append(out, one.ToolID)
	}
	return strings.Join(out, " ")
}

func decoded[T any](t testing.TB, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func TestFromDiscoveryToACall(t *testing.T) {
	v := newGated(t, gate.Budget{MaxTools: 2})
	found := decoded[Discovery](t, v.as(t, "ann", DiscoverTools, `{"query":"search code in repositories"}`))
	if len(found.Tools) == 0 || found.Tools[0].ToolID != "github_search_code" || found.Tools[0].Provisioned == nil || *found.Tools[0].Provisioned {
		t.Fatalf("found %+v", found)
	}
	const execute = `{"tool_id":"github_search_code","arguments":{"q":"x"}}`
	const refusal = "ERROR Tool github_search_code not provisioned. Use provision_tools first."
	if got := v.as(t, "ann", ExecuteTool, execute); got != refusal {
		t.Fatalf("before it is provisioned: %s", got)
	}

	answer := decoded[ProvisionAnswer](t, v.as(t, "ann", ProvisionTools, `{"tool_ids":["github_search_code"]}`))
	search, _ := v.catalog().Lookup("github_search_code")
	cost := v.catalog().Tokens(search)
	if len(answer.Provisioned) != 1 || answer.Usage != (gate.Usage{Tools: 1, Tokens: cost}) || answer.Budget != (gate.Budget{MaxTools: 2}) || cost < 10 {
		t.Fatalf("provisioned: %+v", answer)
	}
	if got := answer.Provisioned[0]; string(got.Definition) != string(search.Listed()) || got.Tokens != cost || !got.ExpiresAt.IsZero() {
		t.Errorf("provisioned: %+v with %s", got, got.Definition)
	}
	if got := v.as(t, "ann", ExecuteTool, execute); got != `github.search_code {"q":"x"}` {
		t.Errorf("once it is provisioned: %s", got)
	}
	found = decoded[Discovery](t, v.as(t, "ann", DiscoverTools, `{"query":"search_code"}`))
	if !*found.Tools[0].Provisioned {
		t.Error("discover_tools does not say that it is provisioned")
	}
	if got := v.as(t, "bob", ExecuteTool, execute); got != refusal {
		t.Errorf("for somebody else: %s", got)
	}
	if got := v.as(t, "", ExecuteTool, execute); got != refusal {
		t.Errorf("for nobody: %s", got)
	}

	removed := decoded[UnprovisionAnswer](t, v.as(t, "ann", UnprovisionTools, `{"all":true}`))
	if toolIDsOf(removed.Unprovisioned) != "github_search_code" || removed.Usage != (gate.Usage{}) {
		t.Errorf("unprovisioned: %+v", removed)
	}
	if got := v.as(t, "ann", ExecuteTool, execute); got != refusal {
		t.Errorf("afterwards: %s", got)
	}
}

func TestEveryWayToAToolIsGated(t *testing.T) {
	v := newGated(t, gate.Budget{})
	ways := map[string]func(arguments string) string{
		"execute_tool": func(a string) string {
			return v.as(t, "", ExecuteTool, `{"tool_id":"github_create_issue","arguments":`+a+`}`)
		},
		"call_tool": func(a string) string {
			return v.as(t, "", CallTool, `{"name":"github_create_issue","arguments":`+a+`}`)
		},
		"by server.tool": func(a string) string {
			return v.as(t, "", CallTool, `{"name":"github.create_issue","arguments":`+a+`}`)
		},
		"execute_tool by server.tool": func(a string) string {
			return v.as(t, "", ExecuteTool, `{"tool_id":"github.create_issue","arguments":`+a+`}`)
		},
		"execute_tool by server:tool": func(a string) string {
			return v.as(t, "", ExecuteTool, `{"tool_id":"github:create_issue","arguments":`+a+`}`)
		},
		"v_call_tool": func(a string) string {
			return v.as(t, "", "v_call_tool", `{"name":"github_create_issue","arguments":`+a+`}`)
		},
		"the tool itself": func(a string) string {
			found, _ := v.catalog().Lookup("github_create_issue")
			result, err := found.Handler(t.Context(), &tool.Call{Name: found.Name, Arguments: json.RawMessage(a)})
			if err != nil {
				return "ERROR " + err.Error()
			}
			return decoded[struct{ Content []struct{ Text string } }](t, string(result)).Content[0].Text
		},
	}
	for way, call := range ways {
		// What is wrong with the arguments is for those who may call.
		for _, arguments := range []string{`{"title":"t"}`, `{}`} {
			if got := call(arguments); got != "ERROR Tool github_create_issue not provisioned. Use provision_tools first." {
				t.Errorf("%s with %s: %s", way, arguments, got)
			}
		}
	}
	v.as(t, "", ProvisionTools, `{"tool_ids":["github_create_issue"]}`)
	for way, call := range ways {
		if got := call(`{"title":"t"}`); got != `github.create_issue {"title":"t"}` {
			t.Errorf("%s, once it is provisioned: %s", way, got)
		}
	}
	if got := v.as(t, "", ExecuteTool, `{"tool_id":"clock_now"}`); got != "clock.now {}" {
		t.Errorf("a pinned tool: %s", got)
	}
	result, err := v.Execute(t.Context(), &tool.Call{Local: true}, "github_search_code", nil)
	if err != nil || !strings.Contains(string(result), "github.search_code {}") {
		t.Errorf("a command of the owner: %s, %v", result, err)
	}
}

func TestProvisioningByQueryTakesWhatFits(t *testing.T) {
	v := newGated(t, gate.Budget{})
	cost := func(name string) int {
		found, ok := v.catalog().Lookup(name)
		if !ok {
			t.Fatal(name)
		}
		return v.catalog().Tokens(found)
	}
	create, search := cost("github_create_issue"), cost("github_search_code")
	// The query finds create_issue before search_code, which costs less.
	const query = `"query":"create an issue in a repository","limit":2`
	for _, test := range []struct {
		name, arguments   string
		budget            gate.Budget
		provisioned, left string
	}{
		{"all", `{` + query + `}`, gate.Budget{}, "github_create_issue github_delete_repository", ""},
		{"the number of tools", `{` + query + `}`, gate.Budget{MaxTools: 1}, "github_create_issue", "github_delete_repository"},
		{"the best has no room", `{` + query + `}`, gate.Budget{MaxTokens: create - 1}, "github_delete_repository", "github_create_issue"},
		{"max_tokens of the request", `{` + query + `,"max_tokens":1}`, gate.Budget{}, "", "github_create_issue github_delete_repository"},
		{"as older clients call it", `{` + query + `,"context_tokens":1}`, gate.Budget{}, "", "github_create_issue github_delete_repository"},
		{"nothing is found", `{"query":"qqqq"}`, gate.Budget{}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newGated(t, test.budget)
			answer := decoded[ProvisionAnswer](t, v.as(t, "ann", ProvisionTools, test.arguments))
			if got := toolIDsOf(answer.Provisioned); got != test.provisioned || v.have(t, "ann") != test.provisioned {
				t.Errorf("provisioned %q, has %q, want %q", got, v.have(t, "ann"), test.provisioned)
			}
			if got := toolIDsOf(answer.DidNotFit); got != test.left {
				t.Errorf("left %q, want %q", got, test.left)
			}
			if answer.Confident == nil {
				t.Error("it does not say whether that is what was asked for")
			}
			for _, one := range answer.DidNotFit {
				if one.Tokens != cost(one.ToolID) || one.Definition != nil {
					t.Errorf("%+v, want its cost, %d, and no definition", one, cost(one.ToolID))
				}
			}
		})
	}
	if create <= search {
		t.Errorf("create_issue costs %d and search_code %d: the cases above say nothing", create, search)
	}
}

// What is found for a query that no tool surely fits is named and not provisioned.
func TestADoubtfulQueryProvisionsNothing(t *testing.T) {
	v := newGated(t, gate.Budget{})
	const query = "create a wedding playlist of baroque organ music with a discount"
	answer := decoded[ProvisionAnswer](t, v.as(t, "ann", ProvisionTools, `{"query":"`+query+`"}`))
	if answer.Confident == nil || *answer.Confident {
		t.Fatalf("%+v: it is confident, so that this tests nothing", answer)
	}
	if got := v.have(t, "ann"); got != "" || len(answer.Provisioned) != 0 || answer.Usage.Tools != 0 {
		t.Errorf("%+v: %q is provisioned", answer, got)
	}
	if len(answer.Nearest) == 0 || answer.Nearest[0].Tokens == 0 || !strings.Contains(answer.Note, "nearest") {
		t.Errorf("%+v, want what was found with its cost, and what to do", answer)
	}
	named := `{"tool_ids":["` + answer.Nearest[0].ToolID + `"]}`
	if got := toolIDsOf(decoded[ProvisionAnswer](t, v.as(t, "ann", ProvisionTools, named)).Provisioned); got != answer.Nearest[0].ToolID {
		t.Errorf("by its ID: provisioned %q", got)
	}
}

// However often and by whatever name a request names a tool, it is provisioned, or
// given back, once.
func TestOneToolByThreeNames(t *testing.T) {
	v := newGated(t, gate.Budget{MaxTools: 1})
	const all = `{"tool_ids":["github.create_issue","github_create_issue","github:create_issue"]}`
	if got := toolIDsOf(decoded[ProvisionAnswer](t, v.as(t, "ann", ProvisionTools, all)).Provisioned); got != "github_create_issue" {
		t.Errorf("provisioned %q", got)
	}
	if got := toolIDsOf(decoded[UnprovisionAnswer](t, v.as(t, "ann", UnprovisionTools, all)).Unprovisioned); got != "github_create_issue" {
		t.Errorf("unprovisioned %q", got)
	}
}

func TestRefusedRequestsChangeNothing(t *testing.T) {
	v := newGated(t, gate.Budget{MaxTools: 2, TTL: time.Hour})
	v.as(t, "ann", ProvisionTools, `{"tool_ids":"github_search_code"}`)
	for _, test := range []struct{ tool, arguments, want string }{
		{ProvisionTools, ``, "send tool_ids"},
		{ProvisionTools, `{"tool_ids":[],"query":" "}`, "send tool_ids"},
		{ProvisionTools, `{"tool_ids":null}`, "send tool_ids"},
		{ProvisionTools, `{"tool_ids":["github_create_issue"],"query":"x"}`, "not both"},
		{ProvisionTools, `{"tool_ids":[1]}`, "tool_ids must be an array of texts"},
		{ProvisionTools, `{"tool_ids":"[\"a\""}`, "tool_ids must be an array of texts"},
		{ProvisionTools, `{"tool_ids":["github_create_issue"],"max_tokens":0}`, "max_tokens must be a whole number from 1"},
		{ProvisionTools, `{"tool_ids":["github_create_issue"],"ttl_seconds":1.5}`, "ttl_seconds must be a whole number from 1"},
		{ProvisionTools, `{"tool_ids":["github_create_issue"],"ttl_seconds":1e12}`, "ttl_seconds must be a whole number from 1"},
		{ProvisionTools, `{"query":"x","limit":51}`, "from 1 to 50"},
		{ProvisionTools, `{"ids":["github_create_issue"]}`, `unknown argument "ids"; did you mean "tool_ids"? provision_tools takes tool_ids, query, limit, max_tokens and ttl_seconds`},
		{ProvisionTools, `["github_create_issue"]`, "must be a JSON object"},
		{ProvisionTools, `{"tool_ids":["github_create_issue","github_creat_issue"]}`, "Unknown tool: github_creat_issue. Nearest: github_create_issue"},
		{ProvisionTools, `{"tool_ids":["github.creat_issue"]}`, "Unknown tool: github.creat_issue. Nearest: github_create_issue"},
		{ProvisionTools, `{"tool_ids":["create issue"]}`, "Invalid tool ID format: create issue"},
		{ProvisionTools, `{"tool_ids":["call_tool"]}`, "Unknown tool: call_tool"},
		{ProvisionTools, `{"tool_ids":["x1","x2"]}`, "Unknown tool: x2"},
		{ProvisionTools, `{"tool_ids":["github_create_issue","github_delete_repository"]}`, "Nothing was changed"},
		{ProvisionTools, `{"tool_ids":["github_create_issue"],"max_tokens":1}`, "Nothing was changed"},
		{UnprovisionTools, `{}`, `send tool_ids, or {"all": true}`},
		{UnprovisionTools, `{"tool_ids":["github_search_code"],"all":true}`, `send tool_ids, or {"all": true}`},
		{UnprovisionTools, `{"all":"yes"}`, "all must be true or false"},
		{UnprovisionTools, `{"tool_ids":["github_search_code","nothing"]}`, "Unknown tool: nothing"},
		{ListProvisioned, `{"all":true}`, `unknown argument "all"; list_provisioned takes none`},
		{ExecuteTool, `{"arguments":{}}`, `tool_id is missing: send {"tool_id": "server_tool", "arguments": {...}}`},
		{ExecuteTool, `{"tool_id":"github_search_code","q":"x"}`, `go into "arguments"`},
		{DiscoverTools, `{"limit":0}`, "limit must be a whole number from 1 to 50"},
		{DiscoverTools, `{"tags":[""]}`, "a tag is empty"},
		{DiscoverTools, `{"tag":"x"}`, `unknown argument "tag"; did you mean "tags"? discover_tools takes query, tags and limit`},
	} {
		got := v.as(t, "ann", test.tool, test.arguments)
		if !strings.HasPrefix(got, "ERROR ") || !strings.Contains(got, test.want) {
			t.Errorf("%s %s: %s, want an error with %s", test.tool, test.arguments, got, test.want)
		}
		if got := v.have(t, "ann"); got != "github_search_code" {
			t.Fatalf("%s %s: now %q is provisioned", test.tool, test.arguments, got)
		}
	}
}

func TestWhatIsOverBudgetIsSaidInNumbers(t *testing.T) {
	v := newGated(t, gate.Budget{MaxTools: 1})
	_, err := v.Provision(t.Context(), &tool.Call{}, ProvisionRequest{IDs: []string{"github_create_issue", "github_search_code", "github_search_code"}})
	var over *gate.BudgetError
	if !errors.As(err, &over) || over.Asked.Tools != 2 || over.Budget.MaxTools != 1 || over.Asked.Tokens == 0 {
		t.Fatalf("error %v", err)
	}
	got := v.as(t, "", ProvisionTools, `{"tool_ids":["github_create_issue","github_search_code"]}`)
	if got != "ERROR "+over.Error() {
		t.Errorf("the model reads %s, want %s", got, over)
	}
}

func TestProvisionedToolsMayEnd(t *testing.T) {
	v := newGated(t, gate.Budget{TTL: time.Hour})
	begin := time.Now()
	for arguments, want := range map[string]time.Duration{
		`{"tool_ids":["github_search_code"]}`:                        time.Hour,
		`{"tool_ids":"github_create_issue","ttl_seconds":90}`:        90 * time.Second,
		`{"tool_ids":"[\"calendar_add_event\"]","ttl_seconds":7200}`: time.Hour, // the view's is the most
	} {
		answer := decoded[ProvisionAnswer](t, v.as(t, "ann", ProvisionTools, arguments))
		if len(answer.Provisioned) != 1 {
			t.Fatalf("%s: %+v", arguments, answer)
		}
		if got := answer.Provisioned[0].ExpiresAt; got.Before(begin.Add(want-time.Second)) || got.After(time.Now().Add(want)) {
			t.Errorf("%s: until %v, want in %v", arguments, got, want)
		}
	}
	list := decoded[ProvisionList](t, v.as(t, "ann", ListProvisioned, ``))
	sum := 0
	for _, one := range list.Provisioned {
		if sum += one.Tokens; one.ExpiresAt.IsZero() || one.Definition != nil {
			t.Errorf("listed: %+v", one)
		}
	}
	if len(list.Provisioned) != 3 || list.Usage != (gate.Usage{Tools: 3, Tokens: sum}) {
		t.Errorf("listed: %+v", list)
	}
}

func TestUnprovisionNamesWhatWasNotProvisioned(t *testing.T) {
	v := newGated(t, gate.Budget{})
	v.as(t, "ann", ProvisionTools, `{"tool_ids":["github_search_code","github_create_issue"]}`)
	answer := decoded[UnprovisionAnswer](t, v.as(t, "ann", UnprovisionTools, `{"tool_ids":["github_search_code","calendar_add_event","calendar_add_event"]}`))
	if toolIDsOf(answer.Unprovisioned) != "github_search_code" || !slices.Equal(answer.NotProvisioned, []string{"calendar_add_event"}) || answer.Usage.Tools != 1 {
		t.Errorf("answer %+v", answer)
	}
	if got := v.have(t, "ann"); got != "github_create_issue" {
		t.Errorf("left is %q", got)
	}
	if _, err := v.Unprovision(t.Context(), &tool.Call{Principal: "ann"}, []string{}); err != nil || v.have(t, "ann") == "" {
		t.Errorf("no IDs took everything away (error %v)", err)
	}
}

func TestIDsAreBoundedAndCountOnce(t *testing.T) {
	v := newGated(t, gate.Budget{MaxTools: 1})
	ids := make([]string, maxIDs)
	for i := range ids {
		ids[i] = "github_search_code"
	}
	list := func(ids []string) string { return `{"tool_ids":` + string(rawjson.Of(ids)) + `}` }
	for _, meta := range []string{ProvisionTools, UnprovisionTools} {
		if got := v.as(t, "ann", meta, list(append(ids, "github_search_code"))); got != "ERROR tool_ids has 1001 IDs, more than 1000: send fewer at a time" {
			t.Errorf("%s of too many: %s", meta, got)
		}
	}
	answer := decoded[ProvisionAnswer](t, v.as(t, "ann", ProvisionTools, list(ids)))
	if toolIDsOf(answer.Provisioned) != "github_search_code" || answer.Usage.Tools != 1 {
		t.Errorf("provisioned: %+v", answer)
	}
	for i := range ids {
		ids[i] = "calendar_add_event"
	}
	removed := decoded[UnprovisionAnswer](t, v.as(t, "ann", UnprovisionTools, list(ids)))
	if !slices.Equal(removed.NotProvisioned, []string{"calendar_add_event"}) {
		t.Errorf("unprovisioned: %+v", removed)
	}
	unknown := v.as(t, "ann", ProvisionTools, `{"tool_ids":["nothing","nothing","github_search_code","nothing"]}`)
	if strings.Count(unknown, "Unknown tool: nothing") != 1 {
		t.Errorf("unknown: %s", unknown)
	}
}

func TestWhereNothingIsGatedThereIsNothingToProvision(t *testing.T) {
	plain, _ := newRetriever(t, Settings{})
	notYet := newGated(t, gate.Budget{})
	notYet.terms.Store(&gate.Terms{Catalog: notYet.catalog()})
	for name, r := range map[string]*Retriever{"without a gate": plain, "with a live server that has none": notYet.Retriever} {
		call := &tool.Call{}
		_, err1 := r.Provision(t.Context(), call, ProvisionRequest{Query: "x"})
		_, err2 := r.Unprovision(t.Context(), call, nil)
		_, err3 := r.Provisions(call)
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, ErrNotGated) {
				t.Errorf("%s: error %v, want %v", name, err, ErrNotGated)
			}
		}
		if _, err := r.Execute(t.Context(), call, "github_search_code", nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		found, err := r.Discover(t.Context(), call, DiscoverQuery{Text: "search code"})
		if err != nil || len(found.Tools) == 0 || found.Tools[0].Provisioned != nil {
			t.Errorf("%s: found %+v, %v", name, found, err)
		}
	}
}

func TestRetrieveToolsOfAGatedView(t *testing.T) {
	v := newGated(t, gate.Budget{})
	type answer struct {
		Tools []struct {
			Name       string
			Registered bool
		}
		Next string
	}
	const query = `{"query":"search_code","limit":1,"detail":"full"}`
	before := decoded[answer](t, v.as(t, "ann", RetrieveTools, query))
	if len(before.Tools) != 1 || before.Tools[0].Registered || !strings.Contains(before.Next, ProvisionTools) {
		t.Errorf("before it is provisioned: %+v", before)
	}
	v.as(t, "ann", ProvisionTools, `{"tool_ids":"github_search_code"}`)
	after := decoded[answer](t, v.as(t, "ann", RetrieveTools, query))
	if !after.Tools[0].Registered || after.Next != "" {
		t.Errorf("once it is provisioned: %+v", after)
	}
	if pinned := decoded[answer](t, v.as(t, "ann", RetrieveTools, `{"query":"clock_now","limit":1,"detail":"full"}`)); !pinned.Tools[0].Registered {
		t.Errorf("a pinned tool: %+v", pinned)
	}
	if text := v.tools[RetrieveTools].Def.Description; !strings.Contains(text, ProvisionTools) || strings.Contains(text, "call_tool") {
		t.Errorf("its description is %q", text)
	}
	if got := v.as(t, "ann", CallTool, `{"name":"github_serch_code"}`); !strings.Contains(got, "Find tools with discover_tools.") {
		t.Errorf("an unknown tool: %s", got)
	}
}

func TestProvisionedToolsSurviveRenaming(t *testing.T) {
	v := newGated(t, gate.Budget{})
	v.as(t, "ann", ProvisionTools, `{"tool_ids":"github_search_code"}`)
	before, _ := v.catalog().Lookup("github_search_code")
	servers := fewServers(t, echo)
	servers[0].Tools[1].Name = "grep"
	v.swap(t, servers)
	if got := v.have(t, "ann"); got != "grep" {
		t.Errorf("%q is provisioned", got)
	}
	if got := v.as(t, "ann", ExecuteTool, `{"tool_id":"grep"}`); got != "github.search_code {}" {
		t.Errorf("answer %s", got)
	}
	if now, ok := v.catalog().ByID(before.Def.ID); !ok || now.Name != "grep" {
		t.Errorf("by its ID: %v, %v", now, ok)
	}
	for _, id := range []tool.ID{{Server: "github", Name: "nothing"}, {Server: "github", Name: "search_code", Kind: tool.KindPrompt}, {Server: "github.search", Name: "code"}} {
		if found, ok := v.catalog().ByID(id); ok {
			t.Errorf("%+v is %s", id, found.Name)
		}
	}
}

func TestGateToolsAreSmallAndSayTheFlow(t *testing.T) {
	v := newGated(t, gate.Budget{})
	size := 0
	for _, meta := range v.GateTools() {
		size += len(meta.Listed())
		if !slices.Contains(Reserved(), meta.Name) {
			t.Errorf("%s is not reserved", meta.Name)
		}
	}
	if size > 2500 {
		t.Errorf("the meta-tools take %d bytes, want at most 2500", size)
	}
	last := 0
	for _, name := range []string{DiscoverTools, ProvisionTools, ExecuteTool, UnprovisionTools} {
		at := strings.Index(GatedIntro, name)
		if at < last {
			t.Errorf("%s is not in its place in %q", name, GatedIntro)
		}
		last = at
	}
}
