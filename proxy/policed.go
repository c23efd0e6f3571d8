package proxy

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/policy"
	"toolfinch/trust/rate"
	"toolfinch/view"
)

// police decides, by policies and rate limits, about everything of a view that clients can call,
// get or read. Steps of composite and custom tools act for the owner and are not asked about.
type police struct {
	policies *policy.Policies
	limits   *rate.Limits
	denials  *denials
	view     string
	// template finds the template that a resource which is not listed comes from.
	template func(id tool.ID) (*tool.Tool, bool)
	// serving are those of views that have a server; nil where only view is served.
	serving func(server string) []string
	// alike is what such a resource may be in other spellings.
	alike func(id tool.ID) []retrieve.Alike
}

// judge has policies decide about calls of t over the arguments that its server gets; nil
// without policies. The calls of the program's own user pass. The error is a *policy.DeniedError.
func (p *police) judge(t *tool.Tool) tool.Middleware {
	if p == nil || p.policies == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if party, ofClient := identity.PartyOf(ctx); ofClient || !call.Local {
				_, decided := telemetry.Start(ctx, telemetry.StagePolicy, "")
				err := p.decide(ctx, t, call, party)
				if decided(err); err != nil {
					return nil, err
				}
			}
			return next(ctx, call)
		}
	}
}

func (p *police) decide(ctx context.Context, t *tool.Tool, call *tool.Call, party identity.Party) error {
	var decided policy.Decision
	for _, view := range p.viewsWith(t.Def.ID.Server) {
		request := p.request(party, t.Def, view)
		request.Arguments = call.Arguments
		if decided = p.policies.Decide(request); decided.Allow {
			break
		}
	}
	identity.Decide(ctx, decided.Trusted())
	if !decided.Allow {
		p.denials.count(decided)
		return &policy.DeniedError{Name: call.Name, Decision: decided}
	}
	return nil
}

// limit has rate limits decide about calls of t; nil without limits. The calls of the
// program's own user pass. The error is a *rate.Error.
func (p *police) limit(t *tool.Tool) tool.Middleware {
	if p == nil || p.limits == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if party, ofClient := identity.PartyOf(ctx); ofClient || !call.Local {
				end, err := p.limits.Begin(rate.Call{Principal: policy.UserOf(party), Server: t.Def.ID.Server, ID: t.Def.ID.String()}, time.Now())
				if err != nil {
					identity.Decide(ctx, identity.Decision{Policy: err.Error()})
					return nil, err
				}
				defer end()
			}
			return next(ctx, call)
		}
	}
}

// viewsWith are the views that have a server. Where several are served together, what is of none in particular, as
// a resource that no server lists, is allowed if one of them allows it.
func (p *police) viewsWith(server string) []string {
	if p.serving != nil {
		if all := p.serving(server); len(all) > 0 {
			return all
		}
	}
	return []string{p.view}
}

// mayAll reports whether a party may use a definition in every view that has its server: to approve it concerns all.
func (s *served) mayAll(party identity.Party, def *tool.Def) bool {
	return !slices.ContainsFunc(s.views, func(in *View) bool {
		p := in.police
		together := p != nil && p.serving != nil // whose views are asked themselves
		return p != nil && !together && in.has(def.ID.Server) && !p.policies.May(p.request(party, def, in.name))
	})
}

// mayServer reports whether something of a server may be allowed that is not known yet, of one of the kinds, or of any.
func (p *police) mayServer(party identity.Party, server string, kinds ...tool.Kind) bool {
	return slices.ContainsFunc(p.viewsWith(server), func(view string) bool { return p.policies.MayServer(party, server, view, kinds...) })
}

// request is a request to use what is defined, of a view.
func (p *police) request(party identity.Party, def *tool.Def, view string) policy.Request {
	r := policy.Request{Party: party, Action: policy.ActionOf(def.ID.Kind), ID: def.ID, View: view, Annotations: def.Annotations}
	if def.ID.Kind != tool.KindTool {
		r.Annotations = tool.Annotations{ReadOnly: true}
	}
	if def.ID.Kind == tool.KindResource && def.Raw == nil {
		r.Template = p.templateOf(def.ID)
		for _, one := range p.alike(def.ID) {
			r.Alike = append(r.Alike, policy.Alike{ID: one.ID, Template: p.templateOf(one.ID), Equal: one.Equal})
		}
	}
	return r
}

