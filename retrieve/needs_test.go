package retrieve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// What models read by default: nothing that they have been listed, and what a call needs
// of all else.
func TestAnswersSayWhatACallNeeds(t *testing.T) {
	listed := func(relisted bool) func(_ context.Context, _ *tool.Call, _, _ []*tool.Tool) Registration {
		return func(context.Context, *tool.Call, []*tool.Tool, []*tool.Tool) Registration {
			return Registration{Names: map[string]bool{"github_create_issue": true}, Relisted: relisted}
		}
	}
	const issue = "github_create_issue: Create an issue in a repository.\n title: string\n labels?: string[]\n state?: \"open\"|\"closed\""
	for name, test := range map[string]struct {
		settings  Settings
		arguments string
		want      string
	}{
		"a signature":              {Settings{}, `{"query":"create issue","limit":1}`, issue},
		"not listed yet":           {Settings{Register: listed(false)}, `{"query":"create issue","limit":1}`, issue},
		"listed":                   {Settings{Register: listed(true)}, `{"query":"create an issue","limit":1}`, "github_create_issue (listed; found by create issue): Create an issue in a repository."},
		"listed, by its name":      {Settings{Register: listed(true)}, `{"query":"github_create_issue","limit":1}`, "github_create_issue (listed; found by github_create_issue): Create an issue in a repository."},
		"listed, by another form":  {Settings{Register: listed(true)}, `{"query":"creating new issues","limit":1}`, "github_create_issue (listed; found by creating issues): Create an issue in a repository."},
		"listed, by a parameter":   {Settings{Register: listed(true)}, `{"query":"labels","limit":1}`, "github_create_issue (listed; found by related words): Create an issue in a repository.\nPerhaps none of these is what you need."},
		"another one is not":       {Settings{Register: listed(true)}, `{"query":"search_code","limit":1}`, "github_search_code: Search code across repositories\n q?: string"},
		"no parameters":            {Settings{}, `{"query":"clock_now","limit":1}`, "clock_now: Tell the current time in a city\n no parameters"},
		"a schema beyond lines":    {Settings{}, `{"query":"delete_repository","limit":1}`, "github_delete_repository: Delete a repository forever\n schema: {\"$ref\":\"file:///etc/passwd\"}"},
		"names":                    {Settings{}, `{"query":"search_code","limit":1,"detail":"name"}`, "github_search_code"},
		"which call_tool takes it": {Settings{Offer: Offer{Call: true, Split: true}}, `{"query":"search_code","limit":1}`, "github_search_code (read): Search code across repositories\n q?: string"},
		"nothing":                  {Settings{}, `{"query":"xyzzy","limit":1}`, "Nothing was found."},
		"no tool mentions it":      {Settings{}, `{"query":"search code on sourcegraph","limit":1}`, "github_search_code: Search code across repositories\n q?: string\nPerhaps none of these is what you need.\nNo tool here mentions \"sourcegraph\"."},
		"several needs": {Settings{}, `{"queries":["search_code","create_issue","search_code in repositories"],"limit":1}`,
			"# search_code\ngithub_search_code: Search code across repositories\n q?: string\n# create_issue\n" + issue + "\n# search_code in repositories\ngithub_search_code: see above"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRetriever(t, test.settings)
			result, err := r.Retrieve(t.Context(), &tool.Call{Arguments: json.RawMessage(test.arguments)})
			if err != nil || string(result) != string(tool.TextResult(test.want)) {
				t.Errorf("error %v, answer\n%s\nwant\n%s", err, result, tool.TextResult(test.want))
			}
		})
	}
}

func TestSeveralNeedsAreRegisteredAtOnceAndLearnedApart(t *testing.T) {
	var registered []string
	memory := NewMemory(nil, nil)
	r, _ := newRetriever(t, Settings{Memory: memory, Register: func(_ context.Context, _ *tool.Call, tools, best []*tool.Tool) Registration {
		registered = append(registered, toolNames(tools))
		if toolNames(best) != toolNames(tools) { // one hit a query
			t.Errorf("the best are %v, want %v", toolNames(best), toolNames(tools))
		}
		return Registration{}
	}})
	_, err := r.Retrieve(t.Context(), &tool.Call{Session: "s", Arguments: json.RawMessage(`{"queries":["search_code","create_issue","search_code again"],"limit":1}`)})
	if err != nil || !slices.Equal(registered, []string{"github_search_code github_create_issue"}) {
		t.Errorf("registered %q, error %v", registered, err)
	}
	memory.Called("s", tool.ID{Server: "github", Name: "search_code"})
	memory.Called("s", tool.ID{Server: "github", Name: "create_issue"})
	for query, want := range map[string]string{"search_code": "search_code", "create_issue": "create_issue", "again": ""} {
		for id := range memory.Prior("", query) {
			if id.Name != want {
				t.Errorf("%s is learned to mean %s, want %q", query, id, want)
			}
		}
		if (len(memory.Prior("", query)) == 1) != (want != "") {
			t.Errorf("%s is learned to mean %v, want %q", query, memory.Prior("", query), want)
		}
	}
}

