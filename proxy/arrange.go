package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"toolfinch/configs"
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

// arranged is a view with what it is to show.
type arranged struct {
	*View
	shown    *shown
	servers  []retrieve.Server
	reserved []string // names of meta-tools
	face     register.Face
}

// arrange works out what all views of a configuration are to show, over what the
// upstreams have. It changes nothing that is served. tokens are known counts for
// views that are new.
func (p *Proxy) arrange(config *configs.Config, upstreams []view.Upstream, tokens map[string]int) (next []arranged, problems []view.Problem) {
	base, problems := view.Base(upstreams, config.Tools)
	tools := map[string]*tool.Tool{}
	for _, u := range base {
		for _, t := range u.Tools {
			if t.Def.ID.Kind == tool.KindTool {
				tools[t.Def.ID.String()] = t
			}
		}
	}
	for _, settings := range settingsOf(config) {
		v := p.views.Load().byName[settings.Name]
		if v == nil {
			v = p.newView(settings.Name, tokens)
		}
		compiled, wrong := view.Compile(settings, base, p.env(v, config, tools))
		arranged := p.arrangeView(v, config, compiled)
		problems = slices.Concat(problems, wrong, arranged.clashes())
		next = append(next, arranged)
	}
	return next, problems
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

// env is what surrounds a view. tools are those of all upstreams.
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
			return p.views.Load().byName[view.Default].Retriever().SearchItems(ctx, query, limit)
		},
		Within: v.catalog.Find,
		Search: func(ctx context.Context, query string, limit int) (json.RawMessage, error) {
			return v.Retriever().SearchItems(ctx, query, limit)
		},
		Headers: config.HookHeaders,
		Keep: func(c view.OutputCache) tool.Middleware {
			return p.outputs.Keep(output.Settings{MinSize: c.MinSize, Preview: c.Preview, TTL: c.TTL})
		},
	}
}

func (p *Proxy) arrangeView(v *View, config *configs.Config, compiled *view.View) arranged {
	settings := compiled.Settings
	next := arranged{View: v, servers: p.serversOf(config, compiled)}
	exposure := cmp.Or(settings.Exposure, view.ExposureAuto)
	searching := exposure == view.ExposureSearch || exposure == view.ExposureSearchPerServer

	searchTool := retrieve.RetrieveTools
	if searching {
		searchTool = retrieve.SearchName(settings.Name)
	}
	var gate *register.Live
	if settings.Gating != nil {
		gate = v.live
	}
	retriever := retrieve.New(v.catalog, retrieve.Settings{
		Gate:         gate,
		TopK:         config.TopK,
		Register:     v.live.Register,
		Health:       v.health,
		Validate:     func(server string) bool { return validates(config, server) },
		Vectors:      &p.vectors,
		QueryTimeout: config.QueryEmbedTimeout,
		Memory:       p.memory,
		Misfit:       p.embedAnew,
		SearchTool:   searchTool,
	})
	offer := retrieve.Offer{
		Call:  config.Routing != configs.RoutingDynamic,
		Split: config.CallTool == configs.CallToolSplit,
		About: next.servers,
	}
	face := register.Face{
		Mode:          string(exposure),
		Meta:          compiled.Meta,
		Register:      config.Routing != configs.RoutingCallTool,
		MaxRegistered: config.MaxRegistered,
		SearchTool:    searchTool,
	}
	intro := settings.Description
	switch exposure {
	case view.ExposureDirect:
		face.Direct = func() bool { return true }
		face.SearchTool = ""
	case view.ExposureSearch:
		face.Search = retriever.SearchTools(settings.Name, "", settings.Description)
		intro = joined(intro, "Find tools with "+searchTool+".")
	case view.ExposureSearchPerServer:
		taken := map[string]bool{}
		for _, s := range next.servers {
			prefix := s.Name
			for n := 2; taken[retrieve.SearchName(prefix)]; n++ { // servers a.b and a_b
				prefix = fmt.Sprintf("%d_%s", n, s.Name)
			}
			taken[retrieve.SearchName(prefix)] = true
			face.Search = append(face.Search, retriever.SearchTools(prefix, s.Name, s.Description)...)
		}
		face.SearchTool = ""
		intro = joined(intro, "Each server has tools that find, describe and call its own.")
	case view.ExposureAuto:
		below := cmp.Or(settings.DirectBelow, view.DefaultDirectBelow)
		face.Direct = func() bool { return v.settled() && v.catalog.ListingCost() < below }
		face.Search = retriever.MetaTools(offer)
		intro = joined(intro, offer.AutoIntro())
	default:
		face.Search = retriever.MetaTools(offer)
		intro = joined(intro, offer.Intro())
	}
	if settings.Gating != nil {
		intro = joined(settings.Description, gated(&face, retriever, *settings.Gating))
		next.gate()
	}
	if settings.ProxyTool != "" {
		face.Meta = append(slices.Clone(face.Meta), proxytool.New(settings.ProxyTool, capabilities{v}, p.log.With("view", settings.Name)))
	}
	if compiled.Keeps() {
		face.Meta = append(slices.Clone(face.Meta), p.outputs.Tool())
	}
	face.Search, face.Meta, face.Unlisted = p.savings.around(v, face.Search, settings.ProxyTool),
		p.savings.around(v, face.Meta, settings.ProxyTool), p.savings.around(v, face.Unlisted, settings.ProxyTool)
	next.face = face
	for _, t := range slices.Concat(face.Search, face.Meta, face.Unlisted) {
		next.reserved = append(next.reserved, t.Name)
	}
	next.reserved = append(next.reserved, retrieve.Reserved()...)
	slices.Sort(next.reserved)
	next.reserved = slices.Compact(next.reserved)

	about := next.servers
	if exposure == view.ExposureDirect && settings.Description == "" {
		about = nil // what there is, clients see
	}
	next.shown = &shown{
		settings:     settings,
		retriever:    retriever,
		offered:      p.offeredBy(settings, compiled.Upstreams),
		instructions: retrieve.Instructions(intro, about),
	}
	for _, u := range compiled.Upstreams {
		next.shown.upstreams = append(next.shown.upstreams, u.Server)
	}
	return next
}

