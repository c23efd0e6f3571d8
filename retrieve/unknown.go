package retrieve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// noSuch is the answer to a call of a name that no tool has, or none of that server.
func (c *caller) noSuch(ctx context.Context, call *tool.Call, name, server string) tool.Result {
	c.refuse(ctx, call, name, nil, tool.ErrNotFound)
	return tool.ErrorResult(c.unknown(name, server))
}

// unknown is the error for such a name.
func (c *caller) unknown(name, server string) string {
	text := fmt.Sprintf("unknown tool %q", rawjson.Clip(name, 128))
	if near := c.catalog.Nearest(name, 3); len(near) > 0 && server == "" {
		text += "; nearest: " + strings.Join(near, ", ")
	}
	return text + c.Because(name) + ". Find tools with " + c.searchTool(server) + "."
}

// Because says after the error for an unknown name, which nothing of the view has, that it
// is held, or a meta-tool and how it is called, which servers are not there that may have
// it, or which setting offers the meta-tool of that name; "" if none of this explains it.
func (c *caller) Because(name string) string {
	if because := c.catalog.held.because(name); because != "" {
		return because
	}
	if c.offers != nil && c.offers(name) {
		return "; it is a tool of toolfinch itself: call it directly, not through another one"
	}
	if _, meta := offeredWith[name]; !meta {
		if because := unknownBecause(c.absent(), name); because != "" {
			return because
		}
	}
	return offered(name)
}

// IsMeta reports whether a name is that of a meta-tool, offered here or not, and not one
// that a tool of an absent server may have.
func (c *caller) IsMeta(name string) bool {
	return slices.Contains(Reserved(), name) ||
		offered(name) != "" && !slices.ContainsFunc(c.absent(), func(a Absent) bool { return a.Prefix == "" || a.has(name) })
}

// searchTool returns the name of the meta-tool that finds the tools of a server, or of
// all with "".
func (c *caller) searchTool(server string) string {
	if server == "" {
		return c.search
	}
	return SearchName(server) // a server's own trio begins with its name
}

// unknownID says that no tool has an ID: one that cannot be the name of a tool, or that
// is not known.
func (c *Catalog) unknownID(id string, absent []Absent) string {
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
