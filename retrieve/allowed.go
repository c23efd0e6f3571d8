package retrieve

import (
	"slices"
	"sync"

	"toolfinch/index"
	"toolfinch/tool"
)

// Allowed is what of a catalog somebody has.
type Allowed struct {
	// Use reports whether a tool may be called, a prompt got, a resource read. Of a
	// resource that is not listed, the definition has an ID and nothing else.
	Use func(def *tool.Def, view string) bool
	// Find reports whether what may be used is listed and found, too.
	Find func(def *tool.Def, view string) bool
	// Server reports whether something of a server may be used that is not known yet.
	Server func(name string) bool
}

// Only returns the part of the catalog that is allowed, under the same names: what else
// there is has no name in it, is no server, and is near to nothing. It shares what c has
// derived from definitions, and the index: words count as rare there as in c.
func (c *Catalog) Only(allowed Allowed) *Catalog {
	contents := c.contents
	contents.Servers, contents.hidden, contents.plain = nil, map[tool.ID]bool{}, nil
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
			s.Tools = append(s.Tools, c.named(t))
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
	next.among = sync.OnceValue(func() *index.Subset { return c.snapshot.Subset(next.keys()) })
	return next
}

// named is what the catalog was given under the name that it has there.
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
