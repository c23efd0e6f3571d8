package retrieve

import (
	"maps"
	"slices"

	"toolfinch/tool"
)

// change is what a catalog has otherwise than the one before it, where nothing follows
// from that for the names of other tools.
type change struct {
	put    []*tool.Tool // new or other ones, under their names
	gone   []*tool.Tool // those whose IDs are gone, and what is in the place of which others were put
	others bool         // prompts or resources, too

	fresh map[string]bool // names of those whose IDs are new
}

// changeTo returns the change that makes other contents of the catalog. ok is false if a
// change cannot say it: names of other tools may change, or all is other.
func (c *Catalog) changeTo(next Contents) (ch change, ok bool) {
	if c == nil || len(c.also) > 0 || c.contents.listed != nil || next.listed != nil || len(next.Servers) != len(c.contents.Servers) ||
		!slices.Equal(next.Reserved, c.contents.Reserved) || !slices.Equal(next.Pins, c.contents.Pins) {
		return ch, false
	}
	ch.fresh = map[string]bool{}
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
func (ch *change) add(c *Catalog, before, now *Server, prefix map[string]string) (ok bool) {
	was := map[tool.ID]*tool.Tool{}
	for _, t := range before.Tools {
		id := t.Def.ID
		if id.Kind != tool.KindTool {
			ch.others = true
			continue
		}
		old := c.exact.get(id)
		if was[id] != nil || c.tools.get(old.Name) != old {
			return false // one ID or name twice
		}
		was[id] = old
	}
	for _, t := range now.Tools {
		id := t.Def.ID
		if id.Kind != tool.KindTool {
			ch.others = true
			continue
		}
		name, old := t.Name, was[id]
		switch {
		case old != nil && c.given[old.Name] == (name != "") && (name == "" || name == old.Name):
			name = old.Name
			ch.gone = append(ch.gone, old)
			delete(was, id)
		case old == nil && name == "":
			name = inName(prefixed(id, prefix))
			if len(name) > maxName || c.contested[name] || ch.fresh[name] || c.tools.get(name) != nil || slices.Contains(c.contents.Reserved, name) {
				return false
			}
			ch.fresh[name] = true
		default:
			return false
		}
		ch.put = append(ch.put, renamed(t, name))
	}
	for id, old := range was {
		if c.given[old.Name] || old.Name != inName(prefixed(id, prefix)) {
			return false // others may have the name now
		}
		ch.gone = append(ch.gone, old)
	}
	return true
}

// take makes the tables of the catalog of those before it and a change.
func (c *Catalog) take(before *Catalog, ch change) {
	tools, exact := map[string]*tool.Tool{}, map[tool.ID]*tool.Tool{}
	for _, t := range ch.gone {
		tools[t.Name], exact[t.Def.ID] = nil, nil
	}
	for _, t := range ch.put {
		tools[t.Name], exact[t.Def.ID] = t, t
	}
	c.table = table{before.tools.with(tools), before.exact.with(exact), before.also, before.contested}
	c.given = before.given
	c.fillRest(before.handler)

	names, pinned := map[string]bool{}, false // names: that are offered now, or no more
	var plus, minus []*tool.Tool
	for _, t := range ch.gone {
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

// spliced returns sorted names with those that are true, and without the others.
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

// keys are those of what a change made of before puts into the index, and takes out of it.
func (ch change) keys(before, now *Catalog) (put, out []string) {
	for _, t := range ch.put {
		if now.offers(t) {
			put = append(put, t.Name)
		}
	}
	for _, t := range ch.gone {
		if is := now.tools.get(t.Name); is == nil || !now.offers(is) {
			out = append(out, t.Name)
		}
	}
	if ch.others {
		put = append(put, now.others.keys...)
		for _, key := range before.others.keys {
			if now.others.byKey[key] == nil {
				out = append(out, key)
			}
		}
	}
	return put, out
}
