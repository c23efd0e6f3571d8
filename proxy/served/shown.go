package served

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/view"
)

// newRetriever makes the retriever of a view that has its catalog.
func (b *builder) newRetriever(next plan) *retrieve.Retriever {
	config, settings := b.Config, b.Retrieval(next.View)
	settings.TopK, settings.QueryTimeout = config.TopK, config.QueryEmbedTimeout
	settings.Validate = func(server string) bool {
		s := config.Server(server)
		return s == nil || s.Validate
	}
	settings.Offer, settings.SearchTool = next.offer, next.find
	settings.MetaTool = func(name string) *tool.Tool { return next.Shown.MetaTool(name) }
	settings.PlainSearch = next.Settings.SearchStyle == view.SearchPlain
	if next.live != nil {
		settings.Register = func(ctx context.Context, call *tool.Call, tools, best []*tool.Tool) retrieve.Registration {
			names, relisted := next.live.Register(ctx, call, tools, best)
			return retrieve.Registration{Names: names, Relisted: relisted}
		}
		settings.Used = next.live.Used
		if next.Settings.Gating != nil {
			settings.Gate = next.live.Gate()
		}
	}
	return retrieve.New(next.Catalog, settings)
}

// show decides what the clients of a view are shown.
func (b *builder) show(next plan) {
	v, settings, config := next.View, next.Settings, b.Config
	v.Shown = register.Served{
		Source:        v.Catalog,
		Meant:         v.Retriever.Meant,
		Declared:      v.declares(),
		Meta:          slices.Clone(next.compiled.Meta),
		Register:      registers(config),
		Legacy:        legacy(config),
		Loads:         clients.Loads,
		Awaits:        clients.Awaits,
		Hurries:       clients.Hurries,
		Portable:      portable(cmp.Or(settings.Schemas, config.Schemas)),
		Short:         retrieve.ShortName,
		Prefixes:      clients.Prefixes,
		MaxRegistered: config.MaxRegistered,
		Recall:        config.ResumeTools,
		Learn:         config.Learn,
	}
	intro := b.expose(next)
	if settings.Gating != nil {
		intro = joined(settings.Description, v.gated(*settings.Gating))
	}
	if settings.ProxyTool != "" {
		v.Shown.Meta = append(v.Shown.Meta, proxytool.New(settings.ProxyTool, v.Retriever.Proxied(), nil))
	}
	if t := v.Retriever.ReadSkill(); t != nil {
		v.Shown.Meta = append(v.Shown.Meta, t)
	}
	if next.compiled.Keeps() {
		v.Shown.Meta = append(v.Shown.Meta, b.Kept)
	}
	apart := map[string]bool{retrieve.UnprovisionTools: true, retrieve.ListProvisioned: true, b.Kept.Name: true}
	for _, t := range next.compiled.Meta {
		apart[t.Name] = true
	}
	for _, tools := range []*[]*tool.Tool{&v.Shown.Search, &v.Shown.Meta, &v.Shown.Unlisted} {
		observed := make([]*tool.Tool, len(*tools))
		for i, t := range *tools {
			observed[i] = b.ObservedMeta(v, t)
		}
		*tools = v.waiting(observed, apart)
	}
	v.showStarting()
	about := v.Contents.Servers
	if settings.Exposure == view.ExposureDirect && settings.Description == "" {
		about = nil // clients are listed every tool
	}
	v.Shown.Instructions = retrieve.Instructions(intro, about)
}

// portable returns which clients are listed portable schemas.
func portable(schemas view.Schemas) func(client string) bool {
	switch schemas {
	case view.SchemasAsIs:
		return nil
	case view.SchemasPortable:
		return func(string) bool { return true }
	}
	return clients.Unmended
}

// expose decides how tools reach clients, and returns what clients are told of it.
func (b *builder) expose(next plan) (intro string) {
	v := next.View
	exposure := cmp.Or(v.Settings.Exposure, view.ExposureAuto)
	v.Shown.Mode, v.Shown.SearchTool = string(exposure), next.find
	if v.lists {
		v.Shown.ListsWait = listsWait
	}
	beside := v.Retriever.Beside()
	var searches []string
	for _, one := range v.searches {
		searches = append(searches, retrieve.SearchName(one.prefix))
		v.Shown.Search = append(v.Shown.Search, one.of.Retriever.SearchTools(one.prefix, one.server, one.about)...)
	}
	switch exposure { // every exposure but direct lists retrieve_tools
	case view.ExposureDirect:
		v.Shown.Direct = func(bool) bool { return true }
		v.Shown.ListsWait, v.Shown.SearchTool = listsWait, ""
	case view.ExposureSearch:
		v.Shown.Search = append(v.Shown.Search, beside)
		intro = "Find tools with " + strings.Join(searches, ", ") + "."
	case view.ExposureSearchPerServer:
		v.Shown.Search, v.Shown.SearchTool = append(v.Shown.Search, beside), ""
		intro = "Each server has tools that find, describe and call its own."
	default:
		v.Shown.Search = append(v.Retriever.MetaTools(), v.Shown.Search...)
		intro = next.offer.Intro()
		if exposure == view.ExposureAuto && next.below > 0 {
			v.directBelow(next.below, b.Replicated)
			v.Shown.Beside = []*tool.Tool{beside}
			intro = next.offer.AutoIntro()
		}
	}
	return joined(v.Settings.Description, intro)
}

