package register

import (
	"slices"

	"toolfinch/tool"
)

// Set is the registered tools of one session, in the order of their registration. It is a value: plan
// and sync return a new one.
type Set struct {
	tools []registered
	clock int64 // counts uses
}

type registered struct {
	*tool.Tool
	used     int64
	recalled bool // from an earlier session, and not found in this one
}

// names returns the exposed names in order.
func (s Set) names() []string {
	names := make([]string, len(s.tools))
	for i, t := range s.tools {
		names[i] = t.Name
	}
	return names
}

// found reports whether a tool was registered because a search of this session found it.
func (s Set) found(name string) bool {
	return slices.ContainsFunc(s.tools, func(r registered) bool { return r.Name == name && !r.recalled })
}

// afresh returns the set without recalled tools among wanted: plan adds them as found.
func (s Set) afresh(wanted []*tool.Tool) Set {
	s.tools = slices.DeleteFunc(slices.Clone(s.tools), func(r registered) bool {
		return r.recalled && slices.ContainsFunc(wanted, func(t *tool.Tool) bool { return t.Name == r.Name })
	})
	return s
}

// Change has the names that a session gained and lost.
type Change struct{ Added, Removed []string }

// Empty reports whether no name was added or removed.
func (c Change) Empty() bool { return len(c.Added)+len(c.Removed) == 0 }

// plan registers wanted, at most max: new tools go to the end, known ones stay in place and count as
// used. Past max, the least recently used tools leave, never a wanted one.
func (s Set) plan(wanted []*tool.Tool, max int) (Set, Change) {
	wanted = wanted[:min(len(wanted), max)]
	next := Set{tools: slices.Clone(s.tools), clock: s.clock + 1}
	var change Change
	for _, t := range wanted {
		i := slices.IndexFunc(next.tools, func(r registered) bool { return r.Name == t.Name })
		if i >= 0 {
			next.tools[i].used = next.clock
			continue
		}
		next.tools = append(next.tools, registered{Tool: t, used: next.clock})
		change.Added = append(change.Added, t.Name)
	}
	for len(next.tools) > max {
		oldest := 0
		for i, r := range next.tools {
			if r.used < next.tools[oldest].used {
				oldest = i
			}
		}
		change.Removed = append(change.Removed, next.tools[oldest].Name)
		next.tools = slices.Delete(next.tools, oldest, oldest+1)
	}
	return next, change
}

// touch counts a call of the named tool as a use.
func (s Set) touch(name string) Set {
	i := slices.IndexFunc(s.tools, func(r registered) bool { return r.Name == name })
	if i < 0 {
		return s
	}
	next := Set{tools: slices.Clone(s.tools), clock: s.clock + 1}
	next.tools[i].used = next.clock
	return next
}

// sync follows the catalog: removed tools leave, and a changed definition replaces the old one in
// place. changed reports whether the client sees a difference.
func (s Set) sync(lookup func(name string) (*tool.Tool, bool)) (next Set, change Change, changed bool) {
	next.clock = s.clock
	for _, r := range s.tools {
		now, ok := lookup(r.Name)
		if !ok {
			change.Removed = append(change.Removed, r.Name)
			changed = true
			continue
		}
		changed = changed || now.Def.Hash != r.Def.Hash
		next.tools = append(next.tools, registered{now, r.used, r.recalled})
	}
	return next, change, changed
}

// then merges two changes: a name that was added and removed again is in neither list.
func (c Change) then(next Change) Change {
	return Change{
		Added:   append(without(c.Added, next.Removed), without(next.Added, c.Removed)...),
		Removed: append(without(c.Removed, next.Added), without(next.Removed, c.Added)...),
	}
}

func without(names, gone []string) []string {
	drop := make(map[string]bool, len(gone))
	for _, name := range gone {
		drop[name] = true
	}
	var kept []string
	for _, name := range names {
		if !drop[name] {
			kept = append(kept, name)
		}
	}
	return kept
}