func (p *police) templateOf(id tool.ID) string {
	if t, ok := p.template(id); ok && id.Kind == tool.KindResource {
		return t.Def.ID.String()
	}
	return ""
}

// denials counts what policies denied, by the policies that did.
type denials struct {
	mu sync.Mutex // guards by; held for look-ups only
	by map[string]int64
}

// maxDenials bounds the policies that are told apart: reloads may bring others.
const maxDenials = 1000

func (d *denials) count(decided policy.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil || len(d.by) >= maxDenials {
		d.by = map[string]int64{}
	}
	d.by[decided.Policy()]++
}

// each calls f with every policy that denied something, and how often.
func (d *denials) each(f func(policy string, n int64)) {
	d.mu.Lock()
	by := maps.Clone(d.by)
	d.mu.Unlock()
	for id, n := range by {
		f(id, n)
	}
}

// policeOf is the police of a planned view.
func (s *views) policeOf(config *configs.Config, v *View, together ...string) *police {
	now := func() *View { return cmp.Or(s.now.Load().byName[v.name], v) } // tools outlive v
	var serving func(string) []string
	if together != nil {
		serving = func(server string) []string {
			byName := s.now.Load().byName
			return slices.DeleteFunc(slices.Clone(together), func(name string) bool {
				one := byName[name]
				return one == nil || !slices.ContainsFunc(one.contents.Servers, func(has retrieve.Server) bool { return has.Name == server })
			})
		}
	}
	return &police{
		serving:  serving,
		policies: config.Policies, limits: s.limits, denials: &s.denials, view: v.name,
		template: func(id tool.ID) (*tool.Tool, bool) { return now().catalog.TemplateOf(id) },
		alike:    func(id tool.ID) []retrieve.Alike { return now().catalog.Alike(id) },
	}
}

// parts are what parties have of a view, each made when it is first asked for. Parties
// whom no policy tells apart have the same. Nobody brings more of them about than the
// policies tell apart (see policy.Policies.Class).
type parts struct {
	most int // are kept
	make func(party identity.Party, class string) *View

	mu      sync.Mutex // guards byClass; held for look-ups only
	byClass map[string]func() *View
}

// Bounds of the parts that are kept of one view, and of the tools in them together.
const (
	maxParts      = 256
	maxPartsTools = 400_000
)

func (p *parts) of(party identity.Party, class string) *View {
	p.mu.Lock()
	made := p.byClass[class]
	if made == nil {
		if len(p.byClass) >= p.most {
			clear(p.byClass)
		}
		made = sync.OnceValue(func() *View { return p.make(party, class) })
		p.byClass[class] = made
	}
	p.mu.Unlock()
	return made()
}

// as is what a party has of the view: the view itself without policies.
func (v *View) as(party identity.Party) *View {
	switch {
	case v.whole != nil:
		return v.whole.as(party)
	case v.parts == nil:
		return v
	}
	return v.parts.of(party, v.police.policies.Class(party))
}

// of is what the party that makes the request of a context has of the view; the program's
// own user has all of it.
func (v *View) of(ctx context.Context) *View {
	if party, ok := identity.PartyOf(ctx); ok {
		return v.as(party)
	}
	return v
}

// divide has parties see their part of a planned view, where there are policies.
func (s *views) divide(config *configs.Config, next plan) {
	if next.police.policies == nil {
		return
	}
	next.View.parts = &parts{
		most:    min(maxParts, 1+maxPartsTools/(1+next.catalog.Len())),
		byClass: map[string]func() *View{},
		make:    func(party identity.Party, class string) *View { return s.partOf(config, next, party, class) },
	}
}

