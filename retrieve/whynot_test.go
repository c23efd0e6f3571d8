package retrieve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// missed are tools of servers, and queries that are for one of them.
type missed struct {
	servers []Server
	queries []annotatedQuery // the relevant ones by "server:name"
}

func newMissed(t *testing.T, set string) missed {
	t.Helper()
	if _, err := os.Stat(annotatedSets); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the annotated catalogues are not beside the repository (shared/retrieval)")
	}
	var m missed
	defs := map[string][]*tool.Def{}
	var order []string
	eachLine(t, filepath.Join(annotatedSets, set, "tools.jsonl"), func(line []byte) {
		var head struct{ Server string }
		must.Do(t, json.Unmarshal(line, &head))
		if defs[head.Server] == nil {
			order = append(order, head.Server)
		}
		defs[head.Server] = append(defs[head.Server], def(t, head.Server, string(line)))
	})
	for _, server := range order {
		m.servers = append(m.servers, Server{Name: server, Tools: tool.Of(defs[server], echo)})
	}
	eachLine(t, filepath.Join(annotatedSets, set, "queries.jsonl"), func(line []byte) {
		var q annotatedQuery
		must.Do(t, json.Unmarshal(line, &q))
		m.queries = append(m.queries, q)
	})
	return m
}

// with returns the servers with words added to the description of one tool.
func (m missed) with(t *testing.T, id tool.ID, c Change) []Server {
	t.Helper()
	servers := slices.Clone(m.servers)
	for i, s := range servers {
		if s.Name != id.Server {
			continue
		}
		s.Tools = slices.Clone(s.Tools)
		for j, one := range s.Tools {
			if one.Def.ID == id {
				var raw map[string]any
				must.Do(t, json.Unmarshal(one.Def.Raw, &raw))
				raw["description"] = one.Def.Description + "\n" + tool.AlsoFor + strings.Join(c.Words, ", ")
				s.Tools[j] = &tool.Tool{Name: c.Name, Def: def(t, id.Server, string(must.Get(json.Marshal(raw))(t))), Handler: one.Handler}
			}
		}
		servers[i] = s
	}
	return servers
}

// check asks why queries miss their tools, and makes each proposed change. It returns how many misses there are, how
// many the change mends, and how many by words alone.
func (m missed) check(t *testing.T, most int) (misses, mended, byWords int) {
	t.Helper()
	plain := readBy(t, echo, m.servers)
	r := New(plain, Settings{})
	for _, q := range m.queries {
		for _, relevant := range q.Relevant {
			why := must.Get(r.WhyNot(t.Context(), relevant, Query{Text: q.Query}))(t)
			if why.Out != "" {
				t.Fatalf("%s is out: %s %s", relevant, why.Out, why.Reason)
			}
			if why.Rank == 1 {
				continue
			}
			misses++
			one, _ := plain.find(relevant)
			after := with(t, plain, m.with(t, one.Def.ID, *why.Change))
			found := must.Get(New(after, Settings{}).Search(t.Context(), Query{Text: q.Query, Limit: DefaultLimit}))(t)
			if first := len(found.Hits) > 0 && found.Hits[0].Def.ID == one.Def.ID; first != why.Change.First {
				t.Errorf("%q, %s, rank %d: %+v; with it the tool is first: %v", q.Query, relevant, why.Rank, *why.Change, first)
			}
			if why.Change.First {
				mended++
				if why.Change.Name == "" {
					byWords++
				}
			}
			if misses == most {
				return misses, mended, byWords
			}
		}
	}
	return misses, mended, byWords
}

func TestTheProposedWordsBringMissesToTheTop(t *testing.T) {
	var misses, mended, byWords int
	for _, set := range []string{"livemcp", "mcpreal", "metatool", "bfcl", "toolbench", "sealtools"} {
		a, b, c := newMissed(t, set).check(t, 17)
		misses, mended, byWords = misses+a, mended+b, byWords+c
	}
	t.Logf("of %d misses, the change mends %d, words alone %d", misses, mended, byWords)
	if misses < 100 || mended*100 < 97*misses || byWords*100 < 93*misses {
		t.Errorf("of %d misses, the change mends %d, words alone %d", misses, mended, byWords)
	}
}

