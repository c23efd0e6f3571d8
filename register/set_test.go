package register

import (
	"fmt"
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

func TestChangesMerge(t *testing.T) {
	merged := Change{Added: []string{"a", "b"}, Removed: []string{"x"}}.then(Change{Added: []string{"x", "c"}, Removed: []string{"b"}})
	if got := fmt.Sprint(merged); got != "{[a c] []}" {
		t.Errorf("merged = %s, want a and c added", got)
	}
}
