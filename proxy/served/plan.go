package served

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"toolfinch/configs"
	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/view/skills"
)

// plan compiles the views of the configuration over its servers' listings.
func (b *builder) plan() (plans []plan, problems []view.Problem) {
	config := b.Config
	base, problems := view.Base(b.upstreams(), config.Tools)
	problems = append(problems, b.Faults...)
	tools := sync.OnceValue(func() map[string]*tool.Tool { return byID(base) })
	named := sync.OnceValue(func() func(string) (*tool.Tool, bool) { return retrieve.Finder(namedBy(config, base)) })
	find := func(name string) (*tool.Tool, bool) {
		if t, ok := tools()[name]; ok {
			return t, true
		}
		return named()(name)
	}
	all := base // the skills of folders are called by no name of a tool
	if b.Skills.Server != "" {
		all = append(slices.Clip(base), b.Skills)
		b.Listings[b.Skills.Server] = Listing{Listed: true, Answered: true, Tools: b.Skills.Tools, Capabilities: json.RawMessage(skills.Capabilities)}
	}
	for _, settings := range SettingsOf(config) {
		same := b.before.ByName[settings.Name]
		if same != nil && b.Changed != nil && !usesAny(settings, b.Changed) {
			plans = append(plans, plan{View: same, same: true})
			problems = append(problems, same.problems...)
			continue
		}
		settings.Hooks.Pre = append(slices.Clone(b.Pre), settings.Hooks.Pre...)
		settings.Hooks.Post = append(slices.Clone(settings.Hooks.Post), b.Post...)
		v := b.newView(settings)
		env := b.env(v, tools, find)
		before := same
		if b.before.Config != config {
			before = nil
		}
		if before != nil {
			env.Before = before.compiled
		}
		compiled, wrong := view.Compile(settings, all, env)
		next := b.planView(v, compiled, before)
		v.problems = append(wrong, next.clashes()...)
		problems = append(problems, v.problems...)
		plans = append(plans, next)
	}
	return plans, problems
}

// newView begins a view.
func (b *builder) newView(settings view.Settings) *View {
	return &View{Name: settings.Name, Settings: settings, rules: &rules{name: settings.Name, policies: b.Config.Policies, limits: b.Limits, run: b.Runtime}}
}

// upstreams are the servers of the configuration with their listed tools, in its order.
func (b *builder) upstreams() []view.Upstream {
	all := make([]view.Upstream, len(b.Config.Servers))
	for i, s := range b.Config.Servers {
		listing := b.Listings[s.Name]
		all[i] = view.Upstream{Server: s.Name, Listed: listing.Listed, Tools: listing.Tools}
	}
	return all
}

// byID returns the tools of upstreams by the text of their IDs.
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

// usesAny reports whether a view depends on one of the servers.
func usesAny(settings view.Settings, servers map[string]bool) bool {
	for server := range servers {
		if settings.Uses(server) {
			return true
		}
	}
	return false
}

// SettingsOf returns the views of a configuration, and before them a view of everything, where the root serves
// that.
func SettingsOf(config *configs.Config) []view.Settings {
	if config.Root() != configs.RootAll {
		return config.Views
	}
	return slices.Insert(slices.Clone(config.Views), 0, view.Settings{
		Name: view.Default, Exposure: view.ExposureAuto, DirectBelow: config.DirectBelow, IncludeAll: true, Gating: config.Gating, ProxyTool: config.ProxyTool,
	})
}

// namedBy returns the upstreams as servers of a catalog, which gives their tools names.
func namedBy(config *configs.Config, base []view.Upstream) (servers []retrieve.Server) {
	for _, u := range base {
		servers = append(servers, retrieve.Server{Name: u.Server, Tools: u.Tools, Prefix: config.Server(u.Server).Prefix})
	}
	return servers
}