func TestWhyNot(t *testing.T) {
	m := missed{servers: []Server{
		{Name: "home", Tools: tool.Of([]*tool.Def{
			def(t, "home", `{"name":"put_away","description":"Stores a thing in a drawer."}`),
			def(t, "home", `{"name":"remember_drawer","description":"Remember the colour of a drawer."}`),
			def(t, "home", `{"name":"paint","description":"Paints a drawer in any colour."}`),
			def(t, "home", `{"name":"show_app","_meta":{"ui":{"visibility":["app"]}}}`),
		}, echo), Held: []Held{{Tool: &tool.Tool{Def: def(t, "home", `{"name":"sell","description":"Sells."}`)}, Why: "was changed by its server"}}},
		{Name: "shop", Tools: tool.Of([]*tool.Def{
			def(t, "shop", `{"name":"spell_check","description":"Checks the spelling of a text."}`),
			def(t, "shop", `{"name":"check_spelling","description":"Checks the spelling of a word."}`),
		}, echo)},
		{Name: "gone"},
	}}
	whole := readBy(t, echo, m.servers)
	part := whole.Only(Allowed{
		Use:    func(d *tool.Def, _ string) bool { return d.ID.Server != "shop" && d.ID.Name != "sell" },
		Find:   func(d *tool.Def, _ string) bool { return d.ID.Name != "paint" },
		Server: func(name string) bool { return name != "shop" },
	})
	health := func() Health {
		return Health{Absent: []Absent{{Server: "gone", Prefix: "gone", Reason: "exit status 1"}, {Server: "shop", Prefix: "shop", Login: "run `toolfinch server login shop`"}}}
	}
	for _, test := range []struct {
		catalog     *Catalog
		name, query string
		want        Why
	}{
		{whole, "home_put_away", "stash and remember my keys", Why{Rank: 0, Lacks: []string{"stash", "remember", "keys"}, Change: &Change{First: true}}},
		{whole, "home.put_away", "remember the drawer", Why{Rank: 3, Lacks: []string{"remember"}, Change: &Change{}}},
		{part, "home.put_away", "remember the drawer", Why{Rank: 2, Lacks: []string{"remember"}, Change: &Change{}}},
		{whole, "home:paint", "Remember Greta 3726 by colour", Why{Rank: 2, Lacks: []string{"remember", "greta", "3726"}, Change: &Change{First: true}}},
		{whole, "shop_spell_check", "spelling of a word", Why{Rank: 2, Lacks: []string{"word"}, Server: "needs login: run `toolfinch server login shop`", Change: &Change{First: true}}},
		{whole, "home_paint", "paint", Why{Rank: 1}},
		{whole, "home_paint", "home.remember_drawer", Why{Rank: 2, Lacks: []string{"home", "remember"}, Change: &Change{}}},
		{whole, "home_show_app", "show", Why{Out: OutHidden, Lacks: []string{"show"}}},
		{whole, "home_pain", "paint", Why{Out: OutUnknown, Reason: "nearest: home_paint, home_put_away"}},
		{whole, "home.sell", "sell", Why{Out: OutHeld, Reason: "it is held: home.sell was changed by its server. The user can see why, and approve it, with: toolfinch pins"}},
		{whole, "gone_away", "leave", Why{Out: OutServer, Reason: "failed: gone: exit status 1"}},
		{whole, "shop_spell_check", "spell check", Why{Rank: 1, Server: "needs login: run `toolfinch server login shop`"}},
		{part, "home_paint", "paint", Why{Out: OutPolicy}},
		{part, "home.sell", "sell", Why{Out: OutUnknown}},
		{part, "shop_spell_chec", "spell check", Why{Out: OutUnknown}},
	} {
		r := New(test.catalog, Settings{Health: health})
		if test.catalog == part {
			r = New(part, Settings{})
		}
		got := must.Get(r.WhyNot(t.Context(), test.name, Query{Text: test.query}))(t)
		want := test.want
		if got.Out != want.Out || want.Reason != "" && got.Reason != want.Reason || (got.Rank == 1) != (want.Rank == 1) || got.Server != want.Server || fmt.Sprint(got.Lacks) != fmt.Sprint(want.Lacks) {
			t.Errorf("%s for %q: %+v", test.name, test.query, got)
		}
		if (got.Change == nil) != (want.Change == nil) || got.Change != nil && got.Change.First != want.Change.First {
			t.Errorf("%s for %q: the change is %+v", test.name, test.query, got.Change)
		}
		if strings.Contains(fmt.Sprint(got), "shop") && test.catalog == part && !strings.Contains(test.name, "shop") {
			t.Errorf("%s for %q tells of what is not allowed: %+v", test.name, test.query, got)
		}
		if got.Change != nil && got.Change.First && test.catalog == whole {
			if len(got.Change.Words) == 0 && got.Change.Name == "" || slices.Contains(got.Change.Words, "3726") {
				t.Errorf("%s for %q: the change is %+v", test.name, test.query, *got.Change)
			}
			one, _ := whole.find(test.name)
			after := New(with(t, readBy(t, echo, m.servers), m.with(t, one.Def.ID, *got.Change)), Settings{})
			if found := must.Get(after.Search(t.Context(), Query{Text: test.query, Limit: 1}))(t); found.Hits[0].Def.ID != one.Def.ID {
				t.Errorf("%s for %q: with %+v, %s is first", test.name, test.query, *got.Change, found.Hits[0].Name)
			}
		}
	}
}

func TestDataOfOneRequestIsKnown(t *testing.T) {
	for query, want := range map[string]string{
		"Check the weather in Nairobi, Kenya on 2023-04-20?": "nairobi kenya 2023 04 20",
		"Compute 443 * 349. Then mail it to Ann-Lee":         "443 349 ann lee",
		"getURLs of a page: Every one":                       "",
		"":                                                   "",
	} {
		if got := strings.Join(valuesIn(query), " "); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

func TestWhyNotSaysWhatIsAboveAndWhy(t *testing.T) {
	r, catalog := newRetriever(t, Settings{})
	why := must.Get(r.WhyNot(t.Context(), "github_search_code", Query{Text: "create code"}))(t)
	if len(why.Above) != 1 || why.Above[0].Tool != "github_create_issue" || why.Above[0].Leads[0].Name != "word creat" || why.Hybrid || len(why.Parts) != 2 || why.Score == 0 {
		t.Errorf("%+v", why)
	}
	embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
	r.UseVectors(&script{dim: 16}, "")
	why = must.Get(r.WhyNot(t.Context(), "github_search_code", Query{Text: "create code"}))(t)
	if !why.Hybrid || len(why.Parts) < 3 || why.Parts[2].Name != "vectors" {
		t.Errorf("with vectors: %+v", why)
	}
}
