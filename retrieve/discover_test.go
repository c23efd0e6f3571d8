package retrieve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/embed"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestTags(t *testing.T) {
	for _, test := range []struct{ server, raw, want string }{
		{"github", `{"name":"create_issue","description":"Create an issue in a repository. It is filed at once.","annotations":{"destructiveHint":false}}`, "github create issue repository"},
		{"GitHub", `{"name":"searchCode","description":"Finds code across the repositories of GitHub","annotations":{"readOnlyHint":true,"destructiveHint":true,"openWorldHint":true}}`, "github read-only open-world search code finds across repositories"},
		{"db", `{"name":"drop","annotations":{"destructiveHint":true,"idempotentHint":true}}`, "db destructive idempotent drop"},
		{"db", `{"name":"drop","annotations":{"destructiveHint":"true"}}`, "db drop"},
		{"s", `{"name":"get_1_a","description":"Show it"}`, "s"}, // words that say nothing
		{"s", `{"name":"a","description":"one two three four five six seven eight nine ten eleven twelve"}`, "s one two three four five six seven eight nine"},
		{"読む", `{"name":"本を読む"}`, "読む 本を読む"},
	} {
		got := Tags(&tool.Tool{Def: def(t, test.server, test.raw)})
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", test.raw, got, test.want)
		}
	}
}

func TestTagged(t *testing.T) {
	plain := &tool.Tool{Name: "my_server_create_issues", Def: def(t, "my-server", `{"name":"create_issues","title":"Ticket maker","description":"Reads the templates, then files tickets","inputSchema":{"type":"object","properties":{"priority":{}}}}`)}
	reader := &tool.Tool{Name: "my_server_get", Def: def(t, "my-server", `{"name":"get","description":"Not destructive","annotations":{"readOnlyHint":true}}`)}
	prompt := &tool.Tool{Name: "p", Def: ofKind(t, tool.KindPrompt, "my-server", `{"name":"p","description":"Write destructive code"}`)}
	catalog := newCatalog(t, []Server{{Name: "my-server", Description: "An issue tracker", Tools: []*tool.Tool{}}})
	for _, test := range []struct {
		tool *tool.Tool
		tags []string
		want bool
	}{
		{plain, nil, true},
		{plain, []string{"my-server"}, true},
		{plain, []string{"My_Server"}, true},
		{plain, []string{"myserver"}, true},
		{plain, []string{"server"}, true}, // a word of its name
		{plain, []string{"issue"}, true},
		{plain, []string{"TICKETS"}, true},
		{plain, []string{"issue tickets"}, true},
		{plain, []string{"issue", "tracker"}, true}, // the server's description
		{plain, []string{"issue", "calendar"}, false},
		{plain, []string{"issue calendar"}, false},
		{plain, []string{"priority"}, false}, // a parameter
		{plain, []string{"my"}, false},       // says nothing
		{plain, []string{""}, false},
		{plain, []string{"-"}, false},
		{plain, []string{"read-only"}, false}, // though it reads
		{plain, []string{"destructive", "open_world"}, true},
		{plain, []string{"idempotent"}, false},
		{reader, []string{"read-only"}, true},
		{reader, []string{"readOnly"}, true},
		{reader, []string{"read_only"}, true},
		{reader, []string{"readOnlyHint"}, true},
		{reader, []string{"destructive"}, false}, // though the word is there
		{prompt, []string{"destructive"}, true},  // a word: prompts have no hints
		{prompt, []string{"read-only"}, false},
		{prompt, []string{"open-world"}, false},
	} {
		if got := catalog.Tagged(test.tags)(test.tool); got != test.want {
			t.Errorf("%s has %q: %v, want %v", test.tool.Def.ID, test.tags, got, test.want)
		}
	}
}

// The tags that a tool is shown with find it, whoever looks.
func TestEveryTagShownIsHad(t *testing.T) {
	servers := realServers(t)
	catalog := newCatalog(t, servers)
	shown := 0
	for _, one := range catalog.Tools() {
		tags := Tags(one)
		if again := catalog.words.tagsOf(one); !slices.Equal(tags, again) || !slices.Equal(tags, catalog.words.tagsOf(one)) {
			t.Errorf("%s: %q, then %q", one.Name, tags, again)
		}
		if len(tags) > maxTags || !slices.Contains(tags, strings.ToLower(one.Def.ID.Server)) {
			t.Errorf("%s: %q", one.Name, tags)
		}
		for _, tag := range tags {
			shown++
			if tag != strings.ToLower(tag) || !catalog.Tagged([]string{tag})(one) {
				t.Errorf("%s has not its tag %q", one.Name, tag)
			}
		}
	}
	t.Logf("%d tags of %d tools", shown, catalog.Len())
}

