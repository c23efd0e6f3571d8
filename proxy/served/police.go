package served

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

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
	denied   func(policy.Decision) // counts
	view     string
	combined []string       // the views that view combines; nil: it is one of its own
	now      func() *Served // what is served now: tools outlive views
	planned  *View          // view before it is served
}

// catalog returns the catalog of the view as it is now.
func (p *police) catalog() *retrieve.Catalog {
	return cmp.Or(p.now().ByName[p.view], p.planned).Catalog
}

// judge has policies decide about calls of t over the arguments that its server gets; nil
// without policies. The calls of the program's own user pass. The error is a *policy.DeniedError.
func (p *police) judge(t *tool.Tool) tool.Middleware {
	if p.policies == nil {
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
		p.denied(decided)
		return &policy.DeniedError{Name: call.Name, Decision: decided}
	}
	return nil
}

// limit has rate limits decide about calls of t; nil without limits. The calls of the
// program's own user pass. The error is a *rate.Error.
func (p *police) limit(t *tool.Tool) tool.Middleware {
	if p.limits == nil {
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

// viewsWith returns the view, or the views with a server that it combines: something of no view in particular, as a
// resource that no server lists, is allowed if one of them allows it.
func (p *police) viewsWith(server string) []string {
	byName := p.now().ByName
	all := slices.DeleteFunc(slices.Clone(p.combined), func(name string) bool {
		v := byName[name]
		return v == nil || !slices.ContainsFunc(v.Contents.Servers, func(has retrieve.Server) bool { return has.Name == server })
	})
	if len(all) == 0 {
		return []string{p.view}
	}
	return all
}

// MayDecide returns whether the maker of the request of ctx may use a definition, or the
// instructions of a server, in every view that has the server.
func (s *Served) MayDecide(ctx context.Context) func(tool.ID, json.RawMessage) bool {
	party, ofClient := identity.PartyOf(ctx)
	return func(id tool.ID, raw json.RawMessage) bool {
		if id.Kind == tool.KindInstructions || !ofClient || s.Config.Policies == nil {
			return true
		}
		def, err := tool.ParseKind(id.Kind, id.Server, raw)
		return err == nil && !slices.ContainsFunc(s.Views, func(v *View) bool {
			p := v.police
			combines := p.combined != nil // its views are asked themselves
			return !combines && v.Has(id.Server) && !p.policies.May(p.request(party, def, v.Name))
		})
	}
}

// Shows reports whether the maker of the request of ctx has something of a server.
func (s *Served) Shows(ctx context.Context, server string) bool {
	return slices.ContainsFunc(s.Views, func(v *View) bool { return v.Of(ctx).Has(server) })
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
		for _, one := range p.catalog().Alike(def.ID) {
			r.Alike = append(r.Alike, policy.Alike{ID: one.ID, Template: p.templateOf(one.ID), Equal: one.Equal})
		}
	}
	return r
}

func (p *police) templateOf(id tool.ID) string {
	if t, ok := p.catalog().TemplateOf(id); ok && id.Kind == tool.KindResource {
		return t.Def.ID.String()
	}
	return ""
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

// As returns what a party has of the view: the view itself without policies.
func (v *View) As(party identity.Party) *View {
	switch {
	case v.Whole != nil:
		return v.Whole.As(party)
	case v.parts == nil:
		return v
	}
	return v.parts.of(party, v.police.policies.Class(party))
}

// Of returns what the party that makes the request of a context has of the view; the program's
// own user has all of it.
func (v *View) Of(ctx context.Context) *View {
	if party, ok := identity.PartyOf(ctx); ok {
		return v.As(party)
	}
	return v
}

// divide has parties see their part of a planned view, where there are policies.
func (b *builder) divide(next plan) {
	if next.police.policies == nil {
		return
	}
	next.View.parts = &parts{
		most:    min(maxParts, 1+maxPartsTools/(1+next.Catalog.Len())),
		byClass: map[string]func() *View{},
		make:    func(party identity.Party, class string) *View { return b.partOf(next, party, class) },
	}
}

// partOf makes what a party has of a view: a view like it, of a catalog that lacks the
// rest. What it answers follows from what it has, as with any view.
func (b *builder) partOf(whole plan, party identity.Party, class string) *View {
	v, p := *whole.View, whole.police
	next := whole
	next.View, v.Whole, v.parts = &v, whole.View, nil
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
		return slices.ContainsFunc(v.Contents.Servers, func(s retrieve.Server) bool { return s.Name == server })
	}
	v.Catalog = whole.Catalog.Only(retrieve.Allowed{
		Use:    func(def *tool.Def, view string) bool { return allows(def, view, false) },
		Find:   func(def *tool.Def, view string) bool { return allows(def, view, true) },
		Server: func(name string) bool { return p.mayServer(party, name) },
	})
	v.Contents.Servers = v.Catalog.Servers()
	lacks := func(server string) bool { return !has(server) }
	v.Upstreams = slices.DeleteFunc(slices.Clone(v.Upstreams), lacks)
	v.Starting = slices.DeleteFunc(slices.Clone(v.Starting), lacks)
	compiled := *v.compiled
	compiled.Upstreams = slices.DeleteFunc(slices.Clone(compiled.Upstreams), func(u view.Upstream) bool { return lacks(u.Server) })
	v.compiled = &compiled
	v.searches = nil
	for _, one := range whole.searches {
		if one.server == "" || has(one.server) {
			if one.of == whole.View {
				one.of = &v
			} else {
				one.of = one.of.As(party)
			}
			v.searches = append(v.searches, one)
		}
	}
	next.offer.About = v.Contents.Servers
	v.Retriever = b.newRetriever(next)
	if v.live != nil {
		b.show(next)
		v.Shown.Class = class
		v.Shown.Declared.Only(func(kinds ...tool.Kind) bool {
			return slices.ContainsFunc(kinds, func(kind tool.Kind) bool { return len(v.Catalog.Items(kind)) > 0 }) || slices.ContainsFunc(v.Upstreams, func(server string) bool { return p.mayServer(party, server, kinds...) })
		})
	}
	return &v
}

// Hears returns what reports whether a party has something of a server; nil: each has.
func (v *View) Hears(server string) func(identity.Party) bool {
	if v.parts == nil {
		return nil
	}
	return func(party identity.Party) bool { return v.As(party).Has(server) }
}

// Request is a request of a party to use something of the view: to call a tool, get a
// prompt, read a resource.
func (v *View) Request(party identity.Party, t *tool.Tool) policy.Request {
	return v.police.request(party, t.Def, cmp.Or(t.View, v.Name))
}

// Hidden finds what somebody named that the view has, and not for them. It counts that,
// and says what was decided.
func (v *View) Hidden(ctx context.Context, call *tool.Call, name string) (t *tool.Tool, decided policy.Decision) {
	whole := v.Whole
	if whole == nil {
		return nil, decided
	}
	t, err := whole.Catalog.Find(name)
	if err != nil {
		var ok bool
		if t, ok = whole.Catalog.Prompt(name); !ok {
			if t, ok = whole.Catalog.Resource(name); !ok {
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
	v.police.denied(decided)
	return t, decided
}
