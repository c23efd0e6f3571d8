package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/internal/nearest"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/view/output"
)

// plan is a view of a configuration on its way to be served. Only its catalog can
// still fail.
type plan struct {
	*View
	same  bool           // it is served already, and stays as it is
	find  string         // the meta-tool that answers send clients to who look for a tool
	offer retrieve.Offer // what there is of retrieve_tools and call_tool
	// together says that its tools are those of other views, with their handlers.
	together bool
	below    int // clients are listed every tool that cost fewer tokens together; 0: none is
}

// searchTools are the meta-tools that search one server of a view, or all.
type searchTools struct {
	prefix, server, about string

	of *View // whose tools these are
}

// plan compiles the views of a configuration over what the upstreams have. It
// changes nothing that is served. A served view that uses none of the changed
// servers stays as it is; with nil all views are compiled.
func (s *views) plan(config *configs.Config, upstreams []view.Upstream, changed map[string]bool) (plans []plan, problems []view.Problem) {
	base, problems := view.Base(upstreams, config.Tools)
	tools := sync.OnceValue(func() map[string]*tool.Tool { return byID(base) })
	named := sync.OnceValue(func() func(string) (*tool.Tool, bool) { return retrieve.Finder(namedBy(config, base)) })
	find := func(name string) (*tool.Tool, bool) {
		if t, ok := tools()[name]; ok {
			return t, true
		}
		return named()(name)
	}
	now := s.now.Load()
	for _, settings := range settingsOf(config) {
		same := now.byName[settings.Name]
		if same != nil && changed != nil && !usesAny(settings, changed) {
			plans = append(plans, plan{View: same, same: true})
			problems = append(problems, same.problems...)
			continue
		}
		settings.Hooks.Pre = append(slices.Clone(s.pre), settings.Hooks.Pre...)
		settings.Hooks.Post = append(slices.Clone(settings.Hooks.Post), s.post...)
		v := &View{name: settings.Name, settings: settings, pool: s.pool}
		if same != nil {
			v.root, v.endpoint = same.root, same.endpoint
		}
		env := s.env(v, config, tools, find)
		before := same
		if now.config != config {
			before = nil
		}
		if before != nil {
			env.Before = before.compiled
		}
		compiled, wrong := view.Compile(settings, base, env)
		next := s.planView(v, config, compiled, before)
		v.problems = append(wrong, next.clashes()...)
		problems = append(problems, v.problems...)
		plans = append(plans, next)
	}
	return plans, problems
}

// byID are the tools of upstreams by the text of their IDs.
func byID(base []view.Upstream) map[string]*tool.Tool {
	tools := map[string]*tool.Tool{}
	for _, u := range base {
		for _, t := range u.Tools {
			if t.Def.ID.Kind == tool.KindTool {
				tools[t.Def.ID.String()] = t
			}
		}
	}
	return tools
}

// usesAny reports whether what a view is depends on one of the servers.
func usesAny(settings view.Settings, servers map[string]bool) bool {
	for server := range servers {
		if settings.Uses(server) {
			return true
		}
	}
	return false
}

// settingsOf are the views of a configuration, and before them everything, where that
// is what the root serves.
func settingsOf(config *configs.Config) []view.Settings {
	if config.Root() != configs.RootAll {
		return config.Views
	}
	return slices.Insert(slices.Clone(config.Views), 0, view.Settings{
		Name: view.Default, Exposure: view.ExposureAuto, DirectBelow: config.DirectBelow, IncludeAll: true, Gating: config.Gating, ProxyTool: config.ProxyTool,
	})
}

// namedBy is what upstreams have as a catalog names it.
func namedBy(config *configs.Config, base []view.Upstream) (servers []retrieve.Server) {
	for _, u := range base {
		one := retrieve.Server{Name: u.Server, Tools: u.Tools}
		if i := slices.IndexFunc(config.Servers, func(s upstream.Settings) bool { return s.Name == u.Server }); i >= 0 {
			one.Prefix = config.Servers[i].Prefix
		}
		servers = append(servers, one)
	}
	return servers
}

