package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Bounds of a server's list of one kind.
const (
	maxPages    = 1000
	maxDefs     = 200_000
	maxDefBytes = 256 << 20 // bytes of a list
	maxDef      = 1 << 20   // bytes of one definition; longer definitions are left out
)

// secondaryWithin bounds the lists of all kinds but tools. A server that never answers such a
// list must not delay its tools.
const secondaryWithin = 20 * time.Second

// listMethods are the methods that list each kind, the member of their results with the
// list, and the kind's name in errors.
var listMethods = map[tool.Kind]struct{ method, member, called string }{
	tool.KindTool:     {"tools/list", "tools", "tools"},
	tool.KindPrompt:   {"prompts/list", "prompts", "prompts"},
	tool.KindResource: {"resources/list", "resources", "resources"},
	tool.KindTemplate: {"resources/templates/list", "resourceTemplates", "resource templates"},
	tool.KindSkill:    {"skills/list", "skills", "skills"},
}

// lists reports whether the server has definitions of a kind.
func (c link) lists(kind tool.Kind) bool {
	switch kind {
	case tool.KindTool:
		return c.Has("tools")
	case tool.KindPrompt:
		return c.Has("prompts")
	case tool.KindSkill:
		return rawjson.IsObject(rawjson.Member(rawjson.Member(c.Capabilities, "extensions"), tool.ExtensionSkills))
	}
	return c.Has("resources")
}

// notifies reports whether the server says when its tools change.
func (c *connection) notifies() bool {
	switch {
	case string(rawjson.Member(rawjson.Member(c.Capabilities, "tools"), "listChanged")) != "true", c.groups() != nil && !c.tellsGroups():
		return false
	case c.Era == EraModern:
		return c.listening.isConfirmed()
	}
	return c.Streams()
}

// list asks the server with this name for its definitions of a kind. Definitions that
// clients do not accept, and repeated names, are left out.
func (c link) list(ctx context.Context, server string, kind tool.Kind) (all listing, err error) {
	if !c.lists(kind) {
		return all, nil
	}
	how := listMethods[kind]
	in := intake{over: c, server: server, kind: kind, seen: map[string]bool{}, listing: &all}
	size := 0
	cursors := map[string]bool{}
	cursor := ""
	for page := range maxPages {
		var members rawjson.Object
		if cursor != "" {
			members.AddText("cursor", cursor)
		}
		raw, err := c.own(ctx, how.method, &members)
		if err != nil {
			return listing{}, err
		}
		var items []json.RawMessage
		if err := json.Unmarshal(rawjson.Member(raw, how.member), &items); err != nil {
			return listing{}, fmt.Errorf("%s was answered without an array %q: %.100q", how.method, how.member, raw)
		}
		if size += len(raw); size > maxDefBytes || in.count+len(items) > maxDefs {
			in.cut(fmt.Sprintf("is longer than %d MiB or %d", maxDefBytes>>20, maxDefs))
			return all, nil
		}
		if page > 0 && in.repeats(items) {
			in.cut("repeats itself")
			return all, nil
		}
		for _, item := range items {
			in.take(item)
		}
		if c.Era == EraModern {
			all.hint = narrower(all.hint, cacheHint(raw), page == 0)
		}
		if cursor = rawjson.Text(rawjson.Member(raw, "nextCursor")); cursor == "" {
			return all, nil
		}
		if cursors[cursor] { // what came before is the list
			in.cut("repeats itself")
			return all, nil
		}
		cursors[cursor] = true
	}
	in.cut(fmt.Sprintf("has more than %d pages", maxPages))
	return all, nil
}

// intake reads the definitions of one list.
type intake struct {
	over   link
	server string
	kind   tool.Kind
	*listing
	seen  map[string]bool
	count int // definitions seen
}

// repeats reports whether a page has nothing that earlier pages had not.
func (in *intake) repeats(page []json.RawMessage) bool {
	return len(page) > 0 && !slices.ContainsFunc(page, func(item json.RawMessage) bool {
		return !in.seen[rawjson.Text(rawjson.Member(item, in.kind.Key()))]
	})
}

// cut notes that the list goes on, and why the rest is not read.
func (in *intake) cut(why string) {
	in.faults.note(Fault{Kind: in.kind, Name: "nextCursor", Mended: true, Text: "the list " + why + ": its pages so far are served"})
}

// take adds a definition to the listing, or a fault, or both.
func (in *intake) take(item json.RawMessage) {
	in.count++
	fault := Fault{Kind: in.kind, Name: fmt.Sprintf("number %d", in.count)}
	if name := rawjson.Text(rawjson.Member(item, in.kind.Key())); name != "" && len(item) <= maxDef {
		fault.Name = fmt.Sprintf("%.100s", name)
	}
	def, mended, err := in.parse(item)
	switch {
	case err != nil:
		fault.Text = err.Error()
		in.faults.note(fault)
		return
	case len(mended) > 0:
		fault.Mended, fault.Text = true, joined(mended)
		in.faults.note(fault)
	}
	in.seen[def.ID.Name] = true
	in.defs = append(in.defs, def)
}

// parse reads one definition. The error says why the definition is left out.
func (in *intake) parse(item json.RawMessage) (def *tool.Def, mended []string, err error) {
	if len(item) > maxDef {
		return nil, nil, fmt.Errorf("the definition is longer than %d kB", maxDef>>10)
	}
	def, mended, err = tool.TakeIn(in.kind, in.server, item)
	switch {
	case err != nil:
		return nil, nil, err
	case in.over.unmirrorable(def):
		return nil, nil, errors.New("it has an x-mcp-header annotation that no header can be made of")
	case in.seen[def.ID.Name]:
		return nil, nil, errors.New("it is listed twice: the first counts")
	}
	return def, mended, nil
}

// joined joins the first texts, and counts the rest.
func joined(texts []string) string {
	const most = 5
	if len(texts) > most {
		return strings.Join(texts[:most], "; ") + fmt.Sprintf("; and %d more", len(texts)-most)
	}
	return strings.Join(texts, "; ")
}

// cacheHint returns the cache hint on a page of a list; nil if there is none.
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

// narrower combines the hints of the pages so far, a, with the next page's hint, b.
func narrower(a, b *CacheHint, first bool) *CacheHint {
	switch {
	case first:
		return b
	case a == nil || b == nil:
		return nil
	}
	return &CacheHint{TTL: min(a.TTL, b.TTL), Public: a.Public && b.Public}
}
