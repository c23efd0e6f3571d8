// Package served builds what is served at one time: the views of a configuration over what its servers list. It
// dials nothing, starts nothing and stores nothing; package proxy takes changes, has them built, and swaps the value.
package served

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/trust/policy"
	"toolfinch/trust/rate"
	"toolfinch/view"
)

// Served is all that is served at one time. It never changes.
type Served struct {
	Config   *configs.Config
	Views    []*View // the default view first
	ByName   map[string]*View
	Problems []view.Problem // of the views, beside the problems of the upstreams
	Held     map[string]int // definitions that wait for approval, by server
	Limits   *rate.Limits   // of the calls of clients
	Complete bool           // each upstream has been listed, or has failed, since the start
}

// View is one view of the upstreams at one time: the tools that can be found and called in
// it. It never changes, and answers as it is even when another has taken its place.
type View struct {
	Name        string
	Settings    view.Settings
	Upstreams   []string          // the servers of its tools
	Starting    []string          // the upstreams that were never listed and are connecting for the first time
	StartsUntil time.Time         // when requests stop waiting for Starting
	Contents    retrieve.Contents // of Catalog
	Catalog     *retrieve.Catalog
	Retriever   *retrieve.Retriever
	Shown       register.Served // to the clients of the view; zero in a command
	Budget      *gate.Budget    // nil: not gated
	Whole       *View           // the view that this is a part of; nil: this is no part

	problems []view.Problem
	compiled *view.Compiled
	searches []searchTools
	settled  bool                             // each upstream was listed, or has failed
	lists    bool                             // it combines views, at least one direct
	declared map[string]register.Declared     // by upstream
	parts    func(party identity.Party) *View // nil: every party has the whole view
	live     Live                             // nil in a command
	*rules
}

// rules decide about the calls of a view. The layers of tools keep the rules and never the view: tools outlive the view
// that they were made for.
type rules struct {
	name     string
	policies *policy.Policies // nil: they allow everything
	limits   *rate.Limits
	combined []string // the views that the view combines; nil: none
	run      Runtime
}

// latest returns the view as it is served now; nil if the view is not served any more.
func (r *rules) latest() *View { return r.run.Now().ByName[r.name] }

// searchTools are the meta-tools that search one server of a view, or all.
type searchTools struct {
	prefix, server, about string

	of *View // the view that is searched
}

// Runtime is what outlives the views that are built.
type Runtime interface {
	// Now returns what is served now: a tool may be called after its view was replaced.
	Now() *Served
	// Catalog returns a catalog of contents over the index of a view.
	Catalog(ctx context.Context, view string, contents retrieve.Contents) (*retrieve.Catalog, error)
	// Live returns the server of a view's clients; nil in a command.
	Live(view string) Live
	// Retrieval returns the settings of a view's retriever that do not follow from the view.
	Retrieval(v *View) retrieve.Settings
	// Observed returns the layer that observes calls of a tool.
	Observed(view string, t *tool.Tool) tool.Middleware
	// ObservedMeta returns a meta-tool of a view with its calls observed.
	ObservedMeta(v *View, t *tool.Tool) *tool.Tool
	// Denied counts a denial of a policy.
	Denied(decided policy.Decision)
}

// Live serves the clients of a view while what it shows is replaced.
type Live interface {
	Register(ctx context.Context, call *tool.Call, tools, best []*tool.Tool) (now map[string]bool, relisted bool)
	Used(call *tool.Call, t *tool.Tool)
	Gate() *gate.Gate
	// Started waits for the servers of the view that are starting, and returns the view that is served then to
	// the maker of the request of ctx.
	Started(ctx context.Context) *View
	// Renewed has servers listed again that may have a name, or all with "", and returns the view that is served
	// then to the maker of the request of ctx.
	Renewed(ctx context.Context, name string) *View
}

// Addresses says where clients find views.
func Addresses(views []*View) string {
	all := make([]string, len(views))
	for i, v := range views {
		all[i] = fmt.Sprintf("%s (/mcp/%s, --view %s)", v.Name, v.Name, v.Name)
	}
	return strings.Join(all, ", ")
}

// Tools returns the tools of the view, sorted by the names clients see.
func (v *View) Tools() []*tool.Tool { return v.Catalog.Tools() }

// Find finds a tool of the view by the name clients see, "server.tool" or "server:tool".
func (v *View) Find(name string) (*tool.Tool, error) { return v.Catalog.Find(name) }

// Call calls a tool of the view for the owner, with all its layers but the gate. notify, which may be nil,
// gets the notifications of the tool.
func (v *View) Call(ctx context.Context, t *tool.Tool, arguments json.RawMessage, notify func(method string, params json.RawMessage)) (tool.Result, error) {
	return t.Handler(ctx, &tool.Call{Name: t.Name, Arguments: arguments, Notify: notify, Local: true})
}

// Has reports whether the view has something of an upstream.
func (v *View) Has(server string) bool { return slices.Contains(v.Upstreams, server) }

// contains reports whether the catalog of the view has a server; there may be no view.
func (v *View) contains(server string) bool {
	return v != nil && slices.ContainsFunc(v.Contents.Servers, func(s retrieve.Server) bool { return s.Name == server })
}

// named finds a tool, prompt or resource of the view by its name; nil for none.
func (v *View) named(name string) *tool.Tool {
	if t, err := v.Catalog.Find(name); err == nil {
		return t
	}
	if t, ok := v.Catalog.Prompt(name); ok {
		return t
	}
	t, _ := v.Catalog.Resource(name)
	return t
}
