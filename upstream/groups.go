package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// Bounds of a server's groups, all of whose contents together have maxDefBytes.
const (
	maxGroups     = 1000
	maxGroupDepth = 8
	maxGroupText  = 500 // bytes of a group's name and description; a shared definition has at most four times as many
	groupsAtOnce  = 8   // requests for groups at a time
)

// kindGroup is the kind of faults of groups.
const kindGroup tool.Kind = "group"

// grouped are the kinds of definitions in groups.
var grouped = []tool.Kind{tool.KindTool, tool.KindPrompt, tool.KindResource}

// groups returns what the server declares for the groups extension; nil if one side does not declare it.
func (c link) groups() json.RawMessage {
	declared := func(capabilities json.RawMessage) json.RawMessage {
		return rawjson.Member(rawjson.Member(capabilities, "extensions"), tool.ExtensionGroups)
	}
	if declared(c.declares) == nil {
		return nil
	}
	return declared(c.Capabilities)
}

// tellsGroups reports whether the server says when its groups change.
func (c link) tellsGroups() bool {
	return string(rawjson.Member(c.groups(), "listChanged")) == "true"
}

// group is a group of a server.
type group struct {
	name, about string          // about: name and description
	contents    json.RawMessage // nil if it could not be read
	err         error
}

// groupWalk reads the groups of a server, each once, those at the top first.
type groupWalk struct {
	over   link
	all    []group
	seen   map[string]bool
	faults Faults
	lost   error // the connection was lost

	mu   sync.Mutex // guards size
	size int
}

// groupsOnce returns a function that reads the groups of the server once. Like other secondary lists, groups do
// not delay tools for long.
func (c *connection) groupsOnce(ctx context.Context) func() *groupWalk {
	return sync.OnceValue(func() *groupWalk {
		w := &groupWalk{over: c.link, seen: map[string]bool{}}
		if c.groups() == nil {
			return w
		}
		within := min(c.server.limits.Load().call, secondaryWithin)
		ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: not all groups within %s", ErrTimeout, within))
		defer cancel()
		level := w.top(ctx)
		for depth := 1; len(level) > 0 && w.lost == nil; depth++ {
			if depth > maxGroupDepth {
				w.fault(level[0].name, fmt.Sprintf("groups nest deeper than %d: those below are left out", maxGroupDepth))
				break
			}
			level = w.open(ctx, level)
		}
		return w
	})
}

func (w *groupWalk) fault(name, text string) {
	w.faults.note(Fault{Kind: kindGroup, Name: fmt.Sprintf("%.100s", name), Text: text})
}

// request sends a request within the bound of bytes.
func (w *groupWalk) request(ctx context.Context, method string, members *rawjson.Object) (json.RawMessage, error) {
	raw, err := w.over.own(ctx, method, members)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size += len(raw); err == nil && w.size > maxDefBytes {
		return nil, fmt.Errorf("the groups are longer than %d MiB", maxDefBytes>>20)
	}
	return raw, err
}

// failed notes why a group, or the list of groups, could not be read.
func (w *groupWalk) failed(name string, err error) {
	if conn.FailureOf(err).Lost {
		w.lost = err
	}
	w.fault(name, "it cannot be read: "+conn.Plain(err).Error())
}

// top returns the groups of groups/list.
func (w *groupWalk) top(ctx context.Context) (level []group) {
	cursor := ""
	for {
		var members rawjson.Object
		if cursor != "" {
			members.AddText("cursor", cursor)
		}
		raw, err := w.request(ctx, "groups/list", &members)
		if err != nil {
			w.failed("groups/list", err)
			return level
		}
		page := w.unseen(rawjson.Member(raw, "groups"))
		level = append(level, page...)
		if cursor = rawjson.Text(rawjson.Member(raw, "nextCursor")); cursor == "" || len(page) == 0 { // a page without news: the list repeats itself
			return level
		}
	}
}

// unseen returns the groups of a list that were not seen before: a group may have several parents, or be its own.
func (w *groupWalk) unseen(list json.RawMessage) (fresh []group) {
	for item := range rawjson.Elements(list) {
		name := rawjson.Text(rawjson.Member(item, "name"))
		switch {
		case name == "" || w.seen[name]:
			continue
		case len(w.seen) == maxGroups:
			w.fault(name, fmt.Sprintf("the server has more than %d groups: the rest is left out", maxGroups))
			return fresh
		}
		w.seen[name] = true
		about := name
		if description := rawjson.Text(rawjson.Member(item, "description")); description != "" {
			about += ": " + description
		}
		fresh = append(fresh, group{name: name, about: rawjson.Head(about, maxGroupText)})
	}
	return fresh
}

// open reads groups and returns the new groups in them.
func (w *groupWalk) open(ctx context.Context, level []group) (below []group) {
	var reading sync.WaitGroup
	for worker := range groupsAtOnce {
		reading.Go(func() {
			for i := worker; i < len(level); i += groupsAtOnce {
				var members rawjson.Object
				members.AddText("name", level[i].name)
				raw, err := w.request(ctx, "groups/get", &members)
				level[i].contents, level[i].err = rawjson.Member(raw, "contents"), err
			}
		})
	}
	reading.Wait()
	for _, g := range level {
		if g.err != nil {
			w.failed(g.name, g.err)
			continue
		}
		w.all = append(w.all, g)
		below = append(below, w.unseen(rawjson.Member(g.contents, "groups"))...)
	}
	return below
}

// into adds the definitions of a kind in the groups to a list of the server with this name. Groups share definitions.
func (w *groupWalk) into(server string, kind tool.Kind, all *listing) error {
	in := intake{over: w.over, server: server, kind: kind, seen: map[string]bool{}, listing: all, count: len(all.defs)}
	for _, def := range all.defs {
		in.seen[def.ID.Name] = true
	}
	if kind == tool.KindTool {
		all.faults.add(w.faults)
	}
	added := map[string]*tool.Def{}
	for _, g := range w.all {
		for item := range rawjson.Elements(rawjson.Member(g.contents, listMethods[kind].member)) {
			name := rawjson.Text(rawjson.Member(item, kind.Key()))
			if def := added[name]; def != nil {
				def.Group = rawjson.Head(def.Group+"\n"+g.about, 4*maxGroupText)
				continue
			}
			if in.seen[name] {
				continue
			}
			if in.count == maxDefs {
				in.cut(fmt.Sprintf("has more than %d with those of groups", maxDefs))
				return w.lost
			}
			if in.take(item); in.seen[name] && name != "" {
				def := all.defs[len(all.defs)-1]
				def.Group, added[name] = g.about, def
			}
		}
	}
	return w.lost
}
