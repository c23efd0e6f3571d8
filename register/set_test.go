package register

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolfinch/tool"
)

func named(names ...string) []*tool.Tool {
	var tools []*tool.Tool
	for _, name := range names {
		tools = append(tools, &tool.Tool{Name: name, Def: &tool.Def{Hash: name}})
	}
	return tools
}

func TestPlan(t *testing.T) {
	type step struct {
		find, use      string // names, by spaces
		want           string // the set afterwards
		added, removed string
	}
	for name, steps := range map[string][]step{
		"appends in the order found, never re-sorts": {
			{find: "z a", want: "z a", added: "z a"},
			{find: "m a", want: "z a m", added: "m"},
		},
		"what is registered already changes nothing": {
			{find: "a b", want: "a b", added: "a b"},
			{find: "b a", want: "a b"},
		},
		"past the bound the longest unused leaves": {
			{find: "a b c d", want: "a b c d", added: "a b c d"},
			{use: "a", want: "a b c d"},
			{find: "c e", want: "a c d e", added: "e", removed: "b"},
		},
		"never one of the current answer": {
			{find: "a b c d", want: "a b c d", added: "a b c d"},
			{find: "e f a g", want: "a e f g", added: "e f g", removed: "b c d"},
		},
		"an answer longer than the bound is cut from its end": {
			{find: "a b c d e f", want: "a b c d", added: "a b c d"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var set Set
			for i, step := range steps {
				var change Change
				if step.use != "" {
					set = set.touch(step.use)
				} else {
					set, change = set.plan(named(strings.Fields(step.find)...), 4)
				}
				if got := strings.Join(set.names(), " "); got != step.want {
					t.Errorf("step %d: set = %s, want %s", i, got, step.want)
				}
				if got := strings.Join(change.Added, " "); got != step.added {
					t.Errorf("step %d: added %q, want %q", i, got, step.added)
				}
				if got := strings.Join(change.Removed, " "); got != step.removed {
					t.Errorf("step %d: removed %q, want %q", i, got, step.removed)
				}
			}
		})
	}
}

func TestSetFollowsTheCatalog(t *testing.T) {
	set, _ := Set{}.plan(named("a", "b", "c"), 10)
	catalog := map[string]*tool.Tool{"a": {Name: "a", Def: &tool.Def{Hash: "a"}}, "c": {Name: "c", Def: &tool.Def{Hash: "c, changed"}}}
	lookup := func(name string) (*tool.Tool, bool) { t, ok := catalog[name]; return t, ok }

	set, change, changed := set.sync(lookup)
	if got := set.names(); !slices.Equal(got, []string{"a", "c"}) || !changed || !slices.Equal(change.Removed, []string{"b"}) {
		t.Errorf("sync = %v, removed %v, changed %v", got, change.Removed, changed)
	}
	if set.tools[1].Def.Hash != "c, changed" {
		t.Error("the changed definition did not replace the old one")
	}
	if _, _, changed = set.sync(lookup); changed {
		t.Error("a second sync with the same catalog reports a change")
	}
}

func TestNames(t *testing.T) {
	valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	long := strings.Repeat("very_long_", 12)
	ids := []tool.ID{
		{Server: "github", Name: "search_code"},
		{Server: "my server", Name: "do.it/now"},
		{Server: "a", Name: "b_c"}, {Server: "a_b", Name: "c"}, // collide
		{Server: "retrieve", Name: "tools"}, // reserved
		{Server: "x", Name: long + "1"}, {Server: "x", Name: long + "2"},
		{Server: "日本", Name: "検索"}, {Server: "日本", Name: "天気"},
	}
	names := Names(ids, []string{"retrieve_tools"})
	seen := map[string]tool.ID{}
	for _, id := range ids {
		name := names[id]
		if !valid.MatchString(name) {
			t.Errorf("%v: %q does not match %s", id, name, valid)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%v and %v share the name %q", id, other, name)
		}
		seen[name] = id
	}
	if got := names[ids[0]]; got != "github_search_code" {
		t.Errorf("plain name = %q", got)
	}
	if got := names[ids[1]]; got != "my_server_do_it_now" {
		t.Errorf("cleaned name = %q", got)
	}
	for _, i := range []int{2, 3} {
		if !strings.HasPrefix(names[ids[i]], "a_b_c_") {
			t.Errorf("colliding name = %q, want a hash after a_b_c", names[ids[i]])
		}
	}
	slices.Reverse(ids)
	again := Names(ids, []string{"retrieve_tools"})
	for id, name := range names {
		if again[id] != name {
			t.Errorf("%v is %q in one order and %q in another", id, name, again[id])
		}
	}
}

func TestChangesMerge(t *testing.T) {
	merged := Change{Added: []string{"a", "b"}, Removed: []string{"x"}}.then(Change{Added: []string{"x", "c"}, Removed: []string{"b"}})
	if got := fmt.Sprint(merged); got != "{[a c] []}" {
		t.Errorf("merged = %s, want a and c added", got)
	}
}
