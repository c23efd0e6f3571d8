package register

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/tool"
)

// Source is the tools, prompts and resources that a Live serves; the catalog
// implements it. It never changes. Its methods are called for every list and call
// and must not block.
type Source interface {
	// Lookup finds a tool by the name clients see.
	Lookup(name string) (*tool.Tool, bool)
	// OfApp finds the tool that an app (MCP Apps) calls by the name it has at the app's
	// server. open are the servers that it may be, the likeliest first.
	OfApp(name string, open []string) (*tool.Tool, bool)
	// ByID finds a tool by its ID.
	ByID(id tool.ID) (*tool.Tool, bool)
	// Nearest returns up to n exposed names that look like name.
	Nearest(name string, n int) []string
	// Tools returns all tools, in a stable order.
	Tools() []*tool.Tool
	// Pinned returns the tools that are listed from the start, in their order.
	Pinned() []*tool.Tool
	// Items returns all prompts, resources or templates, in a stable order.
	Items(kind tool.Kind) []*tool.Tool
	// Prompt finds a prompt by the name clients see.
	Prompt(name string) (*tool.Tool, bool)
	// Resource finds a resource, listed or not, by the URI clients use.
	Resource(uri string) (*tool.Tool, bool)
	// Exposed returns the URI that clients know a server's resource by.
	Exposed(server, uri string) string
	// CacheHint says how long a list may be cached, and whether for everybody.
	CacheHint(kind tool.Kind) (ttl time.Duration, public bool)
}

// Served is all that a Live shows and does at one time. It never changes; each
// request uses one to its end.
type Served struct {
	Source
	// Class is equal for what is served to parties whom no policy tells apart; "" where it
	// is the same for all.
	Class        string
	Instructions string // sent with initialize and server/discover
	Declared     Declared

	// Mode names how tools reach clients: when it changes, sessions that stay are
	// shown the new way.
	Mode string
	// Direct reports whether a client is listed every tool: one that comes now, or one
	// that was until now; nil: none is. It is not asked with Granted, and for a session
	// that is not listed every tool no more in the same Mode. 2026-07-28 clients count as
	// one session, but where Class is set or others serve them too: then as one that comes now.
	Direct func(until bool) bool
	// ListsWait is how long lists of tools wait for what is starting (see Started).
	ListsWait time.Duration
	// Search are the meta-tools of clients that are not listed every tool, Beside what is listed
	// of them to those that are, and Meta the meta-tools of all clients.
	Search, Beside, Meta []*tool.Tool
	// Unlisted are meta-tools that answer when they are called, and are not listed.
	Unlisted []*tool.Tool
	// Granted, if set, says that tools must be provisioned before they are called, and
	// returns those of an owner (see tool.Call.Owner). Then only these are listed beside
	// the meta-tools and the pinned ones, and nothing is registered. It must not block.
	Granted func(owner string) []tool.ID
	// Register says when found tools are registered for a client ("name version"), up to
	// MaxRegistered per session (default DefaultMaxRegistered); nil: never.
	Register      func(client string) When
	MaxRegistered int
	// Awaits, if set, says which clients take in a new list before they hear the answer
	// of the call that changed it; others are left some time for it.
	Awaits func(client string) bool
	// Recall is how many of the tools that a client called in its last sessions are
	// registered from the start of a new one; 0 for none. Learn says that they are also for
	// clients for which none is registered later.
	Recall int
	Learn  bool
	// SearchTool is the name of the tool in Search that finds tools; "": none does.
	SearchTool string
	// Started, if set, waits until what is still starting is there, or has taken too
	// long, and returns what is served then. Lists that a client may ask for only once
	// wait for it, tools with ListsWait, and so does a name that nothing has yet.
	Started func(ctx context.Context) *Served
	// IsMeta, if set, reports whether a name is that of a meta-tool, served or not: a call
	// of it waits for nothing.
	IsMeta func(name string) bool
	// Because, if set, says after the error for an unknown name why it may be unknown;
	// "" if nothing is known of that.
	Because func(name string) string
}

// started waits with Started. The result may be v itself.
func (v *Served) started(ctx context.Context) *Served {
	if v.Started == nil {
		return v
	}
	return v.Started(ctx)
}

// Declared is what is declared to clients beside tools.
type Declared struct {
	Prompts, Resources, Subscribe, Completions, Logging bool
	Tasks                                               bool // the extension of 2026-07-28
	// Extensions are the other extensions, each as a server declared it.
	Extensions map[string]json.RawMessage
}

// Only leaves what has reports that there may be something of.
func (d *Declared) Only(has func(kinds ...tool.Kind) bool) {
	d.Prompts = d.Prompts && has(tool.KindPrompt)
	d.Resources = d.Resources && has(tool.KindResource, tool.KindTemplate)
	d.Subscribe = d.Subscribe && d.Resources
	d.Completions = d.Completions && (d.Prompts || d.Resources)
}

// DefaultMaxRegistered is how many tools a session may have registered.
const DefaultMaxRegistered = 40

func (v *Served) maxRegistered() int { return cmp.Or(v.MaxRegistered, DefaultMaxRegistered) }

// when is Register, also where it is nil: a gate tells its clients when what they are
// listed changes.
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

// mode is Mode, and another one behind a gate.
func (v *Served) mode() string {
	if v.gated() {
		return v.Mode + " gated"
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

// hint is what to do about an unknown tool.
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

// AtOnce: with the answer, in one change of the list. WhenUsed: once they were called,
// when the list changes anyway, and for the client's next sessions. Never: the list stays.
// Tried: AtOnce until the client was waited for in vain, then WhenUsed.
const (
	AtOnce   When = "at_once"
	WhenUsed When = "when_used"
	Never    When = "never"
	Tried    When = "tried"
)

// granted returns the tools that are listed to an owner behind a gate. Those of
// Anonymous are not: the list of a 2026-07-28 client must not vary by its calls.
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

// registrable are those of tools that are served now, and are not pinned.
func (v *Served) registrable(tools []*tool.Tool) (out []*tool.Tool) {
	for _, t := range tools {
		if now, ok := v.Lookup(t.Name); ok && now.Def.ID == t.Def.ID && !v.isPinned(now.Def.ID) {
			out = append(out, now)
		}
	}
	return out
}

// recalls reports whether new sessions of the client that makes a call begin with tools
// that it called before: those of clients for which tools are registered, and with Learn
// of all.
func (v *Served) recalls(call *tool.Call) bool {
	return v.Recall > 0 && v.Register != nil && !v.gated() && call.Client != nil && (v.Learn || v.Register(call.Client.Name) != Never)
}