// env returns the surroundings of a view, which is complete before anything is called. tools()
// are the tools of all upstreams by ID, and find finds them by other names, too.
func (b *builder) env(v *View, tools func() map[string]*tool.Tool, find func(string) (*tool.Tool, bool)) view.Env {
	config, env := b.Config, b.Env
	env.Find = find
	env.Nearest = func(id string, n int) []string {
		return nearest.Names(id, slices.Sorted(maps.Keys(tools())), n, nearest.Loose)
	}
	env.Retrieve = func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
		return cmp.Or(b.Now().ByName[RootOf(config)], v).Retriever.SearchItems(ctx, query, limit)
	}
	env.Within = func(ctx context.Context, name string) (*tool.Tool, error) { return v.Of(ctx).Catalog.Find(name) }
	env.Search = func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
		return v.Of(ctx).Retriever.SearchItems(ctx, query, limit)
	}
	env.Around = func(t *tool.Tool, handler tool.Handler) tool.Handler {
		return onlyKinds(b.Observed(v.Name, t)(handler)) // the caller puts the error into its result
	}
	env.Headers = config.HookHeaders
	env.MaskSecrets = func(server string) tool.Middleware {
		return guard(env.Log, config.SecretsIn(v.Name, server), v.Name, server)
	}
	return env
}

// RootOf returns the name of the view that a configuration serves at the root; "" for none.
func RootOf(config *configs.Config) string {
	switch root := config.Root(); root {
	case configs.RootAll, configs.RootViews:
		return view.Default
	case configs.RootNone:
		return ""
	default:
		return root
	}
}

// planView decides the contents of a compiled view and the names of its meta-tools. before is the view as it was with
// the same configuration, nil for none.
func (b *builder) planView(v *View, compiled *view.Compiled, before *View) plan {
	config, settings := b.Config, compiled.Settings
	next := plan{View: v}
	v.compiled, v.settled = compiled, true
	v.Contents = retrieve.Contents{Servers: b.contentsOf(compiled, before), Pins: config.Pinned}
	v.declared = map[string]register.Declared{}
	for _, u := range compiled.Upstreams {
		listing := b.Listings[u.Server]
		if !v.Has(u.Server) {
			v.Upstreams = append(v.Upstreams, u.Server)
			if !listing.StartsUntil.IsZero() {
				v.Starting = append(v.Starting, u.Server)
			}
			if listing.StartsUntil.After(v.StartsUntil) {
				v.StartsUntil = listing.StartsUntil
			}
		}
		v.declared[u.Server] = listing.declaredTo(settings)
		v.settled = v.settled && (u.Listed || listing.Answered || listing.Failed)
	}
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
		if config.Routing == configs.RoutingAuto { // another routing decides how clients reach tools
			next.below = settings.DirectBelow
		}
		next.offer = retrieve.Offer{Call: config.Routing != configs.RoutingDynamic, Split: config.CallTool == configs.CallToolSplit, About: v.Contents.Servers}
	}
	v.Contents.Reserved = b.reservedIn(v)
	return next
}

// reservedIn returns the names that meta-tools have in this view or any other.
func (b *builder) reservedIn(v *View) []string {
	names := retrieve.Reserved()
	for _, search := range v.searches {
		names = append(names, retrieve.SearchNames(search.prefix)...)
	}
	for _, t := range v.compiled.Meta {
		names = append(names, t.Name)
	}
	if v.Settings.ProxyTool != "" {
		names = append(names, v.Settings.ProxyTool)
	}
	if slices.ContainsFunc(v.Contents.Servers, func(s retrieve.Server) bool { return len(s.Skills) > 0 }) {
		names = append(names, retrieve.ReadSkill)
	}
	if v.compiled.Keeps() {
		names = append(names, b.Kept.Name)
	}
	return names
}

// perServer returns search tools for each server of a view.
func perServer(v *View) (all []searchTools) {
	taken := map[string]bool{}
	for _, s := range v.Contents.Servers {
		prefix := s.Name
		for n := 2; taken[retrieve.SearchName(prefix)]; n++ { // servers a.b and a_b
			prefix = fmt.Sprintf("%d_%s", n, s.Name)
		}
		taken[retrieve.SearchName(prefix)] = true
		all = append(all, searchTools{prefix, s.Name, s.Description, v})
	}
	return all
}

