package retrieve

import (
	"slices"

	"toolfinch/tool"
)

// apps holds the tools that apps may call, by their own names at their servers: apps
// know no others. Only servers with apps have some; they are in the order of servers.
type apps map[string][]*tool.Tool

func newApps(servers []Server, byID layered[tool.ID]) apps {
	found := apps{}
	for i := range servers {
		if !servers[i].look().apps {
			continue
		}
		for _, t := range servers[i].Tools {
			if id := t.Def.ID; id.Kind == tool.KindTool && !t.Def.App.NotApp && !slices.Contains(found[id.Name], byID.get(id)) {
				found[id.Name] = append(found[id.Name], byID.get(id))
			}
		}
	}
	return found
}

// OfApp finds the tool that an app calls by its name at the app's server. That server is
// one of open, the likeliest first; if open is empty, it is the only server with apps
// that has such a tool.
func (a apps) OfApp(name string, open []string) (*tool.Tool, bool) {
	tools := a[name]
	if len(open) == 0 {
		if len(tools) == 1 {
			return tools[0], true
		}
		return nil, false
	}
	for _, server := range open {
		if i := slices.IndexFunc(tools, func(t *tool.Tool) bool { return t.Def.ID.Server == server }); i >= 0 {
			return tools[i], true
		}
	}
	return nil, false
}
