package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/proxy/web"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
	"toolfinch/view"
)

// rest implements the backend of the REST API.
type rest struct{ *Proxy }

// View returns the caller's part of a view that clients reach over HTTP.
func (h rest) View(ctx context.Context, name string) (web.View, error) {
	now := h.now.Load()
	v, err := h.reachable(now, name)
	if err != nil {
		return web.View{}, err
	}
	v = v.Of(ctx)
	e, config, settings := now.endpoints[v.Name], now.Config, v.Settings
	var started func(ctx context.Context)
	if len(v.Starting) > 0 {
		started = func(ctx context.Context) { e.Started(ctx) }
	}
	return web.View{
		Name: v.Name, Catalog: v.Catalog, Retriever: v.Retriever, Sessions: e.live, Started: started,
		Whole: func(server string) bool {
			return settings.IncludeAll && len(settings.Exclude) == 0 && !leavesOut(settings.Tools, server) && !leavesOut(config.Tools, server)
		},
	}, nil
}

// leavesOut reports whether a tool of a server is disabled.
func leavesOut(servers []view.UpstreamTools, server string) bool {
	return slices.ContainsFunc(servers, func(s view.UpstreamTools) bool {
		return s.Name == server && slices.ContainsFunc(s.Tools, func(o view.Override) bool { return o.Disabled })
	})
}

// Upstreams returns the servers that the caller may use, in the order of the configuration.
func (h rest) Upstreams(ctx context.Context) []web.Upstream {
	now := h.now.Load()
	config := now.Config
	all := []web.Upstream{}
	for _, s := range h.pool.Status() {
		if !h.serves(s.Server) || config.Policies != nil && !now.Shows(ctx, s.Server) {
			continue
		}
		server := web.Upstream{
			Name: s.Server, State: string(s.State), Since: s.Since, Era: string(s.Era), Transport: string(s.Transport),
			Tools: s.Tools, LeftOut: s.LeftOut, Mended: s.Mended, Restarts: s.Restarts, Dropped: s.Dropped, Description: described(config, s.Server),
			Error: s.Failure.Brief(), Failed: s.Failure.At,
		}
		all = append(all, server)
	}
	return all
}

// serves reports whether an upstream is served. With WithView, only the servers of that view are.
func (h rest) serves(server string) bool { return h.only == "" || h.main().Has(server) }

// described returns the description of a server; "" if the server was just removed.
func described(config *configs.Config, server string) string {
	if s := config.Server(server); s != nil {
		return s.Description
	}
	return ""
}

// Reconnect connects to an upstream again and lists it.
func (h rest) Reconnect(ctx context.Context, name string) (web.Upstream, error) {
	if !h.serves(name) {
		return web.Upstream{}, fmt.Errorf("%w: %q", web.ErrNoServer, name)
	}
	rows, err := h.relist(ctx, []string{name}, h.pool.Reconnect)
	switch {
	case err != nil:
		return web.Upstream{}, err
	case errors.Is(rows[0].Err, upstream.ErrUnknownServer):
		return web.Upstream{}, fmt.Errorf("%w: %q", web.ErrNoServer, name)
	case rows[0].Err != nil:
		if _, ofClient := identity.PartyOf(ctx); ofClient {
			return web.Upstream{}, upstream.Brief(rows[0].Err)
		}
		return web.Upstream{}, rows[0].Err
	}
	servers := h.Upstreams(ctx)
	if i := slices.IndexFunc(servers, func(s web.Upstream) bool { return s.Name == name }); i >= 0 {
		return servers[i], nil
	}
	return web.Upstream{}, fmt.Errorf("%w: %q", web.ErrNoServer, name) // the server was just removed
}

// Reindex lists all upstreams again. Concurrent calls share one run and its answer.
func (h rest) Reindex(ctx context.Context) []web.Reindexed {
	shared := h.reindexing.DoChan("", func() (any, error) { return h.reindex(context.WithoutCancel(ctx)), nil })
	select {
	case done := <-shared:
		return slices.Clone(done.Val.([]web.Reindexed))
	case <-ctx.Done():
		return nil
	}
}

func (h rest) reindex(ctx context.Context) []web.Reindexed {
	var names []string
	for _, s := range h.pool.Health() {
		if h.serves(s.Server) {
			names = append(names, s.Server)
		}
	}
	rows, err := h.relist(ctx, names, h.pool.Refresh)
	reindexed := make([]web.Reindexed, len(names))
	for i, name := range names {
		reindexed[i] = web.Reindexed{Server: name, Differences: &web.Differences{}}
		switch {
		case err != nil:
			reindexed[i].Error = err.Error()
		case rows[i].Err != nil:
			reindexed[i].Error = upstream.Reason(rows[i].Err)
		default:
			diff := rows[i].Diff
			reindexed[i].Differences = &web.Differences{Added: len(diff.Added), Removed: len(diff.Removed), Changed: len(diff.Changed)}
			reindexed[i].Tools = diff.Total
		}
	}
	return reindexed
}

