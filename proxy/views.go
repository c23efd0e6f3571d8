package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"toolfinch/configs"
	"toolfinch/hook"
	"toolfinch/output"
	"toolfinch/rawjson"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
)

// ErrNoView is wrapped by the error for a name that no view has.
var ErrNoView = errors.New("no such view")

// View is one view of the upstreams: what can be found and called in it, and the
// live server of its clients.
type View struct {
	name    string
	proxy   *Proxy
	catalog *retrieve.Catalog
	live    *register.Live
	now     atomic.Pointer[shown]
	http    func() http.Handler
	sse     func() eventStream

	end   context.CancelFunc // ends the live server's Run; this and ended are the refresh loop's own
	ended chan struct{}
}

// eventStream is served over HTTP+SSE.
type eventStream struct{ events, messages http.Handler }

// shown is what a view is now.
type shown struct {
	settings     view.Settings
	retriever    *retrieve.Retriever
	upstreams    []string // whose tools it has
	offered      register.Offered
	instructions string
}

// views are all that are served, the default view first.
type views struct {
	all    []*View
	byName map[string]*View
}

// View returns the view of that name; "" is the one that clients get who name
// none. The error wraps ErrNoView and says which there are.
func (p *Proxy) View(name string) (*View, error) {
	all := p.views.Load()
	if v := all.byName[cmp.Or(name, p.Only, view.Default)]; v != nil {
		return v, nil
	}
	var names []string
	for _, v := range all.all {
		names = append(names, v.name)
	}
	if near := retrieve.Nearest(name, names, 1); len(near) > 0 {
		return nil, fmt.Errorf("%w: %q; did you mean %s?", ErrNoView, name, near[0])
	}
	return nil, fmt.Errorf("%w: %q; there are %s", ErrNoView, name, strings.Join(names, ", "))
}

// main is the view that clients get who name none. The default view is always
// there, so only a bad Only leads to it in another's place.
func (p *Proxy) main() *View {
	if v, err := p.View(""); err == nil {
		return v
	}
	return p.views.Load().byName[view.Default]
}

// Views returns all views, the default view first.
func (p *Proxy) Views() []*View { return slices.Clone(p.views.Load().all) }

// Problems are what is wrong with the views beside what the upstreams have now.
func (p *Proxy) Problems() []view.Problem { return *p.problems.Load() }

// Retriever answers searches in the view of clients that name none; it works
// from Open on.
func (p *Proxy) Retriever() *retrieve.Retriever { return p.main().Retriever() }

// Tools is the number of tools known in that view.
func (p *Proxy) Tools() int { return p.main().catalog.Len() }

// Settings returns what the view is configured as.
func (v *View) Settings() view.Settings { return v.now.Load().settings }

// Retriever answers searches in the view.
func (v *View) Retriever() *retrieve.Retriever { return v.now.Load().retriever }

// Tools returns the tools of the view, sorted by the names clients see.
func (v *View) Tools() []*tool.Tool { return v.catalog.Tools() }

// Find finds a tool of the view by the name clients see or by "server.tool".
func (v *View) Find(name string) (*tool.Tool, error) { return v.catalog.Find(name) }

// Nearest returns up to n names of tools that look like name.
func (v *View) Nearest(name string, n int) []string { return v.catalog.Nearest(name, n) }

// Call calls a tool of the view, with all that is around it. notify, which may be
// nil, gets what the tool says meanwhile.
func (v *View) Call(ctx context.Context, t *tool.Tool, arguments json.RawMessage, notify func(method string, params json.RawMessage)) (tool.Result, error) {
	return t.Handler(ctx, &tool.Call{Name: t.Name, Arguments: arguments, Notify: notify})
}

// newView makes a view that shows nothing yet.
func (p *Proxy) newView(name string, tokens map[string]int) *View {
	v := &View{name: name, proxy: p}
	v.catalog = retrieve.NewCatalog(p.upstreamTool, nil, nil)
	v.catalog.LearnTokens(tokens)
	v.live = register.New(register.Settings{
		Version:         p.version,
		Instructions:    func() string { return v.now.Load().instructions },
		Offered:         func() register.Offered { return v.now.Load().offered },
		Hook:            hook.Command{Line: p.first.ListChangedExec},
		Relists:         p.relists,
		Remember:        p.rememberClient,
		SetLevel:        func(level string) { p.levels.set(v, level, p.pool.SetLogLevel) },
		Subscriptions:   p.subscriptions,
		Complete:        p.pool.Complete,
		Task:            v.task,
		RootsChanged:    p.pool.RootsChanged,
		Forget:          p.pool.Forget,
		PrincipalHeader: p.first.PrincipalHeader,
	}, v.catalog, p.log)
	v.http = sync.OnceValue(v.live.HTTP)
	v.sse = sync.OnceValue(func() eventStream {
		events, messages := v.live.SSE("/message")
		return eventStream{events, messages}
	})
	return v
}

// task is a request about a task of an upstream that the view has something of.
func (v *View) task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	escaped, _, _ := strings.Cut(call.Name, "/") // as upstream.Pool names tasks
	if server, err := url.PathUnescape(escaped); err != nil || !v.has(server) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	return v.proxy.pool.Task(ctx, method, call)
}

// run runs what the live server does in the background until close.
func (v *View) run(ctx context.Context) {
	ended := make(chan struct{})
	ctx, v.end = context.WithCancel(ctx)
	v.ended = ended
	go func() {
		defer close(ended)
		v.live.Run(ctx)
	}()
}

// endStreams ends the open event streams of all clients. The endpoint is made
// first, if none has come yet: one that comes now must not make it after its end.
func (v *View) endStreams(ctx context.Context) {
	v.http()
	v.live.EndStreams(ctx)
}

