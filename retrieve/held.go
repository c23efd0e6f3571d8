package retrieve

import (
	"fmt"
	"slices"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// heldDefs finds the held definitions of a catalog's servers.
type heldDefs struct {
	table
	*nonTools
	why   map[tool.ID]string
	count map[string]int // by server, without quiet ones
}

// newHeldDefs returns nil if nothing is held.
func newHeldDefs(servers []Server) *heldDefs {
	w := &heldDefs{why: map[tool.ID]string{}, count: map[string]int{}}
	var held []Server
	for _, s := range servers {
		if len(s.Held) == 0 {
			continue
		}
		one := Server{Name: s.Name, Prefix: s.Prefix}
		once := map[tool.ID]bool{} // an ID may have several names
		for _, h := range s.HeldByName() {
			one.Tools = append(one.Tools, h.Tool)
			w.why[h.Def.ID] = h.Why
			if !h.Quiet && !once[h.Def.ID] {
				once[h.Def.ID] = true
				w.count[s.Name]++
			}
		}
		held = append(held, one)
	}
	if held == nil {
		return nil
	}
	_, _, prefix := claims(held)
	w.table, w.nonTools = newTable(held, nil), newNonTools(Contents{Servers: held}, prefix, nil)
	return w
}

// find finds a held definition by any name or URI that could call or read it.
func (w *heldDefs) find(name string) *tool.Tool {
	if w == nil {
		return nil
	}
	if t, ok := w.table.find(name); ok {
		return t
	}
	if t, ok := w.Prompt(name); ok {
		return t
	}
	if t, _ := w.skills.file(name); t != nil {
		return t
	}
	if t := w.template(tool.ID{Name: name}); t != nil {
		return t
	}
	if server, own, named := splitURI(name); named {
		return w.template(tool.ID{Server: server, Name: own})
	}
	return nil
}

// template finds a held template by its ID or by a URI that comes from it. Without a server, any server's counts.
func (w *heldDefs) template(id tool.ID) *tool.Tool {
	if w == nil {
		return nil
	}
	templates := w.Items(tool.KindTemplate)
	i := slices.IndexFunc(templates, func(t *tool.Tool) bool {
		return t.Def.ID.Name == id.Name && (id.Server == "" || id.Server == t.Def.ID.Server)
	})
	if i >= 0 {
		return templates[i]
	}
	if t := w.templateOf(id.Name, id.Server); t != nil {
		return t.Tool
	}
	return nil
}

// because completes the error for an unknown name: the definition is held, and how to approve it. It is "" if none
// is held.
func (w *heldDefs) because(name string) string {
	t := w.find(name)
	if t == nil {
		return ""
	}
	id := rawjson.Clip(printable.Line(t.Def.ID.String()), maxReason)
	return fmt.Sprintf("; it is held: %s %s. The user can see why, and approve it, with: toolfinch pins", id, w.why[t.Def.ID])
}

// named returns the held definitions under the names that the catalog gives them.
func (w *heldDefs) named(all []Held) []Held {
	all = slices.Clone(all)
	for i, h := range all {
		if t := w.exact.get(h.Def.ID); t != nil {
			all[i].Tool = t
		}
	}
	return all
}
