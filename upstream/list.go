package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// Bounds of what is taken of a server's list of one kind.
const (
	maxPages    = 1000
	maxDefs     = 200_000
	maxDefBytes = 256 << 20 // of a list
	maxDef      = 1 << 20   // bytes of one definition; a longer one is rejected
	maxRejected = 20        // how many rejections are told of
)

// listing is what a server lists of one kind.
type listing struct {
	defs     []*tool.Def
	rejected []error
	hint     *CacheHint // nil when the server said nothing
}

// listMethods are the methods that list the kinds, and the member of their
// results that does.
var listMethods = map[tool.Kind]struct{ method, member, called string }{
	tool.KindTool:     {"tools/list", "tools", "tools"},
	tool.KindPrompt:   {"prompts/list", "prompts", "prompts"},
	tool.KindResource: {"resources/list", "resources", "resources"},
	tool.KindTemplate: {"resources/templates/list", "resourceTemplates", "resource templates"},
}

// lists reports whether the server has definitions of a kind.
func (c *conn) lists(kind tool.Kind) bool {
	switch kind {
	case tool.KindTool:
		return c.capabilities.Tools != nil
	case tool.KindPrompt:
		return c.capabilities.Prompts != nil
	}
	return c.capabilities.Resources != nil
}

// list asks for all definitions of a kind. Those that are none, and second ones
// of a name, are rejected; the others are kept.
func (c *conn) list(ctx context.Context, kind tool.Kind) (all listing, err error) {
	if !c.lists(kind) {
		return all, nil
	}
	how := listMethods[kind]
	rejected, size := 0, 0
	reject := func(err error) {
		if rejected++; rejected <= maxRejected {
			all.rejected = append(all.rejected, err)
		}
	}
	defer func() {
		if rejected > maxRejected {
			all.rejected = append(all.rejected, fmt.Errorf("%d more of the list of %s", rejected-maxRejected, how.called))
		}
	}()
	seen := map[string]bool{}
	cursors := map[string]bool{}
	cursor := ""
	for page := range maxPages {
		members := newObject(256)
		if cursor != "" {
			members.text("cursor", cursor)
		}
		params := c.ownParams(members)
		raw, err := c.request(ctx, how.method, params, c.header(how.method, params, nil, ""))
		if err != nil {
			return listing{}, err
		}
		var items []json.RawMessage
		if err := json.Unmarshal(rawjson.Member(raw, how.member), &items); err != nil {
			return listing{}, fmt.Errorf("the list of %s is none: %w", how.called, err)
		}
		if size += len(raw); size > maxDefBytes || len(seen)+len(items) > maxDefs {
			return listing{}, fmt.Errorf("the list of %s is longer than %d MiB or %d", how.called, maxDefBytes>>20, maxDefs)
		}
		for i, item := range items {
			if len(item) > maxDef {
				reject(fmt.Errorf("%s %d: the definition is longer than %d kB", kind, len(seen)+i+1, maxDef>>10))
				continue
			}
			def, err := tool.ParseKind(kind, c.settings.Name, item)
			switch {
			case err != nil:
				reject(fmt.Errorf("%s %d: %w", kind, len(seen)+i+1, err))
			case c.unmirrorable(def):
				reject(fmt.Errorf("%s %.100q has an x-mcp-header annotation that no header can be made of", kind, def.ID.Name))
			case seen[def.ID.Name]:
				reject(fmt.Errorf("%s %.100q is listed twice", kind, def.ID.Name))
			default:
				seen[def.ID.Name] = true
				all.defs = append(all.defs, def)
			}
		}
		if c.era == EraModern {
			all.hint = narrower(all.hint, cacheHint(raw), page == 0)
		}
		if cursor = rawjson.Text(rawjson.Member(raw, "nextCursor")); cursor == "" {
			return all, nil
		}
		if cursors[cursor] {
			return listing{}, fmt.Errorf("the list of %s repeats itself", how.called)
		}
		cursors[cursor] = true
	}
	return listing{}, fmt.Errorf("the list of %s has more than %d pages", how.called, maxPages)
}

// unmirrorable reports whether a tool must be left out because of its
// x-mcp-header annotations, as clients of 2026-07-28 must over HTTP (SEP-2243).
func (c *conn) unmirrorable(def *tool.Def) bool {
	if c.era != EraModern || c.http == nil {
		return false
	}
	typed := annotated(def)
	return typed != nil && mcp.ValidateParamHeaderAnnotations(typed) != nil
}

// annotated is a tool as mcp-go reads it, nil for one without x-mcp-header.
func annotated(def *tool.Def) *mcp.Tool {
	typed := new(mcp.Tool)
	if def == nil || !bytes.Contains(def.InputSchema, []byte("x-mcp-header")) || json.Unmarshal(def.Raw, typed) != nil {
		return nil
	}
	return typed
}

// cacheHint is what a page of a list says of keeping it, nil for nothing.
func cacheHint(page json.RawMessage) *CacheHint {
	var millis float64
	raw := rawjson.Member(page, "ttlMs")
	if raw == nil || json.Unmarshal(raw, &millis) != nil || millis < 0 {
		return nil
	}
	const longest = 365 * 24 * time.Hour
	return &CacheHint{
		TTL:    time.Duration(min(millis, float64(longest/time.Millisecond))) * time.Millisecond,
		Public: rawjson.Text(rawjson.Member(page, "cacheScope")) == "public",
	}
}

// narrower is what holds for a list of which some pages say a and one says b.
func narrower(a, b *CacheHint, first bool) *CacheHint {
	switch {
	case first:
		return b
	case a == nil || b == nil:
		return nil
	}
	return &CacheHint{TTL: min(a.TTL, b.TTL), Public: a.Public && b.Public}
}

// unknownMethod reports whether err says that the server does not know the method.
func unknownMethod(err error) bool {
	var rpc *tool.RPCError
	return errors.As(err, &rpc) && rpc.Code == tool.CodeMethodNotFound
}
