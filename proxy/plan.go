package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/nearest"
	"toolfinch/output"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
)

// plan is a view of a configuration on its way to be served. Only its catalog can
// still fail.
type plan struct {
	*View
	settled  bool // what its upstreams have is known
	compiled *view.Compiled
	servers  []retrieve.Server
	searches []searchTools
	find     string         // the meta-tool that answers send clients to who look for a tool
	offer    retrieve.Offer // what there is of retrieve_tools and call_tool
	reserved []string       // names of meta-tools
}

// searchTools are the meta-tools that search one server, or all.
type searchTools struct{ prefix, server, about string }

// plan compiles the views of a configuration over what the upstreams have. It
// changes nothing that is served. A served view that uses none of the changed
// servers stays as it is; with nil all views are compiled.
func (s *views) plan(config *configs.Config, upstreams []view.Upstream, changed map[string]bool) (plans []plan, problems []view.Problem) {
	base, problems := view.Base(upstreams, config.Tools)
	tools := map[string]*tool.Tool{}
	for _, u := range base {
		for _, t := range u.Tools {
			if t.Def.ID.Kind == tool.KindTool {
				tools[t.Def.ID.String()] = t
			}
		}
	}
	named := sync.OnceValue(func() func(string) (*tool.Tool, bool) { return retrieve.Finder(namedBy(config, base)) })
	find := func(name string) (*tool.Tool, bool) {
		if t, ok := tools[name]; ok {
			return t, true
		}
		return named()(name)
	}
	now := s.now.Load()
	for _, settings := range settingsOf(config) {
		same := now.byName[settings.Name]
		if same != nil && changed != nil && !usesAny(settings, changed) {
			plans = append(plans, plan{View: same})
			problems = append(problems, same.problems...)
			continue
		}
		settings.Hooks.Pre = append(slices.Clone(s.pre), settings.Hooks.Pre...)
		settings.Hooks.Post = append(slices.Clone(settings.Hooks.Post), s.post...)
		v := &View{name: settings.Name, settings: settings, pool: s.pool}
		if same != nil {
			v.root, v.endpoint = same.root, same.endpoint
		}
		compiled, wrong := view.Compile(settings, base, s.env(v, config, tools, find))
		next := s.planView(v, config, compiled)
		v.problems = append(wrong, next.clashes()...)
		problems = append(problems, v.problems...)
		plans = append(plans, next)
	}
	return plans, problems
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

// settingsOf are the views of a configuration: the default view, which is
// everything unless it is configured otherwise, and then the others.
func settingsOf(config *configs.Config) []view.Settings {
	all := slices.Clone(config.Views)
	i := slices.IndexFunc(all, func(s view.Settings) bool { return s.Name == view.Default })
	if i < 0 {
		return slices.Insert(all, 0, view.Settings{
			Name: view.Default, Exposure: view.ExposureRetrieve, IncludeAll: true, Gating: config.Gating, ProxyTool: config.ProxyTool,
		})
	}
	def := all[i]
	return slices.Insert(slices.Delete(all, i, i+1), 0, def)
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

// env is what surrounds a view, which is complete before anything is called. tools
// are those of all upstreams by ID, and find finds them by other names, too.
func (s *views) env(v *View, config *configs.Config, tools map[string]*tool.Tool, find func(string) (*tool.Tool, bool)) view.Env {
	return view.Env{
		Log:     s.log,
		Program: s.modules.Program,
		Scripts: s.scripts,
		Find:    find,
		Nearest: func(id string, n int) []string {
			return nearest.Names(id, slices.Sorted(maps.Keys(tools)), n, nearest.Loose)
		},
		Retrieve: func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
			return s.now.Load().byName[view.Default].retriever.SearchItems(ctx, query, limit)
		},
		Within: func(name string) (*tool.Tool, error) { return v.catalog.Find(name) },
		Search: func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
			return v.retriever.SearchItems(ctx, query, limit)
		},
		Headers: config.HookHeaders,
		Keep: func(c view.OutputCache) tool.Middleware {
			return s.outputs.Keep(output.Settings{MinSize: c.MinSize, Preview: c.Preview, TTL: c.TTL})
		},
	}
}

// planView works out what a compiled view has and what its meta-tools are called.
func (s *views) planView(v *View, config *configs.Config, compiled *view.Compiled) plan {
	settings := compiled.Settings
	next := plan{View: v, compiled: compiled, servers: s.contentsOf(config, compiled), settled: true}
	for _, u := range compiled.Upstreams {
		v.upstreams = append(v.upstreams, u.Server)
		next.settled = next.settled && (u.Listed || s.known.heard[u.Server])
	}
	s.known.startOf(v, config.StartWait)
	switch settings.Exposure {
	case view.ExposureDirect:
		next.find = retrieve.RetrieveTools
	case view.ExposureSearch:
		next.searches = []searchTools{{settings.Name, "", settings.Description}}
		next.find = retrieve.SearchName(settings.Name)
	case view.ExposureSearchPerServer:
		next.searches = perServer(next.servers)
		next.find = retrieve.SearchName(settings.Name)
	default:
		next.find = retrieve.RetrieveTools
		next.offer = retrieve.Offer{Call: config.Routing != configs.RoutingDynamic, Split: config.CallTool == configs.CallToolSplit, About: next.servers}
	}
	next.reserved = retrieve.Reserved()
	for _, search := range next.searches {
		next.reserved = append(next.reserved, retrieve.SearchNames(search.prefix)...)
	}
	for _, t := range compiled.Meta {
		next.reserved = append(next.reserved, t.Name)
	}
	if settings.ProxyTool != "" {
		next.reserved = append(next.reserved, settings.ProxyTool)
	}
	if compiled.Keeps() {
		next.reserved = append(next.reserved, s.outputs.Tool().Name)
	}
	return next
}

// perServer are search tools for each server.
func perServer(servers []retrieve.Server) (all []searchTools) {
	taken := map[string]bool{}
	for _, s := range servers {
		prefix := s.Name
		for n := 2; taken[retrieve.SearchName(prefix)]; n++ { // servers a.b and a_b
			prefix = fmt.Sprintf("%d_%s", n, s.Name)
		}
		taken[retrieve.SearchName(prefix)] = true
		all = append(all, searchTools{prefix, s.Name, s.Description})
	}
	return all
}

// clashes are the problems of names that tools of the view were given and that
// others would have had.
func (n *plan) clashes() []view.Problem {
	var problems []view.Problem
	own := n.settings.ProxyTool
	for _, clash := range retrieve.Clashes(n.servers, own) {
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
// and its own tools under its own name.
func (s *views) contentsOf(config *configs.Config, compiled *view.Compiled) []retrieve.Server {
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
			one.Tools = append([]*tool.Tool{}, u.Tools...) // not nil: it was listed
		}
		if known := s.known.said[u.Server]; known != nil {
			one.Instructions = known.instructions
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
