package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/leeway"
	"toolfinch/proxytool"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
)

// rebuild plans and builds the views of the configuration over what is known. Views
// that use none of the changed servers stay as they are; nil: none does.
func (s *views) rebuild(ctx context.Context, changed map[string]bool) (*served, error) {
	config := s.now.Load().config
	plans, problems := s.plan(config, s.known.upstreams(config, s.upstreamTools), changed)
	return s.build(ctx, config, plans, problems)
}

// build makes what is served of the plans. It changes nothing that is served: an
// error leaves no trace.
func (s *views) build(ctx context.Context, config *configs.Config, plans []plan, problems []view.Problem) (*served, error) {
	before := s.now.Load()
	next := &served{config: config, problems: problems, byName: make(map[string]*View, len(plans)), limits: s.limits, modules: append(s.modules.Files(), s.python.Files()...), held: map[string]int{}, ready: before.ready, replaced: make(chan struct{})}
	for _, server := range config.Servers {
		if n := s.known.waiting(config, server.Name); n > 0 {
			next.held[server.Name] = n
		}
	}
	for _, plan := range plans {
		if err := s.add(ctx, next, plan); err != nil {
			return nil, err
		}
	}
	if config.Root() == configs.RootViews {
		root := s.planRoot(config, next)
		next.problems = append(next.problems, root.problems...)
		if err := s.add(ctx, next, root); err != nil {
			return nil, err
		}
	}
	next.complete = !slices.ContainsFunc(config.Servers, func(u upstream.Settings) bool { return !s.known.listedThisRun[u.Name] })
	return next, nil
}

// add builds a planned view into what is served next, the default view before the
// others. After an error nothing of next is left.
func (s *views) add(ctx context.Context, next *served, plan plan) error {
	v, before := plan.View, s.now.Load()
	if next.byName[v.name] = v; v.name == view.Default {
		next.views = slices.Insert(next.views, 0, v)
	} else {
		next.views = append(next.views, v)
	}
	if plan.same {
		return nil
	}
	err := s.buildView(ctx, next.config, plan)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("view %s: %w", v.name, err)
	for _, v := range next.views {
		if was := before.byName[v.name]; was == nil {
			err = errors.Join(err, v.close())
		} else if was != v { // the index of what is served is the latest again
			_, _ = v.root.With(context.WithoutCancel(ctx), was.contents)
		}
	}
	return err
}

// buildView makes a planned view complete.
func (s *views) buildView(ctx context.Context, config *configs.Config, next plan) (err error) {
	v := next.View
	if v.root == nil {
		v.root = retrieve.NewCatalog(s.unlistedResource(v.name))
		v.root.LearnTokens(s.tokens)
	}
	if s.stored != nil {
		v.root.Recall(s.stored, s.partial)
	}
	if v.endpoint == nil && s.endpoint != nil {
		v.endpoint = s.endpoint(v)
	}
	next.addLayers(s.observer, s.first.Auth.Scopes)
	if v.catalog, err = v.root.With(ctx, v.contents); err != nil {
		return err
	}
	v.retriever = s.newRetriever(config, next)
	if v.endpoint != nil {
		s.showTo(config, next)
		s.divide(config, next)
	}
	return nil
}