// gated makes a face one that shows what is provisioned. It returns what clients
// are told of it.
func gated(face *register.Face, retriever *retrieve.Retriever, gating view.Gating) (intro string) {
	face.Gate = &register.Budget{MaxTools: gating.MaxTools, MaxTokens: gating.MaxTokens, TTL: gating.TTL}
	if face.SearchTool == retrieve.RetrieveTools { // listed beside discover_tools it would say the same twice
		face.Unlisted, face.Search = face.Search, nil
	}
	face.Search = append(slices.Clone(face.Search), retriever.GateTools()...)
	face.SearchTool = retrieve.DiscoverTools
	return retrieve.GatedIntro
}

// gate puts the gate around every tool of the view.
func (a *arranged) gate() {
	for i, s := range a.servers {
		for j, t := range s.Tools {
			if t.Def.ID.Kind == tool.KindTool {
				a.servers[i].Tools[j] = &tool.Tool{Name: t.Name, Def: t.Def, Handler: a.live.Gate(t)}
			}
		}
	}
}

// clashes are the problems of names that tools of the view were given and that
// others would have had.
func (a *arranged) clashes() []view.Problem {
	var problems []view.Problem
	for _, clash := range retrieve.Clashes(a.servers) {
		problems = append(problems, view.Problem{
			View: a.name, At: a.shown.settings.At,
			Message: fmt.Sprintf("two tools are named %q: one was given the name that %s has", clash.Name, clash.ID),
			Hint:    "give one of them another name",
		})
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
func (p *Proxy) serversOf(config *configs.Config, compiled *view.View) []retrieve.Server {
	settings := compiled.Settings
	var out []retrieve.Server
	for _, u := range compiled.Upstreams {
		i := slices.IndexFunc(config.Servers, func(s upstream.Settings) bool { return s.Name == u.Server })
		configured := config.Servers[i]
		s := retrieve.Server{Name: u.Server, Description: configured.Description, Prefix: configured.Prefix, Excluded: settings.Excludes}
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
		if settings.IncludeAll {
			o.Prompts = o.Prompts || has("prompts")
			o.Resources = o.Resources || has("resources")
			o.Subscribe = o.Subscribe || has("resources", "subscribe")
			o.Completions = o.Completions || has("completions")
		}
	}
	return o
}

// show serves what was arranged, tells clients, and ends the views that are no
// more.
func (p *Proxy) show(ctx context.Context, next []arranged) error {
	after := &views{byName: map[string]*View{}}
	var failed error
	for _, v := range next {
		v.catalog.Arrange(v.reserved, p.config.Load().Pinned)
		err := v.catalog.Swap(ctx, v.servers)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("view %s: %w", v.name, err))
		}
		if err == nil || v.now.Load() == nil { // else the tools of before keep their face
			v.now.Store(v.shown)
			v.live.Offer(v.face)
		}
		after.all = append(after.all, v.View)
		after.byName[v.name] = v.View
	}
	before := p.views.Swap(after)
	for _, v := range after.all {
		if p.life != nil && v.end == nil {
			v.run(p.life)
		}
		v.live.Sync()
	}
	for _, v := range before.all {
		if after.byName[v.name] == nil {
			p.closing.Go(func() { // beside: its calls may take long to end
				ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
				defer cancel()
				if err := v.close(ending); err != nil {
					p.log.Warn("a removed view did not end well", "view", v.name, "error", err)
				}
			})
		}
	}
	return failed
}

// report notes what is wrong with the views, and logs each thing once while Run
// runs. What servers are said to lack waits until all of them were listed or
// have failed.
func (p *Proxy) report(problems []view.Problem) {
	p.problems.Store(&problems)
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