func discovered(t testing.TB, r *Retriever, q DiscoverQuery) string {
	t.Helper()
	found := must.Get(r.Discover(t.Context(), &tool.Call{}, q))(t)
	var names []string
	for _, one := range found.Tools {
		names = append(names, one.ToolID)
	}
	return strings.Join(names, " ")
}

func TestDiscoverSaysWhatAToolIsAndCosts(t *testing.T) {
	r, catalog := newRetriever(t, Settings{})
	text, isError := ask(t, r.GateTools()[0].Handler, `{"query":"create_issue","limit":1}`)
	found := decoded[map[string]json.RawMessage](t, text)
	if isError || string(found["confident"]) != "true" {
		t.Fatal(text)
	}
	create, _ := catalog.Lookup("github_create_issue")
	one := decoded[[]map[string]any](t, string(found["tools"]))[0]
	delete(one, "score")
	want := map[string]any{
		"tool_id": "github_create_issue", "server": "github", "name": "create_issue",
		"description": "Create an issue in a repository.", "tags": []any{"github", "create", "issue", "repository"},
		"tokens": float64(catalog.Tokens(create)), "signature": `(title: string, labels?: string[], state?: "open"|"closed")`,
	}
	if fmt.Sprint(one) != fmt.Sprint(want) || string(found["tokens"]) != fmt.Sprint(catalog.Tokens(create)) {
		t.Errorf("found %v of %s tokens, want %v", one, found["tokens"], want)
	}
}

func TestWithoutAQueryToolsAreListed(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	for _, test := range []struct {
		arguments, names string
		more             int
	}{
		{``, "calendar_add_event clock_now github_create_issue github_delete_repository github_search_code", 0},
		{`{"query":" ","limit":2}`, "calendar_add_event clock_now", 3},
		{`{"tags":["github"],"limit":"2"}`, "github_create_issue github_delete_repository", 1},
		{`{"tags":"github"}`, "github_create_issue github_delete_repository github_search_code", 0},
		{`{"tags":"[\"github\",\"read-only\"]"}`, "github_search_code", 0},
		{`{"tags":["hosting"]}`, "github_create_issue github_delete_repository github_search_code", 0}, // the server's description
		{`{"tags":["cake"]}`, "", 0},
	} {
		text, _ := ask(t, r.GateTools()[0].Handler, test.arguments)
		got := decoded[Discovery](t, text)
		var names []string
		for _, one := range got.Tools {
			names = append(names, one.ToolID)
		}
		if strings.Join(names, " ") != test.names || got.More != test.more || got.Confident != nil {
			t.Errorf("%s: %q and %d more, want %q and %d; %s", test.arguments, names, got.More, test.names, test.more, text)
		}
	}
}

func TestDiscoverFindsWhatRetrieveToolsFinds(t *testing.T) {
	r := New(newCatalog(t, manyServers(t, 60)), Settings{})
	for _, query := range []string{"tool_7", "job 12", "please do something about the holidays of my aunt in the mountains and her job"} {
		found := must.Get(r.Search(t.Context(), Query{Text: query, Limit: 10}))(t)
		if got, want := discovered(t, r, DiscoverQuery{Text: query, Limit: 10}), strings.Join(hitNames(found.Hits), " "); got != want {
			t.Errorf("%q finds %s, retrieve_tools %s", query, got, want)
		}
	}
}

