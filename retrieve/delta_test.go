package retrieve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"toolfinch/index"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// A catalog that follows from another one and what a server has otherwise is the one that
// its contents alone would have made.
func TestCatalogsFollowChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	empty := ""
	servers := []Server{{Name: "a"}, {Name: "a_b"}, {Name: "plain", Prefix: &empty}, {Name: "c", Description: "Sees far"}}
	names := []string{"x", "b_x", "y", "a_x", "a_b_x", "c_y", "retrieve_tools", strings.Repeat("long", 16), "sees.dots"}
	list := func(server string) (tools []*tool.Tool) {
		for _, name := range names {
			if random.IntN(3) == 0 {
				continue
			}
			text := fmt.Sprintf(`{"name":%q,"description":"Sees word%d","inputSchema":{"type":"object"}`, name, random.IntN(4))
			switch random.IntN(12) {
			case 0:
				text += `,"_meta":{"ui":{"visibility":["app"]}}`
			case 1:
				text += `,"_meta":{"ui":{"resourceUri":"ui://app"}}`
			}
			def := must.Get(tool.ParseDef(server, []byte(text+"}")))(t)
			one := &tool.Tool{Def: def}
			if name == "y" && server == "c" {
				one.Name = "given"
			}
			tools = append(tools, one)
		}
		if random.IntN(3) == 0 {
			def := must.Get(tool.ParseKind(tool.KindResource, server, fmt.Appendf(nil, `{"uri":"file:///%d","name":"word%d"}`, random.IntN(3), random.IntN(4))))(t)
			tools = append(tools, &tool.Tool{Def: def})
		}
		return tools
	}
	// one is tools with another definition, a tool less or one more.
	one := func(server string, tools []*tool.Tool) []*tool.Tool {
		again := list(server)
		if len(tools) == 0 || len(again) == 0 || random.IntN(4) == 0 {
			return again[:random.IntN(len(again)+1)]
		}
		tools = slices.Clone(tools)
		other := again[random.IntN(len(again))]
		at := slices.IndexFunc(tools, func(t *tool.Tool) bool { return t.Def.ID == other.Def.ID })
		switch {
		case at < 0:
			return append(tools, other)
		case random.IntN(2) == 0:
			return slices.Delete(tools, at, at+1)
		}
		tools[at] = other
		return tools
	}
	says := func(c *Catalog) string {
		var all []string
		is := func(what any, t *tool.Tool) {
			if t != nil {
				all = append(all, fmt.Sprintln(what, t.Name, t.Def.ID, t.Def.Hash))
			}
		}
		for _, t := range c.Tools() {
			is("tool", t)
		}
		for _, t := range c.Pinned() {
			is("pinned", t)
		}
		for _, t := range c.Items(tool.KindResource) {
			is("resource", t)
		}
		for _, s := range c.Servers() {
			for _, name := range names {
				found, _ := c.find(s.Name + "." + name)
				is(s.Name, found)
			}
		}
		for _, name := range names {
			found, _ := c.OfApp(name, nil)
			is("of apps", found)
			found, _ = c.Lookup(name)
			is(name, found)
		}
		for n := range 4 {
			found := must.Get(c.Search(t.Context(), index.Query{Text: fmt.Sprint("word", n, " sees far"), Limit: 50, Kinds: []tool.Kind{tool.KindTool, tool.KindResource}}))(t)
			for _, hit := range found.Hits {
				is(hit.Score, hit.Tool)
			}
		}
		c.CountTokens(t.Context())
		tokens, counted := c.ListingTokens()
		return fmt.Sprintln(all, len(c.tools.keys()), tokens, counted, c.ListingCost())
	}
	contents := Contents{Servers: servers, Reserved: Reserved(), Pins: []string{"*_y", "c.x"}}
	followed, few := readBy(t, nil, nil), 0
	for step := range 600 {
		contents.Servers = slices.Clone(contents.Servers)
		for i := range contents.Servers {
			if step%8 == 7 {
				contents.Servers[i].Tools = nil
			}
		}
		for range 1 + random.IntN(2) {
			s := &contents.Servers[random.IntN(len(servers))]
			s.Tools = one(s.Name, s.Tools)
		}
		if _, ok := followed.latest.deltaTo(contents); ok {
			few++
		}
		next := must.Get(followed.With(t.Context(), contents))(t)
		if followed = next; step%3 == 0 { // else its tokens are not counted before the next
			anew := must.Get(NewCatalog(nil).With(t.Context(), contents))(t)
			if got, want := says(followed), says(anew); got != want {
				t.Fatalf("step %d: it is\n%s\nanew it is\n%s", step, got, want)
			}
			must.Do(t, anew.Close())
		}
	}
	if few < 200 {
		t.Errorf("only %d of the catalogs were made of a change", few)
	}
}

// The words of a tool's groups find it, also when these alone have changed.
func TestGroupsAreSearched(t *testing.T) {
	catalog := NewCatalog(nil)
	t.Cleanup(func() { _ = catalog.Close() })
	for _, group := range []string{"calendar: All meetings", "", "billing: All invoices", "calendar: All meetings"} {
		def := must.Get(tool.ParseDef("s", []byte(`{"name":"create","description":"Makes one"}`)))(t)
		def.Group = group
		catalog = with(t, catalog, []Server{{Name: "s", Description: "A server", Tools: []*tool.Tool{{Def: def}}}})
		for _, word := range []string{"meetings", "invoices", "server"} {
			found := must.Get(catalog.Search(t.Context(), index.Query{Text: word, Limit: 1}))(t)
			if want := strings.Contains(group, word) || word == "server"; (len(found.Hits) == 1) != want {
				t.Errorf("in %q, %s finds %d", group, word, len(found.Hits))
			}
		}
	}
}