func TestNeedsShareTheLimit(t *testing.T) {
	r := &Retriever{settings: Settings{TopK: 5}}
	for _, test := range []struct{ asked, needs, want int }{
		{0, 1, 5}, {0, 2, 4}, {0, 3, 3}, {0, 4, 2}, {0, 8, 2}, {3, 1, 3}, {3, 8, 3}, {50, 1, 50}, {50, 8, 6},
	} {
		if got := r.limit(test.asked, test.needs); got != test.want {
			t.Errorf("%d needs with limit %d: %d each, want %d", test.needs, test.asked, got, test.want)
		}
	}
	r.settings.TopK = 1
	if got := r.limit(0, 3); got != 1 {
		t.Errorf("top_k 1: %d each", got)
	}
}

func TestFullAnswersToSeveralNeeds(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	text, _ := ask(t, r.Retrieve, `{"queries":["search_code","code search"],"limit":1,"detail":"full"}`)
	var answer struct {
		Needs []struct {
			Query string
			Above []string
			Tools []struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Needs) != 2 {
		t.Fatalf("%s: %v", text, err)
	}
	first, second := answer.Needs[0], answer.Needs[1]
	if first.Query != "search_code" || first.Tools[0].Name != "github_search_code" || len(second.Tools) != 0 || !slices.Equal(second.Above, []string{"github_search_code"}) {
		t.Errorf("%s", text)
	}
}

func TestAskingForSeveralNeedsIsCancelled(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if result, err := r.Retrieve(ctx, &tool.Call{Arguments: json.RawMessage(`{"queries":["a","b"]}`)}); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("answered %s, error %v", result, err)
	}
}

func TestALargeAnswerKeepsTheBestOfEachNeed(t *testing.T) {
	r, _ := newRetriever(t, Settings{})
	var needs []need
	for i := range 4 {
		n := need{Found: Found{Confidence: 1}}
		for j := range 3 {
			n.Hits = append(n.Hits, Hit{Tool: &tool.Tool{Name: fmt.Sprintf("t_%d_%d", i, j), Def: def(t, "t", `{"name":"t","inputSchema":{"type":"object","properties":{"`+strings.Repeat("p", 1500)+`":{"type":"string"}}}}`)}})
		}
		needs = append(needs, n)
	}
	text := r.text("", needs, nil, Registration{})
	for i := range 4 {
		if !strings.Contains(text, fmt.Sprintf("t_%d_0\n ppp", i)) || !strings.Contains(text, fmt.Sprintf("t_%d_2\n parameters: ask for it alone", i)) {
			t.Errorf("need %d: %s", i, text)
		}
	}
	if len(text) > maxAnswer+500 {
		t.Errorf("%d bytes", len(text))
	}
}

// A session is told once of servers that are not there, and whenever the answer is in doubt.
func TestAbsentServersAreNamedOnceOrInDoubt(t *testing.T) {
	away := []Absent{{Server: "linear", Reason: "401"}}
	r, _ := newRetriever(t, Settings{Health: func() Health { return Health{Absent: away} }})
	for i, step := range []struct {
		session, query string
		away           []Absent
		want           string
	}{
		{"a", "search_code", away, "linear: 401"},
		{"a", "search_code", away, ""},
		{"a", "track an issue in linear", away, "linear: 401"},
		{"a", "search_code", append(away, Absent{Server: "jira", Reason: "gone"}), "jira: gone"},
		{"b", "search_code", away, "linear: 401"},
		{"", "search_code", away, ""},
		{"", "linear", away, "linear: 401"},
		{"c", "search_code", nil, ""},
		{"c", "search_code", away, "linear: 401"},
	} {
		away = step.away
		result, err := r.Retrieve(t.Context(), &tool.Call{Session: step.session, Arguments: rawjson.Of(map[string]any{"query": step.query, "detail": "name"})})
		named := strings.Contains(string(result), "Not there: ")
		if err != nil || named != (step.want != "") || !strings.Contains(string(result), step.want) {
			t.Errorf("%d: %s, error %v; want %q", i, result, err, step.want)
		}
	}
}

// Of whole definitions the best is always there, the others while there is room.
func TestWholeDefinitionsHaveABound(t *testing.T) {
	var tools []*tool.Def
	for i := range 5 {
		tools = append(tools, def(t, "big", fmt.Sprintf(`{"name":"draw_%d","description":"Draw shape %d. %s","inputSchema":{"type":"object"}}`, i, i, strings.Repeat("More of it. ", 1000))))
	}
	r := New(newCatalog(t, []Server{{Name: "big", Tools: tool.Of(tools, echo)}}), Settings{})
	text, _ := ask(t, r.Retrieve, `{"query":"draw shape","detail":"full"}`)
	var answer struct {
		Tools []struct {
			Description string
			LeftOut     string `json:"left_out"`
			InputSchema json.RawMessage
		}
		Tokens int
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Tools) < 3 || len(text) > maxHit+maxAnswer {
		t.Fatalf("%d bytes, %d tools, error %v", len(text), len(answer.Tools), err)
	}
	for i, got := range answer.Tools {
		if whole := i < 2; whole != (len(got.InputSchema) > 0) || whole == (got.LeftOut != "") || !whole && got.Description != FirstSentence(got.Description) {
			t.Errorf("hit %d is whole: %t; %.100s", i, got.InputSchema != nil, got.Description)
		}
	}
	if most := len(text) / 3; answer.Tokens > most {
		t.Errorf("%d tokens, want at most %d: what is left out costs nothing", answer.Tokens, most)
	}
}