// partOf makes what a party has of a view: a view like it, of a catalog that lacks the
// rest. What it answers follows from what it has, as with any view.
func (s *views) partOf(config *configs.Config, whole plan, party identity.Party, class string) *View {
	v, p := *whole.View, whole.police
	next := whole
	next.View, v.whole, v.parts = &v, whole.View, nil
	allows := func(def *tool.Def, view string, search bool) bool {
		views := []string{view}
		if view == "" {
			views = p.viewsWith(def.ID.Server)
		}
		return slices.ContainsFunc(views, func(view string) bool {
			request := p.request(party, def, view)
			if search {
				request.Action = policy.ActionSearch
			}
			return p.policies.May(request)
		})
	}
	has := func(server string) bool {
		return slices.ContainsFunc(v.contents.Servers, func(s retrieve.Server) bool { return s.Name == server })
	}
	v.catalog = whole.catalog.Only(retrieve.Allowed{
		Use:    func(def *tool.Def, view string) bool { return allows(def, view, false) },
		Find:   func(def *tool.Def, view string) bool { return allows(def, view, true) },
		Server: func(name string) bool { return p.mayServer(party, name) },
	})
	v.contents.Servers = v.catalog.Servers()
	lacks := func(server string) bool { return !has(server) }
	v.upstreams = slices.DeleteFunc(slices.Clone(v.upstreams), lacks)
	v.starting = slices.DeleteFunc(slices.Clone(v.starting), lacks)
	compiled := *v.compiled
	compiled.Upstreams = slices.DeleteFunc(slices.Clone(compiled.Upstreams), func(u view.Upstream) bool { return lacks(u.Server) })
	v.compiled = &compiled
	v.searches = nil
	for _, one := range whole.searches {
		if one.server == "" || has(one.server) {
			if one.of == whole.View {
				one.of = &v
			} else {
				one.of = one.of.as(party)
			}
			v.searches = append(v.searches, one)
		}
	}
	next.offer.About = v.contents.Servers
	v.retriever = s.newRetriever(config, next)
	if v.endpoint != nil {
		s.showTo(config, next)
		v.shown.Class = class
		v.shown.Declared.Only(func(kinds ...tool.Kind) bool {
			return slices.ContainsFunc(kinds, func(kind tool.Kind) bool { return len(v.catalog.Items(kind)) > 0 }) || slices.ContainsFunc(v.upstreams, func(server string) bool { return p.mayServer(party, server, kinds...) })
		})
	}
	return &v
}

// hears returns what reports whether a party has something of a server; nil: each has.
func (v *View) hears(server string) func(identity.Party) bool {
	if v.parts == nil {
		return nil
	}
	return func(party identity.Party) bool { return v.as(party).has(server) }
}

// Request is a request of a party to use something of the view: to call a tool, get a
// prompt, read a resource.
func (v *View) Request(party identity.Party, t *tool.Tool) policy.Request {
	return v.police.request(party, t.Def, cmp.Or(t.View, v.name))
}

// Prompt finds a prompt of the view by the name clients see.
func (v *View) Prompt(name string) (*tool.Tool, bool) { return v.catalog.Prompt(name) }

// Resource finds a resource of the view, listed or not, by the URI clients use.
func (v *View) Resource(uri string) (*tool.Tool, bool) { return v.catalog.Resource(uri) }

// hidden finds what somebody named that the view has, and not for them. It counts that,
// and says what was decided.
func (v *View) hidden(ctx context.Context, call *tool.Call, name string) (t *tool.Tool, decided policy.Decision) {
	whole := v.whole
	if whole == nil {
		return nil, decided
	}
	t, err := whole.catalog.Find(name)
	if err != nil {
		var ok bool
		if t, ok = whole.catalog.Prompt(name); !ok {
			if t, ok = whole.catalog.Resource(name); !ok {
				return nil, decided
			}
		}
	}
	party, _ := identity.PartyOf(ctx)
	request := v.Request(party, t)
	request.Arguments = call.Arguments
	if decided = v.police.policies.Decide(request); decided.Allow {
		return nil, decided
	}
	v.police.denials.count(decided)
	return t, decided
}
