package retrieve

import (
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestUnmentionedThingsAreNamedInDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		query, server string
		kinds         []tool.Kind
		absent        []Absent
		only          string // the caller may use the tools of this server alone
		doubt         bool
		want          string
	}{
		"a short query":             {query: "create an issue in jira", doubt: true, want: "jira"},
		"of one server":             {query: "create an issue in jira", server: "github", doubt: true, want: "jira"},
		"a longer one is confident": {query: "create an issue in a repository with title, labels and some state in jira"},
		"all are mentioned":         {query: "create an issue in a repository"},
		"a name":                    {query: "github_create_issue"},
		"prose":                     {query: "my aunt loves her mountains with old cheese", doubt: true},
		"an absent server is named": {query: "create an issue in jira", absent: []Absent{{Server: "jira", Reason: "gone"}}, doubt: true},
		"other absent servers":      {query: "create an issue in jira", absent: []Absent{{Server: "linear", Reason: "gone"}}, doubt: true, want: "jira"},
		"what policies hide":        {query: "the current issue", only: "clock", doubt: true, want: "issue"},
		"only tools are measured":   {query: "create an issue in jira", kinds: []tool.Kind{tool.KindPrompt}, doubt: true},
	} {
		_, catalog := newRetriever(t, Settings{})
		if test.only != "" {
			may := func(def *tool.Def, _ string) bool { return def.ID.Server == test.only }
			catalog = catalog.Only(Allowed{Use: may, Find: may, Server: func(server string) bool { return server == test.only }})
		}
		r := New(catalog, Settings{Health: func() Health { return Health{Absent: test.absent} }})
		found := must.Get(r.Search(t.Context(), Query{Text: test.query, Limit: 3, Server: test.server, Kinds: test.kinds}))(t)
		want := ""
		if test.want != "" {
			want = `No tool here mentions "` + test.want + `".`
		}
		if got := found.NotMentioned(); (found.Confidence < Confident) != test.doubt || got != want || !slices.Equal(found.Unmentioned, strings.Fields(test.want)) {
			t.Errorf("%s: confidence %.2f, %q; want doubt %t, %q", name, found.Confidence, got, test.doubt, want)
		}
	}
}
