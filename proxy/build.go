package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"toolfinch/internal/hook"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/served"
	"toolfinch/register"
	"toolfinch/register/transport"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/trust/policy"
	"toolfinch/view"
	"toolfinch/view/output"
	"toolfinch/view/skills"
)

// rebuild builds the views of the served configuration. Views that use none of the changed servers are reused; if
// changed is nil, no view is. reread says that the folders of skills have changed.
func (s *views) rebuild(ctx context.Context, changed map[string]bool, reread bool) (*current, error) {
	now := s.now.Load()
	next := now.next(now.Config)
	if reread {
		s.readSkills(next)
	}
	return next, s.build(ctx, next, s.known.of(now.Config, s.upstreamTools), changed, nil)
}

// build builds the views of next. The served views stay unchanged, also after an error.
func (s *views) build(ctx context.Context, next *current, known map[string]served.Listing, changed map[string]bool, accept func([]view.Problem) error) error {
	before := s.now.Load()
	run := &building{s, map[string]*endpoint{}, map[string]bool{}}
	maps.Copy(run.endpoints, before.endpoints)
	all, err := served.Build(ctx, served.Input{
		Config: next.Config, Listings: known, Changed: changed, Accept: accept,
		Env: view.Env{Log: s.log, Program: next.modules.Program, Python: next.python, Scripts: s.scripts, Keep: s.keep},
		Pre: s.pre, Post: s.post, Limits: next.Limits, Skills: next.skills, Faults: next.folders.Problems, Scopes: s.first.Auth.Scopes, Kept: s.outputs.Tool(),
		Replicated: s.desk != nil && s.desk.sessions != nil,
	}, before.Served, run)
	if err != nil {
		return errors.Join(err, run.undo(ctx))
	}
	next.Served, next.endpoints, next.files = all, run.endpoints, slices.Concat(next.modules.Files(), next.python.Files(), next.folders.Watched)
	run.endpoints = nil // a view lives on and would keep removed endpoints in memory
	maps.DeleteFunc(next.endpoints, func(view string, _ *endpoint) bool { return all.ByName[view] == nil })
	return nil
}

// readSkills reads the folders of skills for next. Skills of the served value wake reread when a file is not as it was listed.
func (s *views) readSkills(next *current) {
	next.skills, next.folders = view.Upstream{}, skills.Read(next.Config.Skills)
	if len(next.Config.Skills) > 0 {
		next.skills = view.Upstream{Server: skills.Server, Listed: true, Tools: served.UpstreamTools(next.folders.Defs, next.folders.Handler(func() { wake(s.reread) }), s.audit.begins, nil)}
	}
}

// keep returns the layer that caches large results.
func (s *views) keep(c view.OutputCache) tool.Middleware {
	return s.outputs.Keep(output.Settings{MinSize: c.MinSize, Preview: c.Preview, TTL: c.TTL})
}

// upstreamTools returns the tools of an upstream's definitions, without the layers of any view. held are the
// definitions that await approval.
func (s *views) upstreamTools(defs []*tool.Def, held map[tool.ID]pins.Held) []*tool.Tool {
	return served.UpstreamTools(defs, s.call, s.audit.begins, held)
}

// call returns the handler that calls the tool of an upstream.
func (s *views) call(def *tool.Def) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := s.pool.Call(ctx, def, call)
		if s.memory != nil && def.ID.Kind == tool.KindTool && err == nil && string(rawjson.Member(json.RawMessage(result), "isError")) != "true" {
			s.memory.Called(call.Session, def.ID)
		}
		return result, err
	}
}

// building is the runtime of the views of one build; served.Runtime describes its methods.
type building struct {
	of        *views
	endpoints map[string]*endpoint // served endpoints and endpoints of new views; nil after the build
	filled    map[string]bool      // views whose index was given new contents
}

// undo closes the endpoints of new views, and gives the indexes of served views their old contents again.
func (b *building) undo(ctx context.Context) (err error) {
	before := b.of.now.Load()
	for name, e := range b.endpoints {
		if before.endpoints[name] == nil {
			err = errors.Join(err, e.close())
		} else if b.filled[name] {
			_, _ = e.root.With(context.WithoutCancel(ctx), before.ByName[name].Contents)
		}
	}
	return err
}

