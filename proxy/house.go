package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"toolfinch/configs"
	"toolfinch/limit"
	"toolfinch/register"
	"toolfinch/store"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/web"
)

// house is the proxy as the REST API knows it.
type house struct{ *Proxy }

// View returns a view that clients reach over HTTP.
func (h house) View(name string) (web.View, error) {
	v, err := h.reachable(name)
	if err != nil {
		return web.View{}, err
	}
	config, settings := h.served.Load().config, v.settings
	return web.View{
		Name: v.name, Catalog: v.catalog, Retriever: v.retriever, Live: v.live,
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

// Servers are the upstreams of what is served, in the order of the configuration.
func (h house) Servers() []web.Server {
	config := h.served.Load().config
	all := []web.Server{}
	for _, s := range h.pool.Status() {
		if !h.serves(s.Server) {
			continue
		}
		server := web.Server{
			Name: s.Server, State: string(s.State), Since: s.Since, Era: string(s.Era), Transport: string(s.Transport),
			Tools: s.Tools, LeftOut: s.LeftOut, Mended: s.Mended, Restarts: s.Restarts, Dropped: s.Dropped, Description: described(config, s.Server),
		}
		if s.Err != nil {
			server.Error = s.Err.Error()
		}
		all = append(all, server)
	}
	return all
}

// serves reports whether something of an upstream is served. Beside a view that
// is served alone there is nothing else.
func (h house) serves(server string) bool { return h.options.only == "" || h.main().has(server) }

func described(config *configs.Config, server string) string {
	i := slices.IndexFunc(config.Servers, func(s upstream.Settings) bool { return s.Name == server })
	if i < 0 {
		return "" // it has just left
	}
	return config.Servers[i].Description
}

// Reconnect connects an upstream anew and lists it.
func (h house) Reconnect(ctx context.Context, name string) (web.Server, error) {
	if !h.serves(name) {
		return web.Server{}, fmt.Errorf("%w: %q", web.ErrNoServer, name)
	}
	rows, err := h.relist(ctx, []string{name}, h.pool.Reconnect)
	switch {
	case err != nil:
		return web.Server{}, err
	case errors.Is(rows[0].Err, upstream.ErrUnknownServer):
		return web.Server{}, fmt.Errorf("%w: %q", web.ErrNoServer, name)
	case rows[0].Err != nil:
		return web.Server{}, rows[0].Err
	}
	servers := h.Servers()
	if i := slices.IndexFunc(servers, func(s web.Server) bool { return s.Name == name }); i >= 0 {
		return servers[i], nil
	}
	return web.Server{}, fmt.Errorf("%w: %q", web.ErrNoServer, name) // it has just left
}

// Reindex lists all upstreams anew. Who asks meanwhile gets the same answer.
func (h house) Reindex(ctx context.Context) []web.Reindexed {
	shared := h.reindexing.DoChan("", func() (any, error) { return h.reindex(context.WithoutCancel(ctx)), nil })
	select {
	case done := <-shared:
		return slices.Clone(done.Val.([]web.Reindexed))
	case <-ctx.Done():
		return nil
	}
}

func (h house) reindex(ctx context.Context) []web.Reindexed {
	var names []string
	for _, s := range h.Servers() {
		names = append(names, s.Name)
	}
	rows, err := h.relist(ctx, names, h.pool.Refresh)
	reindexed := make([]web.Reindexed, len(names))
	for i, name := range names {
		reindexed[i] = web.Reindexed{Server: name, Differences: &web.Differences{}}
		switch {
		case err != nil:
			reindexed[i].Error = err.Error()
		case rows[i].Err != nil:
			reindexed[i].Error = rows[i].Err.Error()
		default:
			diff := rows[i].Diff
			reindexed[i].Differences = &web.Differences{Added: len(diff.Added), Removed: len(diff.Removed), Changed: len(diff.Changed)}
			reindexed[i].Tools = diff.Total
		}
	}
	return reindexed
}

// Savings is what retrieval saved since the start, by view.
func (h house) Savings(ctx context.Context) []web.Saved {
	counted := map[string]store.Savings{}
	for _, sum := range h.Proxy.Savings(ctx) {
		counted[sum.View] = sum
	}
	var saved []web.Saved
	for _, v := range h.served.Load().views {
		if h.options.only == "" || v.name == h.options.only {
			c := counted[v.name]
			saved = append(saved, web.Saved{View: v.name, Sessions: c.Sessions, Retrievals: c.Retrievals, Full: c.Full, Listed: c.Listed, Answers: c.Answers})
		}
	}
	return saved
}

// Limits are those of what clients can make grow.
func (h house) Limits() []*limit.Limit {
	return slices.Concat(h.connected.Limits(), h.limits.All(), []*limit.Limit{h.provisioned}, h.subscriptions.Limits(), h.pool.Limits())
}

// Principal is who the trusted reverse proxy says made a request.
func (h house) Principal(r *http.Request) string {
	return register.PrincipalOf(r.Header, h.first.PrincipalHeader)
}
