package index

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// item is a document of any kind, exposed under its own name behind the server's.
func item(t testing.TB, kind tool.Kind, server, raw string) Document {
	t.Helper()
	def := must.Get(tool.ParseKind(kind, server, json.RawMessage(raw)))(t)
	exposed := def.ID.Name
	if kind == tool.KindPrompt {
		exposed = server + "_" + exposed
	}
	return Document{Name: Key(kind, exposed), Def: def}
}

// someItems are prompts and resources, one answer each to the queries below.
func someItems(t testing.TB) []Document {
	return []Document{
		item(t, tool.KindPrompt, "github", `{"name":"review","title":"Code critique","description":"Go through a change and comment on it.","arguments":[{"name":"branchName","description":"where the proposal lives","required":true},7]}`),
		item(t, tool.KindPrompt, "files", `{"name":"search_code"}`),
		item(t, tool.KindResource, "files", `{"uri":"file:///srv/shared/quarterly%20figures.csv","name":"sales","description":"What was sold.","mimeType":"text/csv"}`),
		item(t, tool.KindResource, "memo", `{"uri":"memo:insights"}`),
		item(t, tool.KindTemplate, "weather", `{"uriTemplate":"weather://forecast/{city}{?daysAhead*,unit:3}","name":"outlook"}`),
		skill(t, "acme", "refunds", "Pay customers back.", "What a claim needs"),
	}
}

// skill is a skill with a file "letters/apology.md" and a heading.
func skill(t testing.TB, server, name, description, heading string) Document {
	t.Helper()
	uri := "skill://billing/" + name
	d := item(t, tool.KindSkill, server, fmt.Sprintf(`{"uri":"%s/SKILL.md","frontmatter":{"name":%q,"description":%q},"resources":[{"uri":"%[1]s/SKILL.md"},{"uri":"%[1]s/letters/apology.md"}]}`, uri, name, description))
	d.Def.Headings = []string{heading}
	return d
}

var (
	prompts   = []tool.Kind{tool.KindPrompt}
	resources = []tool.Kind{tool.KindResource, tool.KindTemplate}
	skills    = []tool.Kind{tool.KindSkill}
)

func TestPromptsAndResourcesAreFound(t *testing.T) {
	x := build(t, append(small(t), someItems(t)...)...)
	const refunds = "skill:skill://billing/refunds/SKILL.md"
	const review, sales, outlook = "prompt:github_review", "resource:file:///srv/shared/quarterly%20figures.csv", "template:weather://forecast/{city}{?daysAhead*,unit:3}"
	for _, test := range []struct {
		what, query string
		kinds       []tool.Kind
		want        string
	}{
		{"a prompt's name", "review", prompts, review},
		{"its exposed name", "github_review", prompts, review},
		{"its title", "critique", prompts, review},
		{"its description", "commenting on changes", prompts, review},
		{"an argument", "branch", prompts, review},
		{"an argument's description", "proposals", prompts, review},
		{"a resource's name", "sales", resources, sales},
		{"its URI's path", "quarterly figures", resources, sales},
		{"its media type", "csv", resources, sales},
		{"its URI", "file:///srv/shared/quarterly%20figures.csv", resources, sales},
		{"a URI without slashes", "insights", resources, "resource:memo:insights"},
		{"a template's path", "forecasts", resources, outlook},
		{"its variables", "days ahead", resources, outlook},
		{"a skill's name", "refund", skills, refunds},
		{"its description", "give customers", skills, refunds},
		{"its path", "billing", skills, refunds},
		{"a file of it", "apology letter", skills, refunds},
		{"a heading of it", "what do claims need", skills, refunds},
		{"one kind of a group", "forecasts", []tool.Kind{tool.KindTemplate}, outlook},
		{"a word half typed", "quarterl", resources, sales},
		{"among everything", "quarterly figures", tool.Kinds, sales},
		{"tools among everything", "create an issue", tool.Kinds, "github_create_issue"},
	} {
		t.Run(test.what, func(t *testing.T) {
			hits := search(t, x, Query{Text: test.query, Kinds: test.kinds, Limit: 3})
			if len(hits) == 0 || hits[0].Name != test.want {
				t.Errorf("%q finds %v, want %s first", test.query, hits, test.want)
			}
		})
	}
}