// outgrown is by how much tools must exceed direct_below before a client that was listed every tool gets the search
// tools instead: its model has seen the list, but a list may outgrow its context.
const outgrown = 4

// directBelow has clients listed every tool while the list costs fewer tokens and all
// servers are known.
func (v *View) directBelow(tokens int, replicated bool) {
	cost := sync.OnceValue(v.Catalog.ListingCost)
	if replicated {
		cost = sync.OnceValue(func() int { return v.Catalog.SameListingCost(tokens) })
	}
	v.Shown.Mode += fmt.Sprint(" below ", tokens)
	v.Shown.Direct = func(until bool) bool {
		if until {
			return cost() < outgrown*tokens
		}
		return v.settled && cost() < tokens
	}
	v.Shown.Unsettled = !v.settled
	if !v.lists && len(v.Starting) > 0 && cost() < tokens {
		v.Shown.ListsWait = leeway.Of(listsMayWait)
	}
}

// gated has clients listed their provisioned tools alone. It returns what clients are told of the gate.
func (v *View) gated(gating view.Gating) (intro string) {
	shown := &v.Shown
	v.Budget = &gate.Budget{MaxTools: gating.MaxTools, MaxTokens: gating.MaxTokens, TTL: gating.TTL}
	shown.Granted, shown.ListsWait = v.live.Gate().Granted, 0
	if shown.SearchTool == retrieve.RetrieveTools { // discover_tools answers the same
		shown.Unlisted, shown.Search = shown.Search, nil
	}
	shown.Search = append(slices.Clone(shown.Search), v.Retriever.GateTools()...)
	shown.SearchTool = retrieve.DiscoverTools
	return retrieve.GatedIntro
}

// declares returns what clients are told at the start that the view has beside tools: everything that an upstream
// declares, and for an extension the value of the first upstream.
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
	if skills := v.Catalog.Items(tool.KindSkill); len(skills) > 0 {
		all.Resources = true
		if all.Extensions == nil {
			all.Extensions = map[string]json.RawMessage{}
		}
		dynamic := slices.ContainsFunc(skills, func(t *tool.Tool) bool { return rawjson.Text(rawjson.Member(t.Def.Raw, "resources")) != "" })
		all.Extensions[tool.ExtensionSkills] = rawjson.Of(map[string]bool{"directoryRead": !dynamic})
	}
	return all
}

// registers returns when found tools are registered for a client ("name version"). A changed list costs a client with a
// prompt cache the whole conversation once; a call through call_tool costs a few tokens. So AUTO registers with the
// answer only for clients that add tools at the end of the conversation, and for clients that were never measured,
// because they may not use call_tool well, if they list again when told to.
func registers(config *configs.Config) func(client string) register.When {
	switch config.Routing {
	case configs.RoutingCallTool:
		return nil
	case configs.RoutingDynamic:
		return func(string) register.When { return register.AtOnce }
	}
	return func(client string) register.When {
		for _, c := range config.Clients {
			if c.Register != "" && clients.Announces(c.Name, client) {
				return register.When(c.Register)
			}
		}
		switch seen := clients.ListingOf(client); {
		case seen == nil:
			return register.Tried
		case seen.Loads:
			return register.Best
		case seen.Relists:
			return register.WhenUsed
		}
		return register.Never
	}
}

// legacy returns which clients server/discover sends to the legacy era, where lists may change as a side effect of a call.
func legacy(config *configs.Config) func(client string) bool {
	return func(client string) bool {
		for _, c := range config.Clients {
			if c.Era != "" && clients.Announces(c.Name, client) {
				return c.Era == configs.EraLegacy
			}
		}
		return config.Routing != configs.RoutingCallTool && clients.Loads(client)
	}
}

func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
}
