package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/gate"
	"toolfinch/nearest"
	"toolfinch/output"
	"toolfinch/proxytool"
	"toolfinch/rawjson"
	"toolfinch/register"
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
func (p *Proxy) plan(config *configs.Config, upstreams []view.Upstream, changed map[string]bool) (plans []plan, problems []view.Problem) {
	base, problems := view.Base(upstreams, config.Tools)
	tools := map[string]*tool.Tool{}
	for _, u := range base {
		for _, t := range u.Tools {
			if t.Def.ID.Kind == tool.KindTool {
				tools[t.Def.ID.String()] = t
			}
		}
	}
	now := p.served.Load()
	for _, settings := range settingsOf(config) {
		same := now.byName[settings.Name]
		if same != nil && changed != nil && !usesAny(settings, changed) {
			plans = append(plans, plan{View: same})
			problems = append(problems, same.problems...)
			continue
		}
		settings.Hooks.Pre = append(slices.Clone(p.options.pre), settings.Hooks.Pre...)
		settings.Hooks.Post = append(slices.Clone(settings.Hooks.Post), p.options.post...)
		v := &View{settings: settings}
		if same != nil {
			v.endpoint = same.endpoint
		} else {
			v.endpoint = p.newEndpoint(settings.Name)
		}
		compiled, wrong := view.Compile(settings, base, p.env(v, config, tools))
		next := p.planView(v, config, compiled)
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

// env is what surrounds a view, which is complete before anything is called. tools
// are those of all upstreams.
func (p *Proxy) env(v *View, config *configs.Config, tools map[string]*tool.Tool) view.Env {
	return view.Env{
		Log:     p.log,
		Program: p.program,
		Find: func(id string) (*tool.Tool, bool) {
			t, ok := tools[id]
			return t, ok
		},
		Nearest: func(id string, n int) []string {
			return nearest.Names(id, slices.Sorted(maps.Keys(tools)), n, nearest.Loose)
		},
		Retrieve: func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
			return p.served.Load().byName[view.Default].retriever.SearchItems(ctx, query, limit)
		},
		Within: func(name string) (*tool.Tool, error) { return v.catalog.Find(name) },
		Search: func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
			return v.retriever.SearchItems(ctx, query, limit)
		},
		Headers: config.HookHeaders,
		Keep: func(c view.OutputCache) tool.Middleware {
			return p.outputs.Keep(output.Settings{MinSize: c.MinSize, Preview: c.Preview, TTL: c.TTL})
		},
	}
}