// close ends the sessions of the view, and then the view.
func (v *View) close(ctx context.Context) error {
	v.endStreams(ctx)
	v.live.Close(ctx)
	v.proxy.levels.set(v, "", v.proxy.pool.SetLogLevel)
	if v.end != nil {
		v.end()
		<-v.ended
	}
	return v.catalog.Close()
}

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
		return slices.Insert(all, 0, view.Settings{Name: view.Default, Exposure: view.ExposureRetrieve, IncludeAll: true})
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
			return retrieve.Nearest(id, slices.Sorted(maps.Keys(tools)), n)
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
	retriever := retrieve.New(v.catalog, retrieve.Settings{
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
	if compiled.Keeps() {
		face.Meta = append(slices.Clone(face.Meta), p.outputs.Tool())
	}
	next.face = face
	for _, t := range slices.Concat(face.Search, face.Meta) {
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

// clashes are names that a tool was given and that another has without being
// given any: that one is shown under a longer one.
func (a *arranged) clashes() []view.Problem {
	var unnamed []tool.ID
	prefix := map[string]string{}
	given := map[string]bool{}
	for _, s := range a.servers {
		if s.Prefix != nil {
			prefix[s.Name] = *s.Prefix
		}
		for _, t := range s.Tools {
			switch {
			case t.Def.ID.Kind != tool.KindTool:
			case t.Name != "":
				given[t.Name] = true
			default:
				unnamed = append(unnamed, t.Def.ID)
			}
		}
	}
	if len(given) == 0 {
		return nil
	}
	var problems []view.Problem
	names := register.Names(unnamed, nil, prefix)
	for _, id := range unnamed {
		if given[names[id]] {
			problems = append(problems, view.Problem{
				View: a.name, At: a.shown.settings.At,
				Message: fmt.Sprintf("two tools are named %q: one was given the name that %s has", names[id], id),
				Hint:    "give one of them another name",
			})
		}
	}
	return problems
}

func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
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
		v.now.Store(v.shown)
		if err := v.catalog.Swap(ctx, v.servers); err != nil {
			failed = errors.Join(failed, fmt.Errorf("view %s: %w", v.name, err))
		}
		v.live.Offer(v.face)
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

// has reports whether the view has something of an upstream.
func (v *View) has(server string) bool { return slices.Contains(v.now.Load().upstreams, server) }

// health counts the upstreams of the view by their state.
func (v *View) health() retrieve.Health {
	listed := map[string]bool{}
	for _, s := range v.catalog.Servers() {
		listed[s.Name] = s.Tools != nil
	}
	var h retrieve.Health
	for _, s := range v.proxy.pool.Status() {
		switch {
		case !v.has(s.Server):
		case s.State == upstream.StateFailed:
			h.Failed++
		case s.State == upstream.StateReady && listed[s.Server]:
			h.Ready++
		default:
			h.Pending++
		}
	}
	return h
}

// settled reports whether what the view has is known: each of its upstreams was
// listed once, or has failed.
func (v *View) settled() bool {
	failed := map[string]bool{}
	for _, s := range v.proxy.pool.Status() {
		failed[s.Server] = s.State == upstream.StateFailed
	}
	return !slices.ContainsFunc(v.catalog.Servers(), func(s retrieve.Server) bool { return s.Tools == nil && !failed[s.Name] })
}

func validates(config *configs.Config, server string) bool {
	for _, s := range config.Servers {
		if s.Name == server {
			return s.Validate
		}
	}
	return true
}

// levels are the most verbose levels of log messages that the clients of each
// view ask for.
type levels struct {
	mu sync.Mutex // guards by; held while upstreams are told, so that the last they hear is the newest
	by map[*View]string
}

// set takes the level of a view, "" for none, and tells the most verbose of all.
func (l *levels) set(v *View, level string, tell func(level string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[*View]string{}
	}
	if level == "" && l.by[v] == "" {
		return
	}
	l.by[v] = level
	if level == "" {
		delete(l.by, v)
	}
	for _, level := range tool.LogLevels {
		for _, wanted := range l.by {
			if wanted == level {
				tell(level)
				return
			}
		}
	}
}

// events is what the proxy does with what upstreams say outside of any call.
func (p *Proxy) events() upstream.Events {
	return upstream.Events{
		Updated: func(server, uri string, params json.RawMessage) {
			id := tool.ID{Server: server, Name: uri, Kind: tool.KindResource}
			for _, v := range p.views.Load().all {
				if settings := v.now.Load().settings; !settings.Excludes(id) { // a part of what is not excluded may be
					v.live.Updated(server, uri, params)
				}
			}
		},
		Log: func(server, client string, params json.RawMessage) {
			for _, v := range p.views.Load().all {
				if v.has(server) {
					v.live.Log(client, params)
				}
			}
		},
		Notify: func(client, method string, params json.RawMessage) {
			if live := p.liveOf(client); live != nil {
				live.Notify(client, method, params)
			}
		},
		Ask: func(ctx context.Context, client, method string, params json.RawMessage) (json.RawMessage, error) {
			if live := p.liveOf(client); live != nil {
				return live.Ask(ctx, client, method, params)
			}
			return nil, errors.New("the client is gone")
		},
		Reaches: func(client string) bool {
			live := p.liveOf(client)
			return live != nil && live.Reaches(client)
		},
	}
}

// liveOf returns the live server that a client's session is of, nil when it has
// ended.
func (p *Proxy) liveOf(client string) *register.Live {
	for _, v := range p.views.Load().all {
		if v.live.Knows(client) {
			return v.live
		}
	}
	return nil
}
