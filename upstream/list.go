package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Bounds of what is taken of a server's list of one kind.
const (
	maxPages    = 1000
	maxDefs     = 200_000
	maxDefBytes = 256 << 20 // of a list
	maxDef      = 1 << 20   // bytes of one definition; a longer one is left out
	maxFaults   = 20        // faults of a list that are described; the others are counted
)

// listing is what a server lists of one kind.
type listing struct {
	defs   []*tool.Def
	faults Faults
	hint   *CacheHint // nil when the server said nothing
}

// Fault is a definition that clients do not accept as its server lists it.
type Fault struct {
	Kind   tool.Kind
	Name   string // as listed, at most 100 characters; "number 3" for one without
	Mended bool   // it is served all the same, as tool.TakeIn mends it; else it is left out
	Text   string // what is wrong, and what is served instead
}

// Faults are the faults of what a server lists.
type Faults struct {
	LeftOut, Mended int     // how many there are
	Described       []Fault // the first of them, at most 20 of each kind
}

// add adds the faults of another list.
func (f *Faults) add(g Faults) {
	f.LeftOut += g.LeftOut
	f.Mended += g.Mended
	f.Described = append(f.Described, g.Described...)
}

// note adds one fault.
func (f *Faults) note(fault Fault) {
	if fault.Mended {
		f.Mended++
	} else {
		f.LeftOut++
	}
	if len(f.Described) < maxFaults {
		f.Described = append(f.Described, fault)
	}
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
func (c *connection) lists(kind tool.Kind) bool {
	switch kind {
	case tool.KindTool:
		return c.Has("tools")
	case tool.KindPrompt:
		return c.Has("prompts")
	}
	return c.Has("resources")
}

// list asks for all definitions of a kind. Those that clients do not accept, and
// second ones of a name, are left out.
func (c *connection) list(ctx context.Context, kind tool.Kind) (all listing, err error) {
	if !c.lists(kind) {
		return all, nil
	}
	how := listMethods[kind]
	in := intake{conn: c, kind: kind, seen: map[string]bool{}, listing: &all}
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
			return listing{}, fmt.Errorf("the list of %s is longer than %d MiB or %d", how.called, maxDefBytes>>20, maxDefs)
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
		if cursors[cursor] {
			return listing{}, fmt.Errorf("the list of %s repeats itself", how.called)
		}
		cursors[cursor] = true
	}
	return listing{}, fmt.Errorf("the list of %s has more than %d pages", how.called, maxPages)
}

// intake takes the definitions of one list in.
type intake struct {
	conn *connection
	kind tool.Kind
	*listing
	seen  map[string]bool
	count int // definitions seen
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

func (in *intake) parse(item json.RawMessage) (def *tool.Def, mended []string, err error) {
	if len(item) > maxDef {
		return nil, nil, fmt.Errorf("the definition is longer than %d kB", maxDef>>10)
	}
	def, mended, err = tool.TakeIn(in.kind, in.conn.server.settings.Name, item)
	switch {
	case err != nil:
		return nil, nil, err
	case in.conn.unmirrorable(def):
		return nil, nil, errors.New("it has an x-mcp-header annotation that no header can be made of")
	case in.seen[def.ID.Name]:
		return nil, nil, errors.New("it is listed twice: the first counts")
	}
	return def, mended, nil
}

// joined joins a few texts; the others are counted.
func joined(texts []string) string {
	const most = 5
	if len(texts) > most {
		return strings.Join(texts[:most], "; ") + fmt.Sprintf("; and %d more", len(texts)-most)
	}
	return strings.Join(texts, "; ")
}

// unmirrorable reports whether a tool must be left out because of its
// x-mcp-header annotations, as clients of 2026-07-28 must over HTTP (SEP-2243).
func (c *connection) unmirrorable(def *tool.Def) bool {
	if c.Era != EraModern || c.Transport == TransportStdio {
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
	rpc, ok := errors.AsType[*tool.RPCError](err)
	return ok && rpc.Code == tool.CodeMethodNotFound
}