// env is what surrounds a view, which is complete before anything is called. tools()
// are those of all upstreams by ID, and find finds them by other names, too.
func (s *views) env(v *View, config *configs.Config, tools func() map[string]*tool.Tool, find func(string) (*tool.Tool, bool)) view.Env {
	return view.Env{
		Log:     s.log,
		Program: s.modules.Program,
		Python:  s.python,
		Scripts: s.scripts,
		Find:    find,
		Nearest: func(id string, n int) []string {
			return nearest.Names(id, slices.Sorted(maps.Keys(tools())), n, nearest.Loose)
		},
		Retrieve: func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
			return cmp.Or(s.now.Load().byName[rootOf(config)], v).retriever.SearchItems(ctx, query, limit)
		},
		Within: func(ctx context.Context, name string) (*tool.Tool, error) { return v.of(ctx).catalog.Find(name) },
		Search: func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
			return v.of(ctx).retriever.SearchItems(ctx, query, limit)
		},
		Around: func(t *tool.Tool, handler tool.Handler) tool.Handler {
			return onlyKinds(s.observer.around(v.name, t)(handler)) // the caller puts the error into its result
		},
		Headers: config.HookHeaders,
		Keep:    s.keep,
		MaskSecrets: func(server string) tool.Middleware {
			return s.guard(config.SecretsIn(v.name, server), v.name, server)
		},
	}
}

// keep keeps large results.
func (s *views) keep(c view.OutputCache) tool.Middleware {
	return s.outputs.Keep(output.Settings{MinSize: c.MinSize, Preview: c.Preview, TTL: c.TTL})
}

// planView works out what a compiled view has and what its meta-tools are called. before
// is the view as it was with the same configuration, nil for none.
func (s *views) planView(v *View, config *configs.Config, compiled *view.Compiled, before *View) plan {
	settings := compiled.Settings
	next := plan{View: v}
	v.compiled, v.settled = compiled, true
	if v.police == nil {
		v.police = s.policeOf(config, v)
	}
	v.contents = retrieve.Contents{Servers: s.contentsOf(config, compiled, before), Pins: config.Pinned}
	v.declared = map[string]register.Declared{}
	for _, u := range compiled.Upstreams {
		if !v.has(u.Server) {
			v.upstreams = append(v.upstreams, u.Server)
		}
		v.declared[u.Server] = s.known.declaredBy(settings, u.Server)
		v.settled = v.settled && (u.Listed || s.known.listedThisRun[u.Server])
	}
	s.known.startOf(v, config.StartWait)
	switch settings.Exposure {
	case view.ExposureDirect:
		next.find = retrieve.RetrieveTools
	case view.ExposureSearch:
		v.searches = []searchTools{{settings.Name, "", settings.Description, v}}
		next.find = retrieve.SearchName(settings.Name)
	case view.ExposureSearchPerServer:
		v.searches = perServer(v)
		next.find = retrieve.SearchName(settings.Name)
	default:
		next.find = retrieve.RetrieveTools
		if config.Routing == configs.RoutingAuto { // the others say how tools reach clients
			next.below = settings.DirectBelow
		}
		next.offer = retrieve.Offer{Call: config.Routing != configs.RoutingDynamic, Split: config.CallTool == configs.CallToolSplit, About: v.contents.Servers}
	}
	v.contents.Reserved = s.reservedIn(v)
	return next
}

// reservedIn are the names that meta-tools of the view have, and those that they have
// in other views.
func (s *views) reservedIn(v *View) []string {
	names := retrieve.Reserved()
	for _, search := range v.searches {
		names = append(names, retrieve.SearchNames(search.prefix)...)
	}
	for _, t := range v.compiled.Meta {
		names = append(names, t.Name)
	}
	if v.settings.ProxyTool != "" {
		names = append(names, v.settings.ProxyTool)
	}
	if v.compiled.Keeps() {
		names = append(names, s.outputs.Tool().Name)
	}
	return names
}