// A tag finds tools that the search puts below hundreds of others.
func TestTagsNarrowBeforeTheCut(t *testing.T) {
	servers := manyServers(t, 400)
	for n := range 4 { // a random vector may lift one
		servers[3].Tools = append(servers[3].Tools, tool.Of([]*tool.Def{
			def(t, "server3", fmt.Sprintf(`{"name":"far_%d","description":"A walrus; there was once a job that it had, long ago and in another country, before all this and the rest of what happened"}`, n)),
		}, echo)...)
	}
	zoo := Server{Name: "zoo"} // its tools share no word with the query
	for n := range 40 {
		zoo.Tools = append(zoo.Tools, tool.Of([]*tool.Def{def(t, "zoo", fmt.Sprintf(`{"name":"feed_%d"}`, n))}, echo)...)
	}
	servers = append(servers, zoo)
	catalog := newCatalog(t, servers)
	fake := newFake("fake:1")
	for _, mode := range []string{"words", "hybrid"} {
		t.Run(mode, func(t *testing.T) {
			r := New(catalog, Settings{QueryTimeout: time.Hour})
			if mode == "hybrid" {
				embedAll(t, catalog, fake, &storeInMemory{})
				r.UseVectors(queriesFunc(func(ctx context.Context, texts []string) ([][]float32, error) {
					return fake.Embed(ctx, embed.Query, texts)
				}), "")
			}
			found := func(tags ...string) string {
				return discovered(t, r, DiscoverQuery{Text: "do a job", Tags: tags, Limit: MaxLimit})
			}
			without := found()
			if strings.Count(without, "far_") == 4 {
				t.Fatalf("without a tag it finds %s: the rest says nothing", without)
			}
			if got := found("walrus"); strings.Count(got, "far_") != 4 || len(strings.Fields(got)) != 4 {
				t.Errorf("with a tag that four tools have it finds %q", got)
			}
			// Half of the vectors that mean nothing resemble the query.
			if got := found("zoo"); strings.Count(got, "zoo_feed_") < 10 == (mode == "hybrid") || strings.Count(without, "zoo_feed_") >= 10 {
				t.Errorf("with the name of a server it finds %q, without %q", got, without)
			}
			if got := found("nowhere"); got != "" {
				t.Errorf("with a tag that nothing has it finds %q", got)
			}
			all := strings.Fields(found("job"))
			if slices.Sort(all); len(all) < 20 || len(slices.Compact(slices.Clone(all))) != len(all) {
				t.Errorf("with a tag that nearly all have it finds %q", all)
			}
		})
	}
}

// What a search is sure of says nothing once tags have left its best hit out.
func TestConfidenceIsOfWhatIsShown(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	for tags, want := range map[string]string{`[]`: "true", `["github"]`: "true", `["delete"]`: "null"} {
		text, _ := ask(t, r.GateTools()[0].Handler, `{"query":"github_create_issue","tags":`+tags+`}`)
		got := decoded[struct{ Confident *bool }](t, text)
		if is, _ := json.Marshal(got.Confident); string(is) != want {
			t.Errorf("with tags %s: confident %s, want %s: %s", tags, is, want, text)
		}
	}
}

func TestTagsFollowTheCatalog(t *testing.T) {
	r, catalog := newRetriever(t, Settings{})
	cakes := DiscoverQuery{Tags: []string{"cake"}}
	if got := discovered(t, r, cakes); got != "" {
		t.Fatal(got)
	}
	for n := range 20 { // more than is remembered of tools that are gone
		name := fmt.Sprintf("bake_%d", n)
		servers := []Server{{Name: "clock", Tools: tool.Of([]*tool.Def{def(t, "clock", `{"name":"`+name+`","description":"Bakes cakes"}`)}, echo)}}
		if n == 19 {
			servers[0].Description = "A bakery"
		}
		catalog = with(t, catalog, servers)
		r = New(catalog, Settings{})
		if got := discovered(t, r, cakes); got != "clock_"+name {
			t.Errorf("found %q", got)
		}
	}
	if got := discovered(t, r, DiscoverQuery{Tags: []string{"bakeries"}}); got != "clock_bake_19" {
		t.Errorf("by what the server is for: %q", got)
	}
	if n := len(catalog.words.terms) + len(catalog.words.tags); n > 10 {
		t.Errorf("%d texts are remembered of one tool", n)
	}
}

func TestDiscoveredToolsAreLearnedFrom(t *testing.T) {
	memory := NewMemory(nil, func(Use) {})
	r, catalog := newRetriever(t, Settings{Memory: memory})
	search, _ := catalog.Lookup("github_search_code")
	must.Get(r.Discover(t.Context(), &tool.Call{Session: "s"}, DiscoverQuery{Text: "search code", Tags: []string{"github"}}))(t)
	memory.Called("s", search.Def.ID)
	if memory.Prior("", "search code")[search.Def.ID] == 0 {
		t.Error("a call of what was discovered is not learned from")
	}
}
