package register

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/tool"
)

// Source has the tools, prompts and resources of a Live; the catalog implements it. It never changes.
// Every list and call uses its methods, so they must not block.
type Source interface {
	Lookup(name string) (*tool.Tool, bool)
	// OfApp finds the tool that an app (MCP Apps) calls by its name at the app's server. open are the
	// possible servers, the likeliest first.
	OfApp(name string, open []string) (*tool.Tool, bool)
	ByID(id tool.ID) (*tool.Tool, bool)
	// Nearest returns up to n exposed names similar to name.
	Nearest(name string, n int) []string
	// Tools returns all tools, in a stable order.
	Tools() []*tool.Tool
	// Pinned returns the always listed tools, in their order.
	Pinned() []*tool.Tool
	// Items returns all prompts, resources, templates or skills, in a stable order.
	Items(kind tool.Kind) []*tool.Tool
	Prompt(name string) (*tool.Tool, bool)
	// Resource finds a resource, listed or not, by the URI that clients use.
	Resource(uri string) (*tool.Tool, bool)
	// Exposed returns the clients' URI for a server's resource.
	Exposed(server, uri string) string
	// CacheHint says how long a list may be cached, and whether for everybody.
	CacheHint(kind tool.Kind) (ttl time.Duration, public bool)
}

// Served is everything that a Live shows and does at one time. It never changes; each request uses one
// value to its end.
type Served struct {
	Source
	// Class is equal for parties whom no policy tells apart; "" if all parties get the same.
	Class        string
	ByClient     bool   // Class depends on what clients call themselves, too
	Instructions string // sent with initialize and server/discover
	Declared     Declared

	// Mode names how tools reach clients. When it changes, running sessions follow.
	Mode string
	// Direct reports whether a client is listed every tool; until says that it was so far. nil: no
	// client. Not asked if Granted is set, nor again for a session whose answer was false in the same
	// Mode. 2026-07-28 clients count as one session, or each as a new client if Class is set or other
	// replicas serve them.
	Direct func(until bool) bool
	// Unsettled says that servers are starting and Direct may answer otherwise once they are there.
	Unsettled bool
	// ListsWait bounds how long lists of tools wait for starting servers (see Started).
	ListsWait time.Duration
	// Hurries, if set, names the clients that look at the first moments of a session alone. Their lists
	// wait for listsHurry at most, and so do those of clients that never list again.
	Hurries func(client string) bool
	// Search are the meta-tools for clients that search, Beside the listed meta-tools for clients that
	// are listed every tool, Meta the meta-tools for all clients.
	Search, Beside, Meta []*tool.Tool
	// Unlisted are meta-tools that can be called and are not listed.
	Unlisted []*tool.Tool
	// Granted, if set, makes the view gated: it returns the tools that an owner (see tool.Call.Owner)
	// has provisioned. Only these, the meta-tools and pinned tools are listed, and nothing is
	// registered. It must not block.
	Granted func(owner string) []tool.ID
	// Register says when found tools are registered for a client ("name version"), up to MaxRegistered
	// per session (default DefaultMaxRegistered); nil: never.
	Register      func(client string) When
	MaxRegistered int
	// Awaits, if set, names the clients that read a new list before the answer of the call that changed
	// it. Other clients get a grace.
	Awaits func(client string) bool
	// Legacy, if set, names the clients that server/discover sends to the legacy era, whose sessions have a
	// list of their own.
	Legacy func(client string) bool
	// Loads, if set, names the clients whose registered tools are marked to be loaded, where their own tool
	// search would hide them.
	Loads func(client string) bool
	// Portable, if set, names the clients whose lists have portable input schemas (see tool.Portable).
	Portable func(client string) bool
	// Short, if set, returns the name under which clients in Prefixes are listed a tool. Lookup finds it, too.
	Short    func(t *tool.Tool) string
	Prefixes func(client string) bool
	// Recall bounds the recent tools that a new session begins with; 0 for none. Learn includes clients
	// for which found tools are never registered.
	Recall int
	Learn  bool
	// SearchTool is the name of the search tool in Search, "" without one.
	SearchTool string
	// Started, if set, waits until servers have started or took too long, and returns what is served
	// then. Lists that clients read only once, tools (up to ListsWait) and unknown names wait for it.
	Started func(ctx context.Context) *Served
	// Renewed, if set, has servers listed again that do not say when their lists change, for an unknown
	// name or, with "", for a client that lists. It returns what is served then.
	Renewed func(ctx context.Context, name string) *Served
	// IsMeta, if set, reports whether a name is a meta-tool's, served or not: its call does not wait
	// for Started.
	IsMeta func(name string) bool
	// Meant, if set, returns the call that a tools/call means (see retrieve.Retriever.Meant): t is nil for a name
	// that no tool has. It must not block.
	Meant func(t *tool.Tool, call *tool.Call) (*tool.Tool, *tool.Call, func(tool.Result) tool.Result)
	// Groups, if set, returns the groups of a client that declares them (see Group); it may take long.
	Groups func() []Group
	// Grouped, if set, is served to clients that declare groups instead.
	Grouped *Served
	// Because, if set, explains an unknown name after the error; "" without a known cause.
	Because func(name string) string
}