// perServer are search tools for each server of a view.
func perServer(v *View) (all []searchTools) {
	taken := map[string]bool{}
	for _, s := range v.contents.Servers {
		prefix := s.Name
		for n := 2; taken[retrieve.SearchName(prefix)]; n++ { // servers a.b and a_b
			prefix = fmt.Sprintf("%d_%s", n, s.Name)
		}
		taken[retrieve.SearchName(prefix)] = true
		all = append(all, searchTools{prefix, s.Name, s.Description, v})
	}
	return all
}

// clashes are the problems of names that tools of the view were given and that
// others would have had.
func (n *plan) clashes() []view.Problem {
	var problems []view.Problem
	own := n.settings.ProxyTool
	for _, clash := range retrieve.Clashes(n.contents.Servers, own) {
		problem := view.Problem{
			View: n.name, At: n.settings.At,
			Message: fmt.Sprintf("two tools are named %q: one was given the name that %s has", clash.Name, clash.ID),
			Hint:    "give one of them another name",
		}
		if clash.Name == own {
			problem.Message = fmt.Sprintf("the proxy tool has the name %q, which %s would have", own, clash.ID)
			problem.Hint = "choose another one: proxy_tool: NAME"
		}
		problems = append(problems, problem)
	}
	return problems
}

func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
}

// contentsOf is what a view's catalog is made of: what it has of the upstreams,
// and its own tools under its own name. Of servers that are as they were before, the view
// keeps the tools, with all that is around them.
func (s *views) contentsOf(config *configs.Config, compiled *view.Compiled, before *View) []retrieve.Server {
	settings := compiled.Settings
	var out []retrieve.Server
	for _, u := range compiled.Upstreams {
		i := slices.IndexFunc(config.Servers, func(s upstream.Settings) bool { return s.Name == u.Server })
		configured := config.Servers[i]
		one := retrieve.Server{
			Name: u.Server, Description: configured.Description, Prefix: configured.Prefix,
			Excluded: settings.Excludes, Unlisted: unlistedOf(settings, u.Server),
		}
		if u.Listed {
			if was := before.serverOf(u); was != nil && u.Server != settings.Name { // else own tools may be among them
				one.Tools, one.Held = was.Tools, was.Held
			} else {
				one.Tools, one.Held = free(u.Tools, s.known.heldOf(config, u.Server))
			}
		}
		if known := s.known.byServer[u.Server]; known != nil {
			one.Instructions = s.known.instructionsOf(config, u.Server)
			if settings.IncludeAll {
				one.Capabilities = known.capabilities
			}
			one.Cache = map[tool.Kind]retrieve.CacheHint{}
			for kind, hint := range known.cache {
				one.Cache[kind] = retrieve.CacheHint(hint)
			}
		}
		out = append(out, one)
	}
	if len(compiled.Own) == 0 {
		return out
	}
	if i := slices.IndexFunc(out, func(s retrieve.Server) bool { return s.Name == settings.Name }); i >= 0 {
		out[i].Tools = append(out[i].Tools, compiled.Own...)
		return out
	}
	nothing := func(tool.ID) bool { return true } // a server of that name is not this
	return append(out, retrieve.Server{Name: settings.Name, Description: settings.Description, Tools: compiled.Own, Excluded: nothing})
}

// serverOf is what the catalog of the view has of an upstream, nil if that was another one.
func (v *View) serverOf(u view.Upstream) *retrieve.Server {
	if v == nil {
		return nil
	}
	i := slices.IndexFunc(v.compiled.Upstreams, func(b view.Upstream) bool { return b.Server == u.Server })
	if i < 0 || !tool.Same(v.compiled.Upstreams[i].Tools, u.Tools) {
		return nil
	}
	return &v.contents.Servers[i]
}

// unlistedOf says which URIs that a server does not list a view sends to it.
func unlistedOf(settings view.Settings, server string) retrieve.Unlisted {
	switch {
	case settings.Restricts(server):
		return retrieve.UnlistedTemplate
	case settings.Name != view.Default:
		return retrieve.UnlistedOnly
	}
	return retrieve.UnlistedNamed
}