func TestOnlyTheKindsAskedForAreFound(t *testing.T) {
	x := build(t, append(small(t), someItems(t)...)...)
	for _, d := range x.Missing() { // all alike, so that by vectors everything is a hit
		must.Do(t, x.PutVectors([]Document{d}, [][]float32{{1, float32(len(d.Name))}}))
	}
	for _, test := range []struct {
		kinds []tool.Kind
		words string // the kinds found by words
		all   string // by vectors, too
	}{
		{nil, "tool", "tool"},
		{[]tool.Kind{tool.KindTool}, "tool", "tool"},
		{prompts, "prompt", "prompt"},
		{[]tool.Kind{tool.KindResource}, "", "resource"},
		{resources, "", "resource template"},
		{[]tool.Kind{tool.KindTool, tool.KindPrompt}, "prompt tool", "prompt tool"},
		{tool.Kinds, "prompt tool", "prompt resource skill template tool"},
		{[]tool.Kind{}, "", ""},
	} {
		q := Query{Text: "search_code", Kinds: test.kinds, Limit: 50}
		if got := kindsOf(search(t, x, q)); got != test.words {
			t.Errorf("words for %v find %s, want %s", test.kinds, got, test.words)
		}
		q.Vectors = [][]float32{{1, 1}}
		if got := kindsOf(search(t, x, q)); got != test.all {
			t.Errorf("vectors for %v find %s, want %s", test.kinds, got, test.all)
		}
	}
}

// kindsOf names the kinds among hits, sorted.
func kindsOf(hits []Hit) string {
	var out []string
	for _, hit := range hits {
		kind, _, other := strings.Cut(hit.Name, ":")
		if !other {
			kind = "tool"
		}
		out = append(out, kind)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

func TestAPromptWithTheNameOfAToolIsAnotherDocument(t *testing.T) {
	x := build(t, doc(t, "s", "a", "Alpha."), item(t, tool.KindPrompt, "s", `{"name":"a","description":"Beta."}`))
	if x.Len() != 2 {
		t.Fatalf("%d documents", x.Len())
	}
	must.Do(t, x.Apply(t.Context(), nil, []string{Key(tool.KindPrompt, "s_a")}))
	if got := names(search(t, x, Query{Text: "s_a", Kinds: tool.Kinds, Limit: 5})); !slices.Equal(got, []string{"s_a"}) {
		t.Errorf("left: %v", got)
	}
}

// Prompts and resources that say the same words over and over change nothing
// for who looks for tools: not a score, not the confidence.
func TestToolsScoreTheSameBesidePromptsAndResources(t *testing.T) {
	without := build(t, small(t)...)
	docs := small(t)
	for i := range 40 {
		docs = append(docs,
			item(t, tool.KindPrompt, "github", fmt.Sprintf(`{"name":"create_issue_%d","description":"Create an issue, search code, read a file."}`, i)),
			item(t, tool.KindResource, "files", fmt.Sprintf(`{"uri":"file:///search/code/%d","name":"issue"}`, i)),
			skill(t, "github", fmt.Sprint("create-issue-", i), "Create an issue, search code, read a file.", "Search code"))
	}
	with := build(t, docs...)
	for _, q := range []Query{
		{Text: "create an issue in the repository"}, {Text: "search code"}, {Text: "search_code"}, {Text: "buck"},
		{Text: "read a file and search links", Server: "files"}, {Text: "issue", Explain: true},
	} {
		q.Limit = 20
		want, err := without.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := with.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Hits) == 0 || fmt.Sprint(names(got.Hits)) != fmt.Sprint(names(want.Hits)) || got.Confidence != want.Confidence {
			t.Errorf("%q: %v (confidence %v), without prompts and resources %v (%v)", q.Text, got.Hits, got.Confidence, want.Hits, want.Confidence)
		}
		for i, hit := range got.Hits {
			if hit.Score != want.Hits[i].Score {
				t.Errorf("%q: %s scores %v, without prompts and resources %v", q.Text, hit.Name, hit.Score, want.Hits[i].Score)
			}
		}
	}
}

func TestTextOfPromptsAndResources(t *testing.T) {
	want := []string{
		"github review (Code critique): Go through a change and comment on it. branch Name",
		"files search code: ",
		"files sales: What was sold. srv shared quarterly figures csv",
		"memo memo insights:  insights",
		"weather outlook:  forecast, city, days Ahead unit 3",
		"acme refunds: Pay customers back. billing refunds, letters apology md",
	}
	for i, d := range someItems(t) {
		if got := Text(d); got != want[i] {
			t.Errorf("%s: %q, want %q", d.Name, got, want[i])
		}
	}
}
