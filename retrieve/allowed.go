package retrieve

import (
	"slices"
	"sync"

	"toolfinch/index"
	"toolfinch/tool"
)

// Allowed decides what a caller may use of a catalog.
type Allowed struct {
	// Use reports whether a tool may be called, a prompt got, or a resource read. The definition of an unlisted
	// resource has only an ID.
	Use func(def *tool.Def, view string) bool
	// Find reports whether a usable definition is also listed and found.
	Find func(def *tool.Def, view string) bool
	// Server reports whether the caller may use a definition of a server that is not known yet.
	Server func(name string) bool
}

// Only returns the allowed part of the catalog, under the same names. Nothing reveals the rest: no name, no server,
// no similar name. It shares the index and all caches with c: a word is as rare there as in c.
func (c *Catalog) Only(allowed Allowed) *Catalog {
	contents := c.contents
	contents.Servers, contents.hidden, contents.plain = nil, map[tool.ID]bool{}, map[string]bool{}
	for _, s := range c.contents.Servers {
		tools, had := s.Tools, s.Tools != nil
		s.Tools = nil
		for _, t := range tools {
			if !allowed.Use(t.Def, t.View) {
				continue
			}
			if !allowed.Find(t.Def, t.View) {
				contents.hidden[t.Def.ID] = true
			}
			t = c.named(t)
			contents.plain[t.Name] = !c.given[t.Name]
			s.Tools = append(s.Tools, t)
		}
		s.Held = slices.DeleteFunc(slices.Clone(s.Held), func(h Held) bool { return !allowed.Use(h.Def, h.View) })
		if len(s.Tools)+len(s.Held) == 0 && !allowed.Server(s.Name) {
			continue
		}
		if had && s.Tools == nil {
			s.Tools = []*tool.Tool{}
		}
		before := s.Excluded
		s.Excluded = func(id tool.ID) bool {
			return before != nil && before(id) || !allowed.Use(&tool.Def{ID: id}, "")
		}
		contents.Servers = append(contents.Servers, s)
	}
	next := &Catalog{shared: c.shared, contents: contents, snapshot: c.snapshot}
	next.fill(c.handler)
	next.relate(c)
	next.among = sync.OnceValue(func() *index.Subset { return c.snapshot.Subset(next.keys()) })
	return next
}

// named returns a tool of the contents under the name that the catalog gives it.
func (c *Catalog) named(t *tool.Tool) *tool.Tool {
	if t.Name != "" {
		return t
	}
	name := ""
	if t.Def.ID.Kind == tool.KindTool {
		if of := c.exact.get(t.Def.ID); of != nil {
			name = of.Name
		}
	} else if of := c.byID[t.Def.ID]; of != nil {
		name = of.Name
	}
	return renamed(t, name)
}
