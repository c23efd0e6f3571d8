package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"toolfinch/configs"
	"toolfinch/index"
	"toolfinch/internal/nearest"
	"toolfinch/proxy/served"
	"toolfinch/proxy/web"
	"toolfinch/retrieve"
	"toolfinch/upstream"
	"toolfinch/upstream/login"
	"toolfinch/view"
	"toolfinch/view/output"
	"toolfinch/view/python"
	"toolfinch/view/script"
	"toolfinch/view/skills"
)

// ErrNoView is wrapped by errors about an unknown view.
var ErrNoView = web.ErrNoView

// View is one view of the upstreams at one time: the tools that can be found and called in it.
type View = served.View

// current is the served value, with the parts that the next value shares. It never changes; one atomic store replaces
// it.
type current struct {
	*served.Served
	endpoints map[string]*endpoint // by view
	modules   *script.Modules
	python    *python.Host
	skills    view.Upstream // of folders; with folders, which has their problems
	folders   *skills.Folders
	files     []string      // source files of modules and python
	replaced  chan struct{} // closed when another value is served
	ready     chan struct{} // closed when a complete value is served
}

// next returns a value without views that shares the other parts of c.
func (c *current) next(config *configs.Config) *current {
	return &current{Served: &served.Served{Config: config, Limits: c.Limits}, modules: c.modules, python: c.python, skills: c.skills, folders: c.folders, replaced: make(chan struct{}), ready: c.ready}
}

// views has the views of a configuration, built from the listings of its upstreams.
type views struct {
	options
	first    *configs.Config // configuration at Open: some keys hold until a restart
	pool     *upstream.Pool
	logins   *logins
	known    *listings
	outputs  *output.Cache
	scripts  *script.Sandbox
	memory   *retrieve.Memory // nil unless the configuration learns from use
	tokens   map[string]int   // token counts of definitions in the store at Open
	embedder *embedder
	segments *segments
	stored   *index.Stored // stored segments that new indexes use; nil once every known tool is indexed
	partial  bool          // some known tools are not indexed yet
	denials  denials
	others   *others // connection with the other replicas; nil without replicas
	desk     *desk   // state that the live servers share; nil in a Workspace

	reread chan struct{} // has a value when a skill of a folder is not as it was listed
	now    atomic.Pointer[current]
}

// View returns the named view; "" means the view of the root. The error wraps ErrNoView and names the existing views.
func (s *views) View(name string) (*View, error) { return s.viewIn(s.now.Load(), name) }

func (s *views) viewIn(all *current, name string) (*View, error) {
	root := s.rootOf(all.Config)
	if name = cmp.Or(name, root); name == "" {
		return nil, fmt.Errorf("%w: without a view's name nothing is served (default_view: none); there are %s", ErrNoView, served.Addresses(all.Views))
	}
	if v := all.ByName[name]; v != nil {
		return v, nil
	}
	if reason := all.Config.BrokenViews[name]; reason != "" {
		return nil, fmt.Errorf("%w: %q is left out: %s", ErrNoView, name, reason)
	}
	var names []string
	for _, v := range all.Views {
		names = append(names, v.Name)
	}
	if near := nearest.Names(name, names, 1, nearest.Loose); len(near) > 0 {
		return nil, fmt.Errorf("%w: %q; did you mean %s?", ErrNoView, name, near[0])
	}
	return nil, fmt.Errorf("%w: %q; there are %s", ErrNoView, name, strings.Join(names, ", "))
}

// rootOf returns the name of the view at the root, for clients that name no view; "" if the root serves nothing.
func (s *views) rootOf(config *configs.Config) string { return cmp.Or(s.only, served.RootOf(config)) }

// main returns the view at the root; nil if the root serves nothing.
func (s *views) main() *View {
	now := s.now.Load()
	return now.ByName[s.rootOf(now.Config)]
}

// Root describes the tools of clients that name no view.
func (s *views) Root() string {
	config := s.now.Load().Config
	switch root := s.rootOf(config); {
	case root == "":
		return "nothing (default_view: none)"
	case s.only == "" && config.Root() == configs.RootAll:
		return "every tool of every server, past all views"
	case config.Root() == configs.RootViews && root == view.Default:
		return s.now.Load().AboutRoot()
	default:
		return "the view " + root
	}
}

// Views returns all views. If the root's view is not one of tool_views, it is first.
func (s *views) Views() []*View { return slices.Clone(s.now.Load().Views) }

// Problems returns the problems of the views with the current definitions of the upstreams.
func (s *views) Problems() []view.Problem { return s.now.Load().Problems }

