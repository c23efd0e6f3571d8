package retrieve

import (
	"maps"
	"slices"

	"toolfinch/tool"
)

// delta is the difference between a catalog and its predecessor, if it changes no name of an unchanged tool.
type delta struct {
	put      []*tool.Tool // new or replaced tools, under their names
	removed  []*tool.Tool // removed tools, and the old versions of replaced ones
	nonTools bool         // prompts, resources or templates may differ

	newNames map[string]bool // names of tools with new IDs
}

// deltaTo returns the delta to other contents. ok is false if names of unchanged tools may change, or everything
// differs.
func (c *Catalog) deltaTo(next Contents) (ch delta, ok bool) {
	if c == nil || len(c.also) > 0 || c.contents.listed != nil || next.listed != nil || len(next.Servers) != len(c.contents.Servers) ||
		!slices.Equal(next.Reserved, c.contents.Reserved) || !slices.Equal(next.Pins, c.contents.Pins) {
		return ch, false
	}
	ch.newNames = map[string]bool{}
	prefix, servers := prefixesOf(next.Servers), map[string]bool{}
	for i := range next.Servers {
		before, now := &c.contents.Servers[i], &next.Servers[i]
		if now.Name != before.Name || servers[now.Name] || now.Description != before.Description ||
			(now.Prefix == nil) != (before.Prefix == nil) || now.Prefix != nil && *now.Prefix != *before.Prefix {
			return ch, false
		}
		servers[now.Name] = true
		if !tool.Same(before.Tools, now.Tools) && !ch.add(c, before, now, prefix) {
			return ch, false
		}
	}
	return ch, true
}

// add adds what a server of the catalog has otherwise now.
func (ch *delta) add(c *Catalog, before, now *Server, prefix map[string]string) (ok bool) {
	was := map[tool.ID]*tool.Tool{}
	for _, t := range before.Tools {
		id := t.Def.ID
		if id.Kind != tool.KindTool {
			ch.nonTools = true
			continue
		}
		old := c.exact.get(id)
		if was[id] != nil || c.tools.get(old.Name) != old {
			return false // an ID or name occurs twice
		}
		was[id] = old
	}
	for _, t := range now.Tools {
		id := t.Def.ID
		if id.Kind != tool.KindTool {
			ch.nonTools = true
			continue
		}
		name, old := t.Name, was[id]
		switch {
		case old != nil && c.given[old.Name] == (name != "") && (name == "" || name == old.Name):
			name = old.Name
			ch.removed = append(ch.removed, old)
			delete(was, id)
		case old == nil && name == "":
			name = inName(prefixed(id, prefix))
			if len(name) > maxName || c.contested[name] || ch.newNames[name] || c.tools.get(name) != nil || slices.Contains(c.contents.Reserved, name) {
				return false
			}
			ch.newNames[name] = true
		default:
			return false
		}
		ch.put = append(ch.put, renamed(t, name))
	}
	for id, old := range was {
		if c.given[old.Name] || old.Name != inName(prefixed(id, prefix)) {
			return false // another tool may get the name now
		}
		ch.removed = append(ch.removed, old)
	}
	return true
}

// apply fills the tables of the catalog from its predecessor and a delta.
func (c *Catalog) apply(before *Catalog, ch delta) {
	tools, exact := map[string]*tool.Tool{}, map[tool.ID]*tool.Tool{}
	for _, t := range ch.removed {
		tools[t.Name], exact[t.Def.ID] = nil, nil
	}
	for _, t := range ch.put {
		tools[t.Name], exact[t.Def.ID] = t, t
	}
	c.table = table{before.tools.with(tools), before.exact.with(exact), before.also, before.contested}
	c.given = before.given
	c.fillRest(before.handler)

	names, pinned := map[string]bool{}, false // names: true if offered now, false if no longer
	var plus, minus []*tool.Tool
	for _, t := range ch.removed {
		now := tools[t.Name]
		if offered := now != nil && c.offers(now); offered != before.offers(t) {
			names[t.Name] = offered
		}
		if before.offers(t) && (now == nil || !c.offers(now) || now.Def.Hash != t.Def.Hash) {
			minus = append(minus, t)
		}
		pinned = pinned || slices.Contains(before.pinned, t)
	}
	for _, t := range ch.put {
		was := before.tools.get(t.Name)
		if was == nil && c.offers(t) {
			names[t.Name] = true
		}
		if c.offers(t) && (was == nil || !before.offers(was) || was.Def.Hash != t.Def.Hash) {
			plus = append(plus, t)
		}
		pinned = pinned || slices.ContainsFunc(c.contents.Pins, func(glob string) bool { return pins(glob, t) })
	}
	c.names = spliced(before.names, names)
	if c.pinned = before.pinned; pinned {
		c.pinned = c.pins()
	}
	c.listing.follow(&before.listing, plus, minus)
}

// spliced returns sorted names with those added that are true in change, and those removed that are false.
func spliced(names []string, change map[string]bool) []string {
	if len(change) == 0 {
		return names
	}
	all := make([]string, 0, len(names)+len(change))
	for _, name := range slices.Sorted(maps.Keys(change)) {
		at, found := slices.BinarySearch(names, name)
		all, names = append(all, names[:at]...), names[at:]
		if found {
			names = names[1:]
		}
		if change[name] {
			all = append(all, name)
		}
	}
	return append(all, names...)
}

// keys returns the index keys that a delta puts and removes.
func (ch delta) keys(before, now *Catalog) (put, out []string) {
	for _, t := range ch.put {
		if now.offers(t) {
			put = append(put, t.Name)
		}
	}
	for _, t := range ch.removed {
		if is := now.tools.get(t.Name); is == nil || !now.offers(is) {
			out = append(out, t.Name)
		}
	}
	if ch.nonTools {
		put = append(put, now.nonTools.keys...)
		for _, key := range before.nonTools.keys {
			if now.nonTools.byKey[key] == nil {
				out = append(out, key)
			}
		}
	}
	return put, out
}