// Group is a bundle of tools that a client reads when it needs them: a group of tool.ExtensionGroups.
type Group struct {
	Name         string       `json:"name"` // 1 to 64 lower-case letters, digits and single hyphens, unique
	Title        string       `json:"title,omitempty"`
	Description  string       `json:"description"`
	Instructions string       `json:"-"` // "" for none
	Tools        []*tool.Tool `json:"-"`
}

// Group serves clients that declare groups a list of groups, and never the list of every tool. source is as v's, with
// the pinned tools of these clients.
func (v *Served) Group(source Source, groups func() []Group) {
	grouped := *v
	grouped.Source, grouped.Groups, grouped.Direct, grouped.Beside = source, groups, nil, nil
	grouped.Declared.Extensions = map[string]json.RawMessage{tool.ExtensionGroups: json.RawMessage(`{"listChanged":true}`)}
	maps.Copy(grouped.Declared.Extensions, v.Declared.Extensions)
	v.Grouped = &grouped
}

// to returns what is served to a client that declares groups, or to another.
func (v *Served) to(groups bool) *Served {
	if groups && v.Grouped != nil {
		return v.Grouped
	}
	return v
}

// started calls Started. The result may be v itself.
func (v *Served) started(ctx context.Context) *Served {
	if v.Started == nil {
		return v
	}
	return v.Started(ctx).to(v.Groups != nil)
}

// Declared is what a Live declares to clients beside tools.
type Declared struct {
	Prompts, Resources, Subscribe, Completions, Logging bool
	Tasks                                               bool // the 2026-07-28 extension
	// Extensions are the other extensions, as servers declared them.
	Extensions map[string]json.RawMessage
}

// Only removes declarations of kinds for which has reports false.
func (d *Declared) Only(has func(kinds ...tool.Kind) bool) {
	d.Prompts = d.Prompts && has(tool.KindPrompt)
	d.Resources = d.Resources && has(tool.KindResource, tool.KindTemplate, tool.KindSkill)
	d.Subscribe = d.Subscribe && d.Resources
	d.Completions = d.Completions && (d.Prompts || d.Resources)
	if d.Extensions[tool.ExtensionSkills] != nil && !has(tool.KindSkill) {
		d.Extensions = maps.Clone(d.Extensions)
		delete(d.Extensions, tool.ExtensionSkills)
	}
}

// DefaultMaxRegistered bounds the registered tools of a session.
const DefaultMaxRegistered = 40

func (v *Served) maxRegistered() int { return cmp.Or(v.MaxRegistered, DefaultMaxRegistered) }

// when is Register with its default. Clients of a gated view are told of changes at once.
func (v *Served) when(client string) When {
	switch {
	case v.Register != nil:
		return v.Register(client)
	case v.gated():
		return AtOnce
	}
	return Never
}

