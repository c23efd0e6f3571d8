package retrieve

import (
	"fmt"
	"slices"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// withheld finds what a catalog's servers have that is held.
type withheld struct {
	table
	*others
	why   map[tool.ID]string
	count map[string]int // by server, without those that are quiet
}

// newWithheld returns nil where nothing is held.
func newWithheld(servers []Server) *withheld {
	w := &withheld{why: map[tool.ID]string{}, count: map[string]int{}}
	var held []Server
	for _, s := range servers {
		if len(s.Held) == 0 {
			continue
		}
		one := Server{Name: s.Name, Prefix: s.Prefix}
		once := map[tool.ID]bool{} // one may have several names
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
	w.table, w.others = newTable(held, nil), newOthers(Contents{Servers: held}, prefix, nil)
	return w
}

// find finds what is held by whatever it could be called or read with.
func (w *withheld) find(name string) *tool.Tool {
	if w == nil {
		return nil
	}
	if t, ok := w.table.find(name); ok {
		return t
	}
	if t, ok := w.Prompt(name); ok {
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

// template finds the held template that a URI comes from, or that has the ID, of any
// server if it names none.
func (w *withheld) template(id tool.ID) *tool.Tool {
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

// because says after the error for an unknown name that it is held, and what to do; ""
// if it is not.
func (w *withheld) because(name string) string {
	t := w.find(name)
	if t == nil {
		return ""
	}
	id := rawjson.Clip(printable.Line(t.Def.ID.String()), maxReason)
	return fmt.Sprintf("; it is held: %s %s. The user can see why, and approve it, with: toolfinch pins", id, w.why[t.Def.ID])
}

// named returns what is held with the names that the catalog gives it.
func (w *withheld) named(all []Held) []Held {
	all = slices.Clone(all)
	for i, h := range all {
		if t := w.exact.get(h.Def.ID); t != nil {
			all[i].Tool = t
		}
	}
	return all
}