// clashes reports configured names that displace the default name of another tool.
func (n *plan) clashes() []view.Problem {
	var problems []view.Problem
	own := n.Settings.ProxyTool
	for _, clash := range retrieve.Clashes(n.Contents.Servers, own) {
		problem := view.Problem{
			View: n.Name, At: n.Settings.At,
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

// contentsOf returns the contents of a view's catalog: the tools of its upstreams, and its own tools under its own
// name. If the tools of a server are unchanged, the view keeps them with their layers.
func (b *builder) contentsOf(compiled *view.Compiled, before *View) []retrieve.Server {
	config, settings := b.Config, compiled.Settings
	var out []retrieve.Server
	for _, u := range compiled.Upstreams {
		listing := b.Listings[u.Server]
		server := retrieve.Server{
			Name: u.Server, Instructions: listing.Instructions, Skills: retrieve.SkillsOf(listing.Tools),
			Excluded: settings.Excludes, Unlisted: unlistedOf(settings, u.Server), Cache: map[tool.Kind]retrieve.CacheHint{},
		}
		if configured := config.Server(u.Server); configured != nil {
			server.Description, server.Prefix = configured.Description, configured.Prefix
		} else {
			server.Folders = true
		}
		if u.Listed {
			if was := before.serverOf(u); was != nil && u.Server != settings.Name { // else the view's own tools may be among them
				server.Tools, server.Held = was.Tools, was.Held
			} else {
				server.Tools, server.Held = free(u.Tools, listing.Held)
			}
		}
		if settings.IncludeAll {
			server.Capabilities = listing.Capabilities
		}
		for kind, hint := range listing.Cache {
			server.Cache[kind] = retrieve.CacheHint(hint)
		}
		out = append(out, server)
	}
	if len(compiled.Own) == 0 {
		return out
	}
	if i := slices.IndexFunc(out, func(s retrieve.Server) bool { return s.Name == settings.Name }); i >= 0 {
		out[i].Tools = append(out[i].Tools, compiled.Own...)
		return out
	}
	nothing := func(tool.ID) bool { return true } // a configured server may have the name of the view
	return append(out, retrieve.Server{Name: settings.Name, Description: settings.Description, Tools: compiled.Own, Excluded: nothing})
}

// serverOf returns the server that the catalog of the view has for an upstream; nil if the tools were other ones.
func (v *View) serverOf(u view.Upstream) *retrieve.Server {
	if v == nil {
		return nil
	}
	i := slices.IndexFunc(v.compiled.Upstreams, func(b view.Upstream) bool { return b.Server == u.Server })
	if i < 0 || !tool.Same(v.compiled.Upstreams[i].Tools, u.Tools) {
		return nil
	}
	return &v.Contents.Servers[i]
}

// unlistedOf returns which URIs a view sends to a server that does not list them.
func unlistedOf(settings view.Settings, server string) retrieve.Unlisted {
	switch {
	case settings.Restricts(server):
		return retrieve.UnlistedTemplate
	case settings.Name != view.Default:
		return retrieve.UnlistedOnly
	}
	return retrieve.UnlistedNamed
}

// free parts the tools of a listed server into served and held ones.
func free(tools []*tool.Tool, held map[tool.ID]pins.Held) (rest []*tool.Tool, waiting []retrieve.Held) {
	rest = make([]*tool.Tool, 0, len(tools)) // not nil: it was listed
	for _, t := range tools {
		if h, is := held[t.Def.ID]; is {
			waiting = append(waiting, retrieve.Held{Tool: t, Why: h.Why(), Quiet: h.WasRejected()})
		} else {
			rest = append(rest, t)
		}
	}
	return rest, waiting
}

// declaredTo returns what an upstream declares to the clients of a view. An unknown upstream declares everything,
// because a client asks once. Only a view that includes all has prompts and resources.
func (l Listing) declaredTo(settings view.Settings) (o register.Declared) {
	unknown := l.Capabilities == nil
	has := func(names ...string) bool {
		if unknown {
			return true
		}
		value := l.Capabilities
		for _, name := range names {
			value = rawjson.Member(value, name)
		}
		return value != nil && string(value) != "false" && string(value) != "null"
	}
	o.Logging = has("logging")
	if !unknown {
		o.Tasks = l.Era == upstream.EraModern && has("extensions", tool.ExtensionTasks) // unknown: a 2026-07-28 client asks again
		// Tasks are not declared to every client, and methods of other extensions are not passed on.
		if apps := rawjson.Member(rawjson.Member(l.Capabilities, "extensions"), tool.ExtensionApps); apps != nil {
			o.Extensions = map[string]json.RawMessage{tool.ExtensionApps: apps}
		}
	}
	if settings.IncludeAll {
		o.Prompts, o.Resources, o.Subscribe, o.Completions = has("prompts"), has("resources"), has("resources", "subscribe"), has("completions")
	}
	return o
}