func (v *Served) awaits(client string) bool { return v.Awaits != nil && v.Awaits(client) }

func (v *Served) gated() bool { return v.Granted != nil }

// mode is Mode, marked in a gated view and with groups.
func (v *Served) mode() string {
	switch {
	case v.gated():
		return v.Mode + " gated"
	case v.Groups != nil:
		return v.Mode + " groups"
	}
	return v.Mode
}

// MetaTool finds a meta-tool by name, listed or not; nil for none.
func (v *Served) MetaTool(name string) *tool.Tool {
	for _, meta := range [][]*tool.Tool{v.Search, v.Meta, v.Unlisted} {
		for _, t := range meta {
			if t.Name == name {
				return t
			}
		}
	}
	return nil
}

func (v *Served) isPinned(id tool.ID) bool {
	return slices.ContainsFunc(v.Pinned(), func(t *tool.Tool) bool { return t.Def.ID == id })
}

// declare removes from mcp-go's declaration what v does not declare.
func (v *Served) declare(c *mcp.ServerCapabilities, instructions *string) {
	if !v.Declared.Prompts {
		c.Prompts = nil
	}
	if !v.Declared.Resources {
		c.Resources = nil
	} else if !v.Declared.Subscribe && c.Resources != nil {
		without := *c.Resources
		without.Subscribe = false
		c.Resources = &without
	}
	if !v.Declared.Completions {
		c.Completions = nil
	}
	if !v.Declared.Logging {
		c.Logging = nil
	}
	if len(v.Declared.Extensions) > 0 {
		c.Extensions = map[string]any{}
		for name, value := range v.Declared.Extensions {
			c.Extensions[name] = value
		}
	}
	*instructions = v.Instructions
}

// hint says what to do about an unknown tool.
func (v *Served) hint(call *tool.Call) string {
	hint := ""
	if v.Because != nil {
		hint = v.Because(call.Name)
	}
	if call.Kind != tool.KindTool {
		return hint
	}
	if near := v.Nearest(call.Name, 3); len(near) > 0 {
		hint = "; nearest: " + strings.Join(near, ", ") + hint
	}
	if v.SearchTool != "" {
		hint += ". Search with " + v.SearchTool + "."
	}
	return hint
}

// When says when found tools are registered for a client.
type When string

// AtOnce: with the answer, in one change of the list. WhenUsed: after a call, with the next change of
// the list and for the client's next sessions. Never: the list stays. Tried: AtOnce until one hold was
// in vain, then WhenUsed. Best: AtOnce, but of each query the best tool alone, unless its definition is long.
const (
	AtOnce   When = "at_once"
	WhenUsed When = "when_used"
	Never    When = "never"
	Tried    When = "tried"
	Best     When = "best"
)

// granted returns the provisioned tools of an owner. It returns none for Anonymous: the list of a
// 2026-07-28 client must not depend on its calls.
func (v *Served) granted(owner string) []*tool.Tool {
	if owner == tool.Anonymous || !v.gated() {
		return nil
	}
	var tools []*tool.Tool
	for _, id := range v.Granted(owner) {
		if t, ok := v.ByID(id); ok && !v.isPinned(id) {
			tools = append(tools, t)
		}
	}
	return tools
}

// registrable returns the tools that are still served, and are not pinned.
func (v *Served) registrable(tools []*tool.Tool) (out []*tool.Tool) {
	for _, t := range tools {
		if now, ok := v.Lookup(t.Name); ok && now.Def.ID == t.Def.ID && !v.isPinned(now.Def.ID) {
			out = append(out, now)
		}
	}
	return out
}

// recalls reports whether the client's new sessions begin with recent tools: if found tools are
// registered for it, or with Learn.
func (v *Served) recalls(call *tool.Call) bool {
	return v.Recall > 0 && v.Register != nil && !v.gated() && call.Client != nil && (v.Learn || v.Register(call.Client.Name) != Never)
}
