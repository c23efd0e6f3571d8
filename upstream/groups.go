package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// Bounds of a server's groups; all of them together have maxDefBytes.
const (
	maxGroups     = 1000
	maxGroupDepth = 8
	maxGroupText  = 500 // bytes of Def.Group for one group; for all groups of a definition four times as many
)

// group is a group of a server, or a page of the list of groups.
type group struct {
	name, about string // the name, or the cursor of a page; name and description
	depth       int    // 0: a page
	contents    json.RawMessage
}

// groupsRead are the groups of a server, each once, those at the top first.
type groupsRead struct {
	all    []group
	faults Faults
	lost   error // the connection was lost
}

// readGroups reads the groups of the server. A group that cannot be read costs itself. Like other secondary lists,
// groups do not delay tools for long.
func (c *connection) readGroups(ctx context.Context) (read groupsRead) {
	if c.groups() == nil {
		return read
	}
	within := min(c.server.limits.Load().call, secondaryWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: not all groups within %s", ErrTimeout, within))
	defer cancel()
	fault := func(name, text string) {
		read.faults.note(Fault{Kind: "group", Name: fmt.Sprintf("%.100s", name), Text: text})
	}
	size, seen := 0, map[string]bool{} // a group may have several parents, or be its own
	for queue := []group{{}}; len(queue) > 0; queue = queue[1:] {
		g := queue[0]
		method, member := "groups/get", "name"
		if g.depth == 0 {
			method, member = "groups/list", "cursor"
		}
		var members rawjson.Object
		if g.name != "" {
			members.AddText(member, g.name)
		}
		raw, err := c.own(ctx, method, &members)
		if err != nil {
			fault(cmp.Or(g.name, method), "it cannot be read: "+conn.Plain(err).Error())
			if conn.FailureOf(err).Lost {
				read.lost = err
				return read
			}
			continue
		}
		if size += len(raw); size > maxDefBytes {
			fault(cmp.Or(g.name, method), fmt.Sprintf("the groups are longer than %d MiB: the rest is left out", maxDefBytes>>20))
			return read
		}
		parent := raw
		if g.depth > 0 {
			g.contents = rawjson.Member(raw, "contents")
			parent, read.all = g.contents, append(read.all, g)
		}
		known := len(seen)
		for item := range rawjson.Elements(rawjson.Member(parent, "groups")) {
			name := rawjson.Text(rawjson.Member(item, "name"))
			if name == "" || seen[name] {
				continue
			}
			if len(seen) == maxGroups || g.depth == maxGroupDepth {
				fault(name, fmt.Sprintf("it is left out, like further ones: more than %d groups, or nested deeper than %d", maxGroups, maxGroupDepth))
				break
			}
			seen[name] = true
			about := name + ": " + rawjson.Text(rawjson.Member(item, "description"))
			queue = append(queue, group{name: name, about: rawjson.Head(about, maxGroupText), depth: g.depth + 1})
		}
		if next := rawjson.Text(rawjson.Member(raw, "nextCursor")); g.depth == 0 && next != "" && len(seen) > known { // else the list repeats itself
			queue = append(queue, group{name: next})
		}
	}
	return read
}

// into adds the definitions of a kind in the groups to a list of the server with this name.
func (read *groupsRead) into(over link, server string, kind tool.Kind, all *listing) error {
	in := intake{over: over, server: server, kind: kind, seen: map[string]bool{}, listing: all, count: len(all.defs)}
	for _, def := range all.defs {
		in.seen[def.ID.Name] = true
	}
	if kind == tool.KindTool {
		all.faults.add(read.faults)
	}
	added := map[string]*tool.Def{} // groups share definitions
	for _, g := range read.all {
		for item := range rawjson.Elements(rawjson.Member(g.contents, listMethods[kind].member)) {
			name := rawjson.Text(rawjson.Member(item, kind.Key()))
			if def := added[name]; def != nil {
				def.Group = rawjson.Head(def.Group+"\n"+g.about, 4*maxGroupText)
			} else if !in.seen[name] && in.count < maxDefs {
				if in.take(item); in.seen[name] {
					added[name] = all.defs[len(all.defs)-1]
					added[name].Group = g.about
				}
			}
		}
	}
	return read.lost
}
