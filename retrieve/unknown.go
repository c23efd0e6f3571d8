package retrieve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// noSuch answers a call of an unknown name.
func (c *caller) noSuch(ctx context.Context, call *tool.Call, name, server string) tool.Result {
	c.refuse(ctx, call, name, nil, tool.ErrNotFound)
	return tool.ErrorResult(c.unknown(name, server))
}

// unknown returns the error text for an unknown name, with similar names and where to search.
func (c *caller) unknown(name, server string) string {
	text := fmt.Sprintf("unknown tool %q", rawjson.Clip(name, 128))
	near := c.catalog.Nearest(name, 3)
	if meant := c.catalog.spelled(name, c.absent()); len(meant) > 1 {
		near = nil
		for _, t := range meant[:min(len(meant), 3)] {
			near = append(near, t.Name)
		}
	}
	if len(near) > 0 && server == "" {
		text += "; nearest: " + strings.Join(near, ", ")
	}
	return text + c.Because(name) + ". Find tools with " + c.searchTool(server) + "."
}

// Because completes the error for an unknown name: it is held, it is a meta-tool, an absent server may have it, or
// a setting offers it. It is "" if nothing explains the name.
func (c *caller) Because(name string) string {
	if because := c.catalog.held.because(name); because != "" {
		return because
	}
	if c.metaTool(name) != nil {
		return "; it is a tool of toolfinch itself: call it directly, not through another one"
	}
	if _, meta := offeredWith[name]; !meta {
		if because := unknownBecause(c.absent(), name); because != "" {
			return because
		}
	}
	return offered(name)
}

// IsMeta reports whether a name belongs to a meta-tool, offered here or not, and not perhaps to a tool of an absent
// server.
func (c *caller) IsMeta(name string) bool {
	return slices.Contains(Reserved(), name) ||
		offered(name) != "" && !slices.ContainsFunc(c.absent(), func(a Absent) bool { return a.Prefix == "" || a.mayHave(name) })
}

// searchTool returns the name of the meta-tool that finds the tools of a server; "" for all servers.
func (c *caller) searchTool(server string) string {
	if server == "" {
		return c.search
	}
	return SearchName(server) // the meta-tools of one server begin with its name
}

// unknownID returns the error text for an ID that is malformed or unknown.
func unknownID(c *Catalog, id string, absent []Absent) string {
	text := "Unknown tool: "
	if !wellFormed(id) {
		text = "Invalid tool ID format: "
	}
	text += rawjson.Clip(id, 128)
	if near := c.Nearest(id, 3); len(near) > 0 {
		text += ". Nearest: " + strings.Join(near, ", ")
	}
	return text + unknownBecause(absent, id)
}