func (s *views) newRetriever(config *configs.Config, next plan) *retrieve.Retriever {
	settings := retrieve.Settings{
		TopK:     config.TopK,
		Health:   next.health,
		Validate: func(server string) bool { return validates(config, server) },
		Vectors:  &s.embedder.queries,
		Refused:  next.refused(s.observer),
		Unchecked: func(id tool.ID, err error) {
			s.log.Warn("arguments are passed on unchecked", "server", id.Server, "tool", id.Name, "reason", err)
		},
		QueryTimeout: config.QueryEmbedTimeout,
		Memory:       s.memory,
		Misfit:       s.embedder.anew,
		Offer:        next.offer,
		SearchTool:   next.find,
		Offers:       func(name string) bool { return next.shown.MetaTool(name) != nil },
		PlainSearch:  next.settings.SearchStyle == view.SearchPlain,
	}
	if next.endpoint != nil {
		settings.Register = func(ctx context.Context, call *tool.Call, tools []*tool.Tool) retrieve.Registration {
			names, relisted := next.live.Register(ctx, call, tools)
			return retrieve.Registration{Names: names, Relisted: relisted}
		}
		settings.Used = next.live.Used
		if next.settings.Gating != nil {
			settings.Gate = next.gate
		}
	}
	return retrieve.New(next.catalog, settings)
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

// showTo decides what the clients of a view are shown.
func (s *views) showTo(config *configs.Config, next plan) {
	v, settings := next.View, next.settings
	v.shown = register.Served{
		Source:        v.catalog,
		Declared:      v.declares(),
		Meta:          slices.Clone(next.compiled.Meta),
		Register:      registers(config),
		Awaits:        clients.Awaits,
		MaxRegistered: config.MaxRegistered,
		Recall:        config.ResumeTools,
		Learn:         config.Learn,
	}
	intro := v.expose(next)
	if settings.Gating != nil {
		intro = joined(settings.Description, v.gated(*settings.Gating))
	}
	if settings.ProxyTool != "" {
		v.shown.Meta = append(v.shown.Meta, proxytool.New(settings.ProxyTool, v.retriever.Proxied(), nil))
	}
	if next.compiled.Keeps() {
		v.shown.Meta = append(v.shown.Meta, s.outputs.Tool())
	}
	apart := map[string]bool{retrieve.UnprovisionTools: true, retrieve.ListProvisioned: true, s.outputs.Tool().Name: true}
	for _, t := range next.compiled.Meta {
		apart[t.Name] = true
	}
	for _, tools := range []*[]*tool.Tool{&v.shown.Search, &v.shown.Meta, &v.shown.Unlisted} {
		*tools = v.waiting(s.observer.aroundAll(v, *tools), apart)
	}
	v.showStarting()
	about := v.contents.Servers
	if settings.Exposure == view.ExposureDirect && settings.Description == "" {
		about = nil // clients see what there is
	}
	v.shown.Instructions = retrieve.Instructions(intro, about)
}

// expose decides how tools reach clients, and returns what these are told of it.
func (v *View) expose(next plan) (intro string) {
	exposure := cmp.Or(v.settings.Exposure, view.ExposureAuto)
	v.shown.Mode, v.shown.SearchTool = string(exposure), next.find
	if v.lists {
		v.shown.ListsWait = listsWait
	}
	beside := v.retriever.Beside()
	var searches []string
	for _, one := range v.searches {
		searches = append(searches, retrieve.SearchName(one.prefix))
		v.shown.Search = append(v.shown.Search, one.of.retriever.SearchTools(one.prefix, one.server, one.about)...)
	}
	switch exposure { // retrieve_tools is listed in all but the first
	case view.ExposureDirect:
		v.shown.Direct = func(bool) bool { return true }
		v.shown.ListsWait, v.shown.SearchTool = listsWait, ""
	case view.ExposureSearch:
		v.shown.Search = append(v.shown.Search, beside)
		intro = "Find tools with " + strings.Join(searches, ", ") + "."
	case view.ExposureSearchPerServer:
		v.shown.Search, v.shown.SearchTool = append(v.shown.Search, beside), ""
		intro = "Each server has tools that find, describe and call its own."
	default:
		v.shown.Search = append(v.retriever.MetaTools(), v.shown.Search...)
		intro = next.offer.Intro()
		if exposure == view.ExposureAuto && next.below > 0 {
			v.directBelow(next.below)
			v.shown.Beside = []*tool.Tool{beside}
			intro = next.offer.AutoIntro()
		}
	}
	return joined(v.settings.Description, intro)
}

// outgrown is how many times direct_below tools must cost before a client that was
// listed them all searches: its model has seen them, but a list may outgrow its context.
const outgrown = 4

// directBelow has clients listed every tool while that costs fewer tokens and all
// servers are known.
func (v *View) directBelow(tokens int) {
	cost := sync.OnceValue(v.catalog.ListingCost)
	if v.desk.sessions != nil {
		cost = sync.OnceValue(func() int { return v.catalog.SameListingCost(tokens) })
	}
	v.shown.Mode += fmt.Sprint(" below ", tokens)
	v.shown.Direct = func(until bool) bool {
		if until {
			return cost() < outgrown*tokens
		}
		return v.settled && cost() < tokens
	}
	if !v.lists && len(v.starting) > 0 && cost() < tokens {
		v.shown.ListsWait = leeway.Of(listsMayWait)
	}
}

// gated makes what is shown what is provisioned. It returns what clients are told
// of it.
func (v *View) gated(gating view.Gating) (intro string) {
	shown := &v.shown
	v.budget = &gate.Budget{MaxTools: gating.MaxTools, MaxTokens: gating.MaxTokens, TTL: gating.TTL}
	shown.Granted, shown.ListsWait = v.gate.Granted, 0
	if shown.SearchTool == retrieve.RetrieveTools { // listed beside discover_tools it would say the same twice
		shown.Unlisted, shown.Search = shown.Search, nil
	}
	shown.Search = append(slices.Clone(shown.Search), v.retriever.GateTools()...)
	shown.SearchTool = retrieve.DiscoverTools
	return retrieve.GatedIntro
}

// declares is what clients of the view are told at the start that there is beside tools:
// what any of its upstreams declares, and of an extension what the first one says.
func (v *View) declares() (all register.Declared) {
	for _, u := range v.compiled.Upstreams {
		one := v.declared[u.Server]
		all.Prompts = all.Prompts || one.Prompts
		all.Resources = all.Resources || one.Resources
		all.Subscribe = all.Subscribe || one.Subscribe
		all.Completions = all.Completions || one.Completions
		all.Logging = all.Logging || one.Logging
		all.Tasks = all.Tasks || one.Tasks
		for name, value := range one.Extensions {
			if all.Extensions == nil {
				all.Extensions = map[string]json.RawMessage{}
			}
			if _, known := all.Extensions[name]; !known {
				all.Extensions[name] = value
			}
		}
	}
	return all
}