// Held returns the held definitions that the caller may use, of each server for which of returns true.
func (h rest) Held(ctx context.Context, of func(server string) bool) ([]pins.Report, error) {
	all, err := h.pins(ctx, of)
	return all.Reports, err
}

func (h rest) pins(ctx context.Context, of func(server string) bool) (Pins, error) {
	now := h.now.Load()
	may := now.MayDecide(ctx)
	return ReadPins(ctx, h.store, now.Config, func(id tool.ID, raw json.RawMessage) bool {
		return h.serves(id.Server) && of(id.Server) && may(id, raw)
	})
}

// mayWhole returns an error unless the caller may use every listed and every approved definition of the servers of
// reports.
func (h rest) mayWhole(ctx context.Context, reports []pins.Report) error {
	may := h.now.Load().MayDecide(ctx)
	decided := map[string]bool{}
	for _, r := range reports {
		decided[r.ID.Server] = true
	}
	whole := true
	for server := range decided {
		listed, err := h.store.Listed(ctx, server)
		if err != nil {
			return err
		}
		if listed == nil {
			return fmt.Errorf("%w: %q", web.ErrNoServer, server) // the server was just removed
		}
		for _, def := range listed.Defs {
			whole = whole && may(def.ID, def.Raw)
		}
		for _, u := range listed.Unpinned {
			whole = whole && (u.Approved == nil || may(u.ID, u.Approved))
		}
		whole = whole && h.serves(server)
	}
	if !whole {
		return fmt.Errorf("of its server there is more than you may use: %w", web.ErrOwner)
	}
	return nil
}

// Decide approves and rejects definitions, and returns once the result is served.
func (h rest) Decide(ctx context.Context, approve, reject []pins.Report) error {
	if err := h.mayWhole(ctx, slices.Concat(approve, reject)); err != nil {
		return err
	}
	for i, reports := range [][]pins.Report{approve, reject} {
		if len(reports) == 0 {
			continue
		}
		err := Decide(ctx, h.store.Pins(), i == 0, reports, h.observer.record)
		if errors.Is(err, store.ErrStale) {
			return fmt.Errorf("%w: look at it once more", web.ErrStale)
		}
		if err != nil {
			return err
		}
	}
	return h.loop.do(ctx, h.loop.decisions)
}

// Observe observes the work of a request that is no tool call. The caller passes the result of the work to done.
func (h rest) Observe(ctx context.Context, e identity.Event, call *tool.Call) (_ context.Context, done func(error), err error) {
	if err := h.audit.log.Admit(); err != nil {
		return ctx, nil, &web.Unavailable{Err: err}
	}
	about := subject{kind: e.Kind, view: e.View}
	began := about.operation(ctx, call)
	began.Name, began.Meta = e.Tool, e.Tool != ""
	ctx, running := h.observer.feed.Begin(ctx, began)
	return ctx, func(err error) {
		if e.Outcome = identity.Success; err != nil {
			e.Outcome, e.Reason = identity.Failed, err.Error()
		}
		h.observer.finished(ctx, running.End(e.Outcome, e.Reason, 0))
		h.audit.log.Record(ctx, e)
	}, nil
}

// Permit returns an error if the caller may not change servers. To decide about definitions, the caller must have
// proved its identity, and configured scopes must allow it: a model must not approve the definitions it reads.
func (h rest) Permit(ctx context.Context, level inbound.Level, operation string) error {
	auth, who := h.first.Auth, identity.PrincipalOf(ctx)
	if level == inbound.Destructive {
		switch {
		case auth.Mode != inbound.Proof || who == nil:
			return fmt.Errorf("nobody has proved here who decides this: %w", web.ErrOwner)
		case len(auth.Scopes) > 0 && !auth.Scopes.Have(level):
			return fmt.Errorf("no scope allows this: %w", web.ErrOwner)
		}
	}
	return auth.Scopes.Check(who, level, operation)
}

// relist asks servers in parallel and returns once their new lists are served. It needs Run. The result has the order
// of servers.
func (h rest) relist(ctx context.Context, servers []string, ask func(ctx context.Context, server string) upstream.Change) ([]Refreshed, error) {
	rows := make([]Refreshed, len(servers))
	changes := make([]upstream.Change, len(servers))
	each(ctx, servers, ask, func(i int, took time.Duration, change upstream.Change) {
		rows[i] = Refreshed{Server: servers[i], Took: took, Err: change.Err, Faults: change.Faults}
		changes[i] = change
	})
	var diffs []store.Diff
	if err := h.loop.do(ctx, func(ctx context.Context) { diffs = h.loop.take(ctx, changes) }); err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	for i := range rows {
		rows[i].Diff = diffs[i]
	}
	return rows, nil
}

// reachable returns a view that clients reach. With WithView, that is only the one view.
func (p *Proxy) reachable(now *current, name string) (*View, error) {
	v, err := p.viewIn(now, name)
	if p.only != "" && (err != nil || v.Name != p.only) { // hides even why other views are left out
		err = fmt.Errorf("%w: %q", ErrNoView, name)
	}
	return v, err
}
