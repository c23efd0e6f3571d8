package served

import (
	"context"
	"slices"
	"sync"

	"toolfinch/internal/identity"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/policy"
	"toolfinch/view"
)

// Bounds of the parts that are kept of one view, and of the tools in them together.
const (
	maxParts      = 256
	maxPartsTools = 400_000
)

// As returns the part of the view that a party may use: the whole view without policies.
func (v *View) As(party identity.Party) *View {
	switch {
	case v.Whole != nil:
		return v.Whole.As(party)
	case v.parts == nil:
		return v
	}
	return v.parts(party)
}

// Of returns the part of the view that the maker of the request of ctx may use; the program's own user has the whole
// view.
func (v *View) Of(ctx context.Context) *View {
	if party, ok := identity.PartyOf(ctx); ok {
		return v.As(party)
	}
	return v
}

// divide gives each party its part of a planned view, where there are policies. A part is made when it is first asked
// for. Parties that no policy tells apart share one, so that strangers cannot ask for more parts than the policies tell
// apart (see policy.Policies.Class).
func (b *builder) divide(next plan) {
	if next.policies == nil {
		return
	}
	most := min(maxParts, 1+maxPartsTools/(1+next.Catalog.Len()))
	var mu sync.Mutex // guards byClass; held for look-ups only
	byClass := map[string]func() *View{}
	next.View.parts = func(party identity.Party) *View {
		class := next.policies.Class(party)
		mu.Lock()
		made := byClass[class]
		if made == nil {
			if len(byClass) >= most {
				clear(byClass)
			}
			made = sync.OnceValue(func() *View { return b.partOf(next, party, class) })
			byClass[class] = made
		}
		mu.Unlock()
		return made()
	}
}

// partOf makes the part of a view that a party may use: the same view over a catalog without the rest, so that its
// answers follow from the catalog, as in any view.
func (b *builder) partOf(whole plan, party identity.Party, class string) *View {
	v := *whole.View
	next := whole
	next.View, v.Whole, v.parts = &v, whole.View, nil
	allows := func(def *tool.Def, view string, search bool) bool {
		views := []string{view}
		if view == "" {
			views = whole.viewsWith(def.ID.Server)
		}
		return slices.ContainsFunc(views, func(view string) bool {
			request := whole.request(party, def, view)
			if search {
				request.Action = policy.ActionSearch
			}
			return whole.policies.May(request)
		})
	}
	v.Catalog = whole.Catalog.Only(retrieve.Allowed{
		Use:    func(def *tool.Def, view string) bool { return allows(def, view, false) },
		Find:   func(def *tool.Def, view string) bool { return allows(def, view, true) },
		Server: func(name string) bool { return whole.mayServer(party, name) },
	})
	v.Contents.Servers = v.Catalog.Servers()
	lacks := func(server string) bool { return !v.contains(server) }
	v.Upstreams = slices.DeleteFunc(slices.Clone(v.Upstreams), lacks)
	v.Starting = slices.DeleteFunc(slices.Clone(v.Starting), lacks)
	compiled := *v.compiled
	compiled.Upstreams = slices.DeleteFunc(slices.Clone(compiled.Upstreams), func(u view.Upstream) bool { return lacks(u.Server) })
	v.compiled = &compiled
	v.searches = nil
	for _, one := range whole.searches {
		if one.server == "" || v.contains(one.server) {
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
		v.Shown.Class, v.Shown.ByClient = class, next.policies.ReadClient()
		v.Shown.Declared.Only(func(kinds ...tool.Kind) bool {
			return slices.ContainsFunc(kinds, func(kind tool.Kind) bool { return len(v.Catalog.Items(kind)) > 0 }) || slices.ContainsFunc(v.Upstreams, func(server string) bool { return whole.mayServer(party, server, kinds...) })
		})
		b.group(next)
	}
	return &v
}

// Hears returns a predicate for parties that have something of a server; nil if every party has.
func (v *View) Hears(server string) func(identity.Party) bool {
	if v.parts == nil {
		return nil
	}
	return func(party identity.Party) bool { return v.As(party).Has(server) }
}

// Shows reports whether the maker of the request of ctx has something of a server.
func (s *Served) Shows(ctx context.Context, server string) bool {
	return slices.ContainsFunc(s.Views, func(v *View) bool { return v.Of(ctx).Has(server) })
}
