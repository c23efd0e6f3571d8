package retrieve

import (
	"cmp"
	"context"
	"slices"

	"toolfinch/tool"
)

// ViewCatalog is the catalog of a view that a combined catalog contains.
type ViewCatalog struct {
	View    string
	Catalog *Catalog
	Listed  bool // its tools are listed from the start
}

// Displaced is a name that several views, or a meta-tool, have, and the names that their tools get instead, in the
// order of the views.
type Displaced struct {
	Name string
	As   []string
}

// Combine returns the contents of a catalog with the tools of several views, each with its handler. A displaced
// name begins with the name of the view instead. IDs stay: a shared ID resolves to the first view's tool.
func Combine(parts []ViewCatalog, reserved []string) (Contents, []Displaced) {
	names, renamed := combinedNames(parts, reserved)
	all := Contents{Reserved: reserved, plain: map[string]bool{}, listed: map[string]bool{}}
	at := map[string]int{}
	for _, p := range parts {
		for _, s := range p.Catalog.contents.Servers {
			tools := make([]*tool.Tool, len(s.Tools))
			for i, t := range s.Tools {
				if t.Def.ID.Kind == tool.KindTool {
					own := p.Catalog.exact.get(t.Def.ID)
					t = underName(own, names[tool.ID{Server: p.View, Name: own.Name}])
					all.plain[t.Name] = t == own && !p.Catalog.given[t.Name]
					all.listed[t.Name] = p.Listed
				}
				tools[i] = t
			}
			s.Held = p.Catalog.held.named(s.Held)
			i, known := at[s.Name]
			switch {
			case known:
				all.Servers[i].join(s, tools)
			default:
				at[s.Name] = len(all.Servers)
				if s.Tools != nil { // nil: never listed
					s.Tools = tools
				}
				all.Servers = append(all.Servers, s)
			}
		}
	}
	return all, renamed
}

// join adds the same server as another view has it.
func (s *Server) join(other Server, tools []*tool.Tool) {
	if other.Tools != nil {
		s.Tools = append(slices.Clip(s.Tools), tools...)
	}
	s.Held = slices.Clip(s.Held)
	for _, h := range other.Held {
		if !slices.ContainsFunc(s.Held, func(known Held) bool { return known.Name == h.Name && known.Def.ID == h.Def.ID && known.View == h.View }) {
			s.Held = append(s.Held, h)
		}
	}
	s.Description = cmp.Or(s.Description, other.Description)
	if s.Capabilities == nil {
		s.Capabilities = other.Capabilities
	}
	// Excluding nothing and sending unlisted URIs go together, so each can be joined on its own.
	s.Unlisted = min(s.Unlisted, other.Unlisted)
	if one, two := s.Excluded, other.Excluded; one == nil || two == nil {
		s.Excluded = nil
	} else {
		s.Excluded = func(id tool.ID) bool { return one(id) && two(id) }
	}
}

// underName returns t under another name. Its handler and hooks get the name that the view uses.
func underName(t *tool.Tool, name string) *tool.Tool {
	if t.Name == name {
		return t
	}
	return renamed(t.With(tool.LayerNames, func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			inner := *call
			inner.Name = t.Name
			return next(ctx, &inner)
		}
	}), name)
}

// combinedNames returns the names of all tools, by view and name in that view.
func combinedNames(parts []ViewCatalog, reserved []string) (map[tool.ID]string, []Displaced) {
	claims := map[string]int{}
	for _, name := range reserved {
		claims[name]++
	}
	for _, p := range parts {
		for _, name := range p.Catalog.tools.keys() {
			claims[name]++
		}
	}
	names := map[tool.ID]string{}
	taken := slices.Clone(reserved)
	var clashing []tool.ID
	for _, p := range parts {
		for _, name := range p.Catalog.tools.keys() {
			id := tool.ID{Server: p.View, Name: name}
			if claims[name] > 1 {
				clashing = append(clashing, id)
				continue
			}
			names[id] = name
			taken = append(taken, name)
		}
	}
	as := map[string][]string{}
	prefixed := namesFor(clashing, taken, nil)
	for _, id := range clashing {
		names[id] = prefixed[id]
		as[id.Name] = append(as[id.Name], prefixed[id])
	}
	var renamed []Displaced
	for name, as := range as {
		renamed = append(renamed, Displaced{name, as})
	}
	slices.SortFunc(renamed, func(a, b Displaced) int { return cmp.Compare(a.Name, b.Name) })
	return names, renamed
}
