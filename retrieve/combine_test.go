package retrieve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/index"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// together is a catalog of the parts.
func together(t testing.TB, parts ...ViewCatalog) (*Catalog, []Displaced) {
	t.Helper()
	contents, renamed := Combine(parts, Reserved())
	root := NewCatalog(echo)
	t.Cleanup(func() { _ = root.Close() })
	all := must.Get(root.With(t.Context(), contents))(t)
	return all, renamed
}

// named is a server whose tool has a name that a view gave it.
func named(t testing.TB, server, own, name string) Server {
	s := listing(t, server, "tool "+own)
	s.Tools[0].Name = name
	return s
}

func TestNamesOfViewsTogether(t *testing.T) {
	long := strings.Repeat("x", maxName)
	for name, c := range map[string]struct {
		parts   [][]Server // of the views a, b and c
		want    string
		renamed string
	}{
		"one":             {[][]Server{{listing(t, "s", "tool x", "tool y")}}, "s_x s_y", "[]"},
		"apart":           {[][]Server{{listing(t, "s", "tool x")}, {listing(t, "s", "tool y")}}, "s_x s_y", "[]"},
		"the same tool":   {[][]Server{{listing(t, "s", "tool x")}, {listing(t, "s", "tool x")}}, "a_s_x b_s_x", "[{s_x [a_s_x b_s_x]}]"},
		"one name":        {[][]Server{{named(t, "s", "x", "go")}, {named(t, "r", "y", "go"), listing(t, "s", "tool x")}}, "a_go b_go s_x", "[{go [a_go b_go]}]"},
		"a meta-tool":     {[][]Server{{named(t, "s", "x", CallTool)}}, "a_call_tool", "[{call_tool [a_call_tool]}]"},
		"the other taken": {[][]Server{{named(t, "s", "x", "go")}, {named(t, "s", "x", "go")}, {named(t, "r", "y", "a_go")}}, "a_go a_go_f2a51556 b_go", "[{go [a_go_f2a51556 b_go]}]"},
		"too long":        {[][]Server{{named(t, "s", "x", long)}, {named(t, "s", "x", long)}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var parts []ViewCatalog
			for i, servers := range c.parts {
				parts = append(parts, ViewCatalog{View: string(rune('a' + i)), Catalog: catalogOf(t, servers...)})
			}
			all, renamed := together(t, parts...)
			if got := toolNames(all.Tools()); c.want != "" && (got != c.want || fmt.Sprint(renamed) != c.renamed) {
				t.Errorf("the names are %s, %v; want %s, %s", got, renamed, c.want, c.renamed)
			}
			for _, one := range all.Tools() {
				if len(one.Name) > maxName {
					t.Errorf("%s is too long", one.Name)
				}
			}
		})
	}
}

// A tool that several views have is found by its ID in the first, and under all of its names.
func TestAToolOfSeveralViewsIsOneOfEach(t *testing.T) {
	one, two := catalogOf(t, listing(t, "s", "tool x")), catalogOf(t, listing(t, "s", "tool x", "tool y"))
	all, _ := together(t, ViewCatalog{View: "a", Catalog: one}, ViewCatalog{View: "b", Catalog: two, Listed: true})
	for name, want := range map[string]string{"s.x": "a_s_x", "s:x": "a_s_x", "b_s_x": "b_s_x", "s.y": "s_y"} {
		if found, err := all.Find(name); err != nil || found.Name != want {
			t.Errorf("%s is %v, %v; want %s", name, found, err, want)
		}
	}
	if got := toolNames(all.Pinned()); got != "b_s_x s_y" {
		t.Errorf("listed from the start: %s", got)
	}
	// What was learned of it holds for both.
	prior := New(all, Settings{Memory: learnedIn("sell a hat", "s.x")}).prior("", "sell a hat")
	if prior["a_s_x"] == 0 || prior["a_s_x"] != prior["b_s_x"] {
		t.Errorf("expected are %v", prior)
	}
}

// Views together answer as one that has all of it.
func TestViewsTogetherAreSearchedAsOne(t *testing.T) {
	servers := fewServers(t, echo)
	whole := newCatalog(t, servers)
	all, _ := together(t, ViewCatalog{View: "a", Catalog: newCatalog(t, servers[:1])}, ViewCatalog{View: "b", Catalog: newCatalog(t, servers[1:])})
	for _, query := range []string{"create an issue", "what time is it", "calendar"} {
		a, err := whole.Search(t.Context(), index.Query{Text: query, Limit: 5})
		b, wrong := all.Search(t.Context(), index.Query{Text: query, Limit: 5})
		if err != nil || wrong != nil || len(a.Hits) == 0 || !slices.EqualFunc(a.Hits, b.Hits, func(a, b Hit) bool { return a.Name == b.Name && a.Score == b.Score }) {
			t.Errorf("%s: %v, want %v", query, hitNames(b.Hits), hitNames(a.Hits))
		}
	}
}

// A resource is served as far as one of the views serves it.
func TestResourcesOfViewsTogether(t *testing.T) {
	part := func(view string, excluded string, unlisted Unlisted, lines ...string) ViewCatalog {
		s := listing(t, "s", lines...)
		s.Excluded, s.Unlisted = func(id tool.ID) bool { return strings.HasPrefix(id.Name, excluded) }, unlisted
		return ViewCatalog{View: view, Catalog: catalogOf(t, s)}
	}
	none := part("none", "", UnlistedTemplate)
	some := part("some", "file:///secret", UnlistedTemplate, "resource file:///a", "template file:///t/{x}")
	for name, c := range map[string]struct {
		parts    []ViewCatalog
		readable string
	}{
		"none":          {[]ViewCatalog{none}, ""},
		"some":          {[]ViewCatalog{none, some}, "file:///a file:///t/1"},
		"some and more": {[]ViewCatalog{some, part("else", "nothing:", UnlistedOnly, "resource file:///a", "resource file:///secret/a")}, "file:///a file:///t/1 file:///secret/a file:///other"},
	} {
		all, _ := together(t, c.parts...)
		var got []string
		for _, uri := range []string{"file:///a", "file:///t/1", "file:///secret/a", "file:///other"} {
			if _, ok := all.Resource(uri); ok {
				got = append(got, uri)
			}
		}
		if strings.Join(got, " ") != c.readable {
			t.Errorf("%s: %v can be read, want %s", name, got, c.readable)
		}
	}
}
