package retrieve

import (
	"slices"

	"toolfinch/tool"
)

// apps are the tools that an app may call, by their own names at their servers,
// which is all that an app knows. They are of servers with apps, in the order of
// the servers.
type apps map[string][]*tool.Tool

func newApps(servers []Server, byID map[tool.ID]*tool.Tool) apps {
	found := apps{}
	for _, s := range servers {
		if !slices.ContainsFunc(s.Tools, func(t *tool.Tool) bool { return t.Def.App.Shown }) {
			continue
		}
		for _, t := range s.Tools {
			if id := t.Def.ID; id.Kind == tool.KindTool && !t.Def.App.NotApp {
				found[id.Name] = append(found[id.Name], byID[id])
			}
		}
	}
	return found
}

// OfApp finds the tool that an app calls by the name it has at the app's server,
// which is one of open, the likeliest first. Where open is empty, it is the only
// server with apps that has such a tool.
func (c *Catalog) OfApp(name string, open []string) (*tool.Tool, bool) {
	tools := c.apps[name]
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