// endpoint returns the endpoint of a view, and opens it if the view is new.
func (b *building) endpoint(view string) *endpoint {
	if e := b.endpoints[view]; e != nil {
		return e
	}
	s := b.of
	e := &endpoint{view: view, root: retrieve.NewCatalog(served.UnlistedResource(b, s.log, view, func(def *tool.Def) *tool.Tool {
		return s.upstreamTools([]*tool.Def{def}, nil)[0]
	}))}
	e.root.LearnTokens(s.tokens)
	if s.desk != nil {
		s.desk.serve(e)
	}
	b.endpoints[view] = e
	return e
}

func (b *building) Now() *served.Served { return b.of.now.Load().Served }

func (b *building) Catalog(ctx context.Context, view string, contents retrieve.Contents) (*retrieve.Catalog, error) {
	root := b.endpoint(view).root
	b.filled[view] = true
	if b.of.stored != nil {
		root.Recall(b.of.stored, b.of.partial)
	}
	return root.With(ctx, contents)
}

func (b *building) Live(view string) served.Live {
	if e := b.endpoint(view); e.live != nil {
		return liveView{e.live, e}
	}
	return nil
}

func (b *building) Retrieval(v *View) retrieve.Settings {
	s := b.of
	return retrieve.Settings{
		Health:  func() retrieve.Health { return s.healthOf(v) },
		Vectors: &s.embedder.queries,
		Misfit:  s.embedder.anew,
		Memory:  s.memory,
		Refused: s.observer.refused(v),
		Unchecked: func(id tool.ID, err error) {
			s.log.Warn("arguments are passed on unchecked", "server", id.Server, "tool", id.Name, "reason", err)
		},
	}
}

func (b *building) Observed(view string, t *tool.Tool) tool.Middleware {
	return b.of.observer.around(view, t)
}

func (b *building) ObservedMeta(v *View, t *tool.Tool) *tool.Tool {
	return b.of.observer.aroundMeta(v, t)
}

func (b *building) Denied(decided policy.Decision) { b.of.denials.count(decided) }

// liveView implements served.Live with the live server of an endpoint.
type liveView struct {
	*register.Live
	of *endpoint
}

// Gate returns the gate of the view.
func (l liveView) Gate() *gate.Gate { return l.of.gate }

// Started waits for the servers of the view that are starting (see endpoint.Started).
func (l liveView) Started(ctx context.Context) *View { return l.of.Started(ctx) }

// Renewed asks servers of the view for new lists (see endpoint.Renewed).
func (l liveView) Renewed(ctx context.Context, name string) *View { return l.of.Renewed(ctx, name) }

// serve gives the endpoint of a new view its live server.
func (d *desk) serve(e *endpoint) {
	kept, err := d.store.Usage().Provisions(context.Background(), e.view)
	if err != nil {
		d.views.log.Warn("the store could not be read: what clients had provisioned is not known", "view", e.view, "error", err)
	}
	called, err := d.store.Usage().Called(context.Background(), e.view)
	if err != nil {
		d.views.log.Warn("the store could not be read: what clients called before is not known", "view", e.view, "error", err)
	}
	e.desk = d
	behind := liveHost{e}
	options := register.Options{
		Version:       d.views.version,
		Hook:          hook.Command{Line: d.views.first.ListChangedExec},
		Relists:       d.relists,
		Called:        called,
		Subscriptions: d.subscriptions,
		Limits:        d.limits,
		Upstreams:     behind,
		Observer:      behind,
		Replicated:    d.sessions != nil,
	}
	e.live = register.New(options, e.shown(), d.views.log)
	gating := gate.Options{Clients: e.live, Store: behind, Kept: kept, Limit: d.provisioned}
	if d.views.others != nil {
		gating.Read = e.provisions
	}
	e.gate = gate.New(gating, e.terms, d.views.log)
	var stored transport.Sessions
	if d.sessions != nil {
		e.sessions = d.sessions.View(e.view, having{e})
		stored = e.sessions
	}
	e.http = transport.NewStreamable(e.live, d.connected, stored, d.views.log)
	e.sse = transport.NewSSE(e.live, d.connected, "/message", d.views.log)
	if e.sessions != nil {
		e.sessions.Serve(e.http)
	}
}