// Retriever answers searches in the root's view, from Open on. It is nil if the root serves nothing.
func (s *views) Retriever() *retrieve.Retriever {
	if v := s.main(); v != nil {
		return v.Retriever
	}
	return nil
}

// Tools returns the number of known tools in the root's view; if the root serves nothing, in the largest view.
func (s *views) Tools() (n int) {
	if v := s.main(); v != nil {
		return v.Catalog.Len()
	}
	for _, v := range s.now.Load().Views {
		n = max(n, v.Catalog.Len())
	}
	return n
}

// catalogs returns the catalogs of all views.
func (s *views) catalogs() []*retrieve.Catalog {
	var all []*retrieve.Catalog
	for _, v := range s.now.Load().Views {
		all = append(all, v.Catalog)
	}
	return all
}

// closeAll closes the upstreams, logins, endpoints, script hosts and the embedder.
func (s *views) closeAll(ctx context.Context) error {
	err := s.pool.Close(ctx)
	s.logins.Close()
	now := s.now.Load()
	for _, e := range now.endpoints {
		err = cmp.Or(err, e.close())
	}
	s.scripts.Close()
	now.python.Close()
	return cmp.Or(err, s.embedder.close())
}

// health counts the upstreams of the root's view by state; if the root serves nothing, all upstreams.
func (s *views) health() (h retrieve.Health) {
	if v := s.main(); v != nil {
		return s.healthOf(v)
	}
	for _, u := range s.pool.Health() {
		count(&h, u.State, true)
	}
	return h
}

// count counts an upstream by its state. An upstream that is connected but not listed counts as pending.
func count(h *retrieve.Health, state upstream.State, listed bool) {
	switch {
	case state == upstream.StateFailed, state == upstream.StateLogin:
		h.Failed++
	case state == upstream.StateReady && listed:
		h.Ready++
	default:
		h.Pending++
	}
}

// healthOf counts the upstreams of a view by state.
func (s *views) healthOf(v *View) retrieve.Health {
	known := make(map[string]*retrieve.Server, len(v.Upstreams)) // nil for an upstream that the catalog lacks
	for _, name := range v.Upstreams {
		known[name] = nil
	}
	servers := v.Catalog.Servers()
	for i := range servers {
		if _, has := known[servers[i].Name]; has {
			known[servers[i].Name] = &servers[i]
		}
	}
	var h retrieve.Health
	all := s.pool.Health()
	for i, u := range all {
		server, has := known[u.Server]
		if !has {
			continue
		}
		listed := server != nil && server.Tools != nil
		if a, is := s.absent(u, server, listed); is {
			if h.Absent == nil {
				h.Absent = make([]retrieve.Absent, 0, len(all)-i)
			}
			h.Absent = append(h.Absent, a)
		}
		count(&h, u.State, listed)
	}
	for _, s := range servers {
		if n := v.Catalog.HeldOf(s.Name); n > 0 {
			h.Absent = append(h.Absent, retrieve.Absent{Server: s.Name, Listed: true, Held: n})
		}
	}
	return h
}

// absent describes a server whose tools cannot be called now, and reports whether that is so. known is the server in
// the catalog, or nil.
func (s *views) absent(u upstream.Health, known *retrieve.Server, listed bool) (a retrieve.Absent, is bool) {
	switch {
	case u.State == upstream.StateReady && listed:
		return a, false
	case known == nil:
		a = retrieve.Absent{Server: u.Server, Prefix: u.Server}
	default:
		a = retrieve.Absent{Server: u.Server, Listed: listed, Prefix: u.Server, Description: known.Description}
		if known.Prefix != nil {
			a.Prefix = *known.Prefix
		}
	}
	switch {
	case u.State == upstream.StateLogin && u.Err != nil:
		if needed, ok := errors.AsType[*login.Needed](u.Err); ok {
			a.Login = strings.TrimPrefix(needed.Error(), "needs a login: ")
		}
	case u.State == upstream.StateFailed && u.Err != nil:
		a.Reason = strings.TrimPrefix(upstream.Reason(u.Err), "connect: ")
	case u.State != upstream.StateFailed && !listed && s.desk != nil:
		a.Starting, a.How = 1, "HTTP"
		if !u.Began.IsZero() { // else it waits for its turn
			a.Starting = max(1, time.Since(u.Began))
		}
		if u.Command != "" {
			a.How = strings.TrimSuffix(filepath.Base(u.Command), ".exe")
		}
	default:
		return a, false
	}
	return a, true
}

// Login returns the login to an upstream; nil if the upstream needs or wants none.
func (s *views) Login(server string) *login.Server { return s.pool.Login(server) }
