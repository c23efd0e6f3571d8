package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"toolfinch/configs"
	"toolfinch/index"
	"toolfinch/internal/nearest"
	"toolfinch/proxy/web"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/view/output"
	"toolfinch/view/python"
	"toolfinch/view/script"
)

// ErrNoView is wrapped by the error for a name that no view has.
var ErrNoView = web.ErrNoView

// served is all that is served at one time. It never changes; one store replaces it.
type served struct {
	config   *configs.Config
	views    []*View // the default view first
	byName   map[string]*View
	problems []view.Problem // what is wrong with the views beside what the upstreams have
	modules  []string       // the files of the views' modules
	held     map[string]int // definitions that wait for approval, by server
	limits   *rate.Limits   // of the calls of clients
	complete bool           // each upstream has been listed, or has failed, since Open
	replaced chan struct{}  // closed when another value is served
	ready    chan struct{}  // closed when what is served became complete
}

// View is one view of the upstreams at one time: what can be found and called in
// it. It never changes, and answers as it is even when another has taken its place.
type View struct {
	name      string
	settings  view.Settings
	pool      *upstream.Pool
	root      *retrieve.Catalog // what the view's catalogs are made from
	upstreams []string          // whose tools it has
	starting  []string          // those of them that were never listed and are connecting for the first time
	// startsUntil is how long requests wait for them at most.
	startsUntil time.Time
	problems    []view.Problem
	compiled    *view.Compiled
	searches    []searchTools
	settled     bool // what its upstreams have is known
	lists       bool // it serves others together, direct ones among them
	contents    retrieve.Contents
	declared    map[string]register.Declared // what its upstreams declare, by their name
	catalog     *retrieve.Catalog
	retriever   *retrieve.Retriever

	police *police // what stands around all that clients use
	parts  *parts  // what parties have of it; nil: all have the same
	whole  *View   // of which this is a part; nil: it is whole

	*endpoint // its live server; nil in a Workspace
	shown     register.Served
	budget    *gate.Budget // nil: not gated
}

// views are the views of a configuration over what is known of its upstreams.
type views struct {
	options
	first    *configs.Config // what was opened: a part of it holds until a restart
	pool     *upstream.Pool
	logins   *logins
	known    *listings
	modules  *script.Modules
	outputs  *output.Cache
	python   *python.Host
	scripts  *script.Sandbox
	memory   *retrieve.Memory // nil unless it is to learn
	tokens   map[string]int   // counts of definitions that the store knew
	embedder *embedder
	segments *segments
	stored   *index.Stored // what the indexes of views begin with; nil once all that is known can be found
	partial  bool          // not all that is known can be found yet
	limits   *rate.Limits  // of the calls of clients
	denials  denials
	others   *others // the replicas beside this one; nil: there are none
	// endpoint gives a new view its live server; nil in a Workspace.
	endpoint func(v *View) *endpoint

	now atomic.Pointer[served]
}

// View returns the view of that name; "" is the one that clients get who name
// none. The error wraps ErrNoView and says which there are.
func (s *views) View(name string) (*View, error) {
	all := s.now.Load()
	root := s.rootOf(all.config)
	if name = cmp.Or(name, root); name == "" {
		return nil, fmt.Errorf("%w: without a view's name nothing is served (default_view: none); there are %s", ErrNoView, addresses(all.views))
	}
	if v := all.byName[name]; v != nil {
		return v, nil
	}
	if reason := all.config.BrokenViews[name]; reason != "" {
		return nil, fmt.Errorf("%w: %q is left out: %s", ErrNoView, name, reason)
	}
	var names []string
	for _, v := range all.views {
		names = append(names, v.name)
	}
	if near := nearest.Names(name, names, 1, nearest.Loose); len(near) > 0 {
		return nil, fmt.Errorf("%w: %q; did you mean %s?", ErrNoView, name, near[0])
	}
	return nil, fmt.Errorf("%w: %q; there are %s", ErrNoView, name, strings.Join(names, ", "))
}

// rootOf returns the name of the view of clients that name none; "" for none.
func (s *views) rootOf(config *configs.Config) string { return cmp.Or(s.only, rootOf(config)) }

// rootOf returns the name of the view that a configuration has served at the root; ""
// for none.
func rootOf(config *configs.Config) string {
	switch root := config.Root(); root {
	case configs.RootAll, configs.RootViews:
		return view.Default
	case configs.RootNone:
		return ""
	default:
		return root
	}
}

// main is the view of clients that name none. It is nil where the root serves nothing.
func (s *views) main() *View {
	now := s.now.Load()
	return now.byName[s.rootOf(now.config)]
}

// Root says what is served where no view is named.
func (s *views) Root() string {
	config := s.now.Load().config
	switch root := s.rootOf(config); {
	case root == "":
		return "nothing (default_view: none)"
	case s.only == "" && config.Root() == configs.RootAll:
		return "every tool of every server, past all views"
	case config.Root() == configs.RootViews && root == view.Default:
		return aboutRoot(s.now.Load().views)
	default:
		return "the view " + root
	}
}