// planView works out what a compiled view has and what its meta-tools are called.
func (p *Proxy) planView(v *View, config *configs.Config, compiled *view.Compiled) plan {
	settings := compiled.Settings
	next := plan{View: v, compiled: compiled, servers: p.serversOf(config, compiled), settled: true}
	for _, u := range compiled.Upstreams {
		v.upstreams = append(v.upstreams, u.Server)
		next.settled = next.settled && (u.Listed || p.heard[u.Server])
	}
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
	for _, s := range next.searches {
		next.reserved = append(next.reserved, retrieve.SearchNames(s.prefix)...)
	}
	for _, t := range compiled.Meta {
		next.reserved = append(next.reserved, t.Name)
	}
	if settings.ProxyTool != "" {
		next.reserved = append(next.reserved, settings.ProxyTool)
	}
	if compiled.Keeps() {
		next.reserved = append(next.reserved, p.outputs.Tool().Name)
	}
	if settings.Gating != nil {
		next.guard()
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

// build makes what is served of the plans. It changes nothing that is served: an
// error leaves no trace.
func (p *Proxy) build(ctx context.Context, config *configs.Config, plans []plan, problems []view.Problem) (*served, error) {
	before := p.served.Load()
	next := &served{config: config, problems: problems, byName: make(map[string]*View, len(plans)), modules: p.moduleFiles(), ready: before.ready}
	for _, plan := range plans {
		if plan.compiled != nil {
			if err := p.buildView(ctx, config, plan); err != nil {
				for _, v := range next.views { // the index of what is served is the latest again
					if was := before.byName[v.name]; was != nil && was != v {
						_, _ = v.root.With(context.WithoutCancel(ctx), was.contents)
					}
				}
				return nil, fmt.Errorf("view %s: %w", plan.name, err)
			}
		}
		next.views = append(next.views, plan.View)
		next.byName[plan.name] = plan.View
	}
	next.complete = !slices.ContainsFunc(config.Servers, func(s upstream.Settings) bool { return !p.heard[s.Name] })
	return next, nil
}

// buildView makes a planned view complete.
func (p *Proxy) buildView(ctx context.Context, config *configs.Config, next plan) error {
	v, settings, compiled := next.View, next.settings, next.compiled
	v.contents = retrieve.Contents{Servers: next.servers, Reserved: next.reserved, Pins: config.Pinned}
	var err error
	if v.catalog, err = v.root.With(ctx, v.contents); err != nil {
		return err
	}
	v.retriever = p.newRetriever(config, next)
	v.shown = register.Served{
		Source:        v.catalog,
		Offered:       p.offeredBy(settings, compiled.Upstreams),
		Meta:          slices.Clone(compiled.Meta),
		Register:      config.Routing != configs.RoutingCallTool,
		MaxRegistered: config.MaxRegistered,
	}
	intro := v.expose(next)
	if settings.Gating != nil {
		intro = joined(settings.Description, v.gated(*settings.Gating))
	}
	if settings.ProxyTool != "" {
		v.shown.Meta = append(v.shown.Meta, proxytool.New(settings.ProxyTool, capabilities{v}, p.log.With("view", settings.Name)))
	}
	if compiled.Keeps() {
		v.shown.Meta = append(v.shown.Meta, p.outputs.Tool())
	}
	for _, tools := range []*[]*tool.Tool{&v.shown.Search, &v.shown.Meta, &v.shown.Unlisted} {
		*tools = meterAnswers(p.savings, v, *tools)
	}
	about := next.servers
	if settings.Exposure == view.ExposureDirect && settings.Description == "" {
		about = nil // clients see what there is
	}
	v.shown.Instructions = retrieve.Instructions(intro, about)
	return nil
}

func (p *Proxy) newRetriever(config *configs.Config, next plan) *retrieve.Retriever {
	settings := retrieve.Settings{
		TopK:     config.TopK,
		Register: next.live.Register,
		Health:   next.health,
		Validate: func(server string) bool { return validates(config, server) },
		Vectors:  &p.vectors,
		Unchecked: func(id tool.ID, err error) {
			p.log.Warn("arguments are passed on unchecked", "server", id.Server, "tool", id.Name, "reason", err)
		},
		QueryTimeout: config.QueryEmbedTimeout,
		Memory:       p.memory,
		Misfit:       p.embedAnew,
		Offer:        next.offer,
		SearchTool:   next.find,
	}
	if next.settings.Gating != nil {
		settings.Gate = next.gate
	}
	return retrieve.New(next.catalog, settings)
}

// expose decides how tools reach clients, and returns what these are told of it.
func (v *View) expose(next plan) (intro string) {
	exposure := cmp.Or(v.settings.Exposure, view.ExposureAuto)
	v.shown.Mode, v.shown.SearchTool = string(exposure), next.find
	for _, s := range next.searches {
		v.shown.Search = append(v.shown.Search, v.retriever.SearchTools(s.prefix, s.server, s.about)...)
	}
	switch exposure {
	case view.ExposureDirect:
		v.shown.Direct = func() bool { return true }
		v.shown.SearchTool = ""
	case view.ExposureSearch:
		intro = "Find tools with " + next.find + "."
	case view.ExposureSearchPerServer:
		v.shown.SearchTool = ""
		intro = "Each server has tools that find, describe and call its own."
	case view.ExposureAuto:
		below := cmp.Or(v.settings.DirectBelow, view.DefaultDirectBelow)
		v.shown.Direct = sync.OnceValue(func() bool { return next.settled && v.catalog.ListingCost() < below })
		v.shown.Search = v.retriever.MetaTools()
		intro = next.offer.AutoIntro()
	default:
		v.shown.Search = v.retriever.MetaTools()
		intro = next.offer.Intro()
	}
	return joined(v.settings.Description, intro)
}

// gated makes what is shown what is provisioned. It returns what clients are told
// of it.
func (v *View) gated(gating view.Gating) (intro string) {
	shown := &v.shown
	v.budget = &gate.Budget{MaxTools: gating.MaxTools, MaxTokens: gating.MaxTokens, TTL: gating.TTL}
	shown.Granted = v.gate.Granted
	if shown.SearchTool == retrieve.RetrieveTools { // listed beside discover_tools it would say the same twice
		shown.Unlisted, shown.Search = shown.Search, nil
	}
	shown.Search = append(slices.Clone(shown.Search), v.retriever.GateTools()...)
	shown.SearchTool = retrieve.DiscoverTools
	return retrieve.GatedIntro
}

// guard puts the gate around every tool of the view.
func (n *plan) guard() {
	for i, s := range n.servers {
		for j, t := range s.Tools {
			if t.Def.ID.Kind == tool.KindTool {
				n.servers[i].Tools[j] = &tool.Tool{Name: t.Name, Def: t.Def, Handler: n.gate.Guard(t)}
			}
		}
	}
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

// validates reports whether call_tool checks the arguments for a server's tools.
func validates(config *configs.Config, server string) bool {
	for _, s := range config.Servers {
		if s.Name == server {
			return s.Validate
		}
	}
	return true
}

// serversOf is what a view's catalog is made of: what it has of the upstreams,
// and its own tools under its own name.
func (p *Proxy) serversOf(config *configs.Config, compiled *view.Compiled) []retrieve.Server {
	settings := compiled.Settings
	var out []retrieve.Server
	for _, u := range compiled.Upstreams {
		i := slices.IndexFunc(config.Servers, func(s upstream.Settings) bool { return s.Name == u.Server })
		configured := config.Servers[i]
		s := retrieve.Server{
			Name: u.Server, Description: configured.Description, Prefix: configured.Prefix,
			Excluded: settings.Excludes, Unlisted: unlistedOf(settings, u.Server),
		}
		if u.Listed {
			s.Tools = append([]*tool.Tool{}, u.Tools...) // not nil: it was listed
		}
		if known := p.known[u.Server]; known != nil {
			s.Instructions = known.instructions
			if settings.IncludeAll {
				s.Capabilities = known.capabilities
			}
			s.Cache = map[tool.Kind]retrieve.CacheHint{}
			for kind, hint := range known.cache {
				s.Cache[kind] = retrieve.CacheHint(hint)
			}
		}
		out = append(out, s)
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

// withExtensions adds extensions that a server declares to those of others, but for
// tasks, which not every client is declared. What the first server says of one counts.
func withExtensions(all map[string]json.RawMessage, declared json.RawMessage) map[string]json.RawMessage {
	for name, value := range rawjson.Members(declared) {
		if _, known := all[name]; known || name == tool.ExtensionTasks {
			continue
		}
		if all == nil {
			all = map[string]json.RawMessage{}
		}
		all[name] = value
	}
	return all
}

// offeredBy is what clients are told at the start that there is beside tools:
// what upstreams offer, and what those may offer that are not known yet, because
// a client asks once. Prompts and resources are in a view that includes all.
func (p *Proxy) offeredBy(settings view.Settings, upstreams []view.Upstream) register.Offered {
	var o register.Offered
	for _, u := range upstreams {
		known := p.known[u.Server]
		unknown := known == nil || known.capabilities == nil
		has := func(names ...string) bool {
			if unknown {
				return true
			}
			value := known.capabilities
			for _, name := range names {
				value = rawjson.Member(value, name)
			}
			return value != nil && string(value) != "false" && string(value) != "null"
		}
		o.Logging = o.Logging || has("logging")
		o.Tasks = o.Tasks || !unknown && known.era == upstream.EraModern && has("extensions", tool.ExtensionTasks) // unknown: a 2026-07-28 client asks again
		if !unknown {
			o.Extensions = withExtensions(o.Extensions, rawjson.Member(known.capabilities, "extensions"))
		}
		if settings.IncludeAll {
			o.Prompts = o.Prompts || has("prompts")
			o.Resources = o.Resources || has("resources")
			o.Subscribe = o.Subscribe || has("resources", "subscribe")
			o.Completions = o.Completions || has("completions")
		}
	}
	return o
}

// show serves next, by one store, tells clients, and ends the views that are no
// more.
func (p *Proxy) show(ctx context.Context, next *served) {
	before := p.served.Load()
	if isClosed(before.ready) && !next.complete {
		next.ready = make(chan struct{})
	}
	p.served.Store(next)
	for _, v := range next.views {
		if p.life != nil && v.end == nil {
			v.run(p.life)
		}
		if before.byName[v.name] != v {
			v.live.Sync()
		}
	}
	for _, v := range before.views {
		if now := next.byName[v.name]; now == nil || now.endpoint != v.endpoint {
			p.closing.Go(func() { // beside: its calls may take long to end
				ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
				defer cancel()
				if err := v.close(ending); err != nil {
					p.log.Warn("a removed view did not end well", "view", v.name, "error", err)
				}
			})
		}
	}
	p.report(next.problems)
	if next.complete && !isClosed(next.ready) {
		close(next.ready)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// report logs what is wrong with the views, each thing once, while Run runs. What servers are said to lack waits until all of them were listed or
// have failed.
func (p *Proxy) report(problems []view.Problem) {
	if p.life == nil {
		return // whoever opened the proxy asks for Problems
	}
	pending := slices.ContainsFunc(p.pool.Status(), func(s upstream.Status) bool { return s.State == upstream.StatePending })
	for _, problem := range problems {
		level := slog.LevelError
		if problem.Warning {
			level = slog.LevelWarn
		}
		if !p.reported[problem] && !(problem.Warning && pending) {
			p.reported[problem] = true
			p.log.Log(context.Background(), level, problem.Error(), "line", problem.At.Line)
		}
	}
}