// addresses say where clients find views.
func addresses(views []*View) string {
	all := make([]string, len(views))
	for i, v := range views {
		all[i] = fmt.Sprintf("%s (/mcp/%s, --view %s)", v.name, v.name, v.name)
	}
	return strings.Join(all, ", ")
}

// Views returns all views, that of the root first where it is none of tool_views.
func (s *views) Views() []*View { return slices.Clone(s.now.Load().views) }

// Problems are what is wrong with the views beside what the upstreams have now.
func (s *views) Problems() []view.Problem { return s.now.Load().problems }

// Retriever answers searches in the view of clients that name none; it works
// from Open on. It is nil where the root serves nothing.
func (s *views) Retriever() *retrieve.Retriever {
	if v := s.main(); v != nil {
		return v.retriever
	}
	return nil
}

// Tools is the number of tools known in that view, else in the largest one.
func (s *views) Tools() (n int) {
	if v := s.main(); v != nil {
		return v.catalog.Len()
	}
	for _, v := range s.now.Load().views {
		n = max(n, v.catalog.Len())
	}
	return n
}

// catalogs are those of all views.
func (s *views) catalogs() []*retrieve.Catalog {
	var all []*retrieve.Catalog
	for _, v := range s.now.Load().views {
		all = append(all, v.catalog)
	}
	return all
}

// closeAll ends the views and what stands under them.
func (s *views) closeAll(ctx context.Context) error {
	err := s.pool.Close(ctx)
	s.logins.Close()
	for _, v := range s.now.Load().views {
		err = cmp.Or(err, v.close())
	}
	s.scripts.Close()
	s.python.Close()
	return cmp.Or(err, s.embedder.close())
}

// Settings returns what the view is configured as.
func (v *View) Settings() view.Settings { return v.settings }

// Retriever answers searches in the view.
func (v *View) Retriever() *retrieve.Retriever { return v.retriever }

// Tools returns the tools of the view, sorted by the names clients see.
func (v *View) Tools() []*tool.Tool { return v.catalog.Tools() }

// Find finds a tool of the view by the name clients see, "server.tool" or "server:tool".
func (v *View) Find(name string) (*tool.Tool, error) { return v.catalog.Find(name) }

// Nearest returns up to n names of tools that look like name.
func (v *View) Nearest(name string, n int) []string { return v.catalog.Nearest(name, n) }

// Call calls a tool of the view for the owner, with all that is around it but the
// gate. notify, which may be nil, gets what the tool says meanwhile.
func (v *View) Call(ctx context.Context, t *tool.Tool, arguments json.RawMessage, notify func(method string, params json.RawMessage)) (tool.Result, error) {
	return t.Handler(ctx, &tool.Call{Name: t.Name, Arguments: arguments, Notify: notify, Local: true})
}

// health counts the upstreams of the root by their state, all of them where it serves
// nothing.
func (s *views) health() (h retrieve.Health) {
	if v := s.main(); v != nil {
		return v.health()
	}
	for _, s := range s.pool.Health() {
		switch s.State {
		case upstream.StateFailed, upstream.StateLogin:
			h.Failed++
		case upstream.StateReady:
			h.Ready++
		default:
			h.Pending++
		}
	}
	return h
}

// has reports whether the view has something of an upstream.
func (v *View) has(server string) bool { return slices.Contains(v.upstreams, server) }

// health counts the upstreams of the view by their state.
func (v *View) health() retrieve.Health {
	known := make(map[string]*retrieve.Server, len(v.upstreams)) // nil where the catalog has nothing of it
	for _, name := range v.upstreams {
		known[name] = nil
	}
	servers := v.catalog.Servers()
	for i := range servers {
		if _, has := known[servers[i].Name]; has {
			known[servers[i].Name] = &servers[i]
		}
	}
	var h retrieve.Health
	all := v.pool.Health()
	for i, s := range all {
		server, has := known[s.Server]
		if !has {
			continue
		}
		listed := server != nil && server.Tools != nil
		if a, is := v.absent(s, server, listed); is {
			if h.Absent == nil {
				h.Absent = make([]retrieve.Absent, 0, len(all)-i)
			}
			h.Absent = append(h.Absent, a)
		}
		switch {
		case s.State == upstream.StateFailed, s.State == upstream.StateLogin:
			h.Failed++
		case s.State == upstream.StateReady && listed:
			h.Ready++
		default:
			h.Pending++
		}
	}
	for _, s := range servers {
		if n := v.catalog.HeldOf(s.Name); n > 0 {
			h.Absent = append(h.Absent, retrieve.Absent{Server: s.Name, Listed: true, Held: n})
		}
	}
	return h
}

// close ends the sessions of the view, and then the view.
func (v *View) close() error {
	if v.endpoint != nil {
		v.endpoint.close()
	}
	return v.root.Close()
}
