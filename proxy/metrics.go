package proxy

import (
	"context"
	"net/http"
	"slices"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
	"toolfinch/store"
	"toolfinch/trust/inbound"
	"toolfinch/upstream"
)

// Metrics returns all metrics in the format telemetry.TextType. A caller gets only the metrics of views, servers and
// tools that it may use.
func (h rest) Metrics(ctx context.Context) ([]byte, error) {
	now, only := h.now.Load(), h.only
	if p := identity.PrincipalOf(ctx); p != nil && p.View != "" {
		only = p.View
	}
	views := slices.DeleteFunc(slices.Clone(now.Views), func(v *View) bool { return only != "" && v.Name != only })
	var shows func(view, server, tool string) bool
	if _, ofClient := identity.PartyOf(ctx); only != "" || ofClient && now.Config.Policies != nil {
		shows = func(view, server, name string) bool {
			return (view == "" || only == "" || view == only) && (server == "" || slices.ContainsFunc(views, func(v *View) bool { return counts(v.Of(ctx), server, name) }))
		}
	}
	return h.observer.metrics.Text(slices.Concat(h.viewMetrics(ctx), h.serverMetrics(ctx), h.searchMetrics(), h.dropMetrics(), h.gateMetrics(), h.limitMetrics(), h.auditMetrics(), h.httpMetrics(), h.replicaMetrics()), shows)
}

// counts reports whether a view has a server and, unless name is "" or telemetry.Other, the server's tool or prompt of
// that name.
func counts(v *View, server, name string) bool {
	if !v.Has(server) || name == "" || name == telemetry.Other {
		return v.Has(server)
	}
	_, err := v.Catalog.Find(server + "." + name)
	_, prompt := v.Catalog.Prompt(server + "." + name)
	return err == nil || prompt
}

// one returns a family with one value and no labels.
func one(name, help string, counter bool, value int64) telemetry.Family {
	return telemetry.Family{Name: name, Help: help, Counter: counter, Samples: []telemetry.Sample{{Value: float64(value)}}}
}

// add adds a value to a family.
func add(f *telemetry.Family, value int64, labels ...string) {
	f.Samples = append(f.Samples, telemetry.Sample{Value: float64(value), Labels: labels})
}

// viewMetrics returns metrics of views, and of the tokens that their clients read.
func (h rest) viewMetrics(ctx context.Context) []telemetry.Family {
	counted := map[string]store.Savings{}
	for _, sum := range h.Proxy.Savings(ctx) {
		counted[sum.View] = sum
	}
	byView, byKind := []string{"view"}, []string{"view", "kind"}
	tools := telemetry.Family{Name: "toolfinch_tools", Help: "Tools that can be found in a view now.", Labels: byView}
	documents := telemetry.Family{Name: "toolfinch_index_documents", Help: "Tools, prompts and resources in the index of a view.", Labels: byView}
	vectors := telemetry.Family{Name: "toolfinch_index_vectors", Help: "How many of these have a vector; with an embedder the others wait for theirs, or are refused.", Labels: byView}
	sessions := telemetry.Family{Name: "toolfinch_sessions_total", Help: "Sessions of clients since the start.", Counter: true, Labels: byView}
	steps := telemetry.Family{Name: "toolfinch_steps_total", Help: "Steps of models that have read a list since the start (made), and those with every tool listed (all).", Counter: true, Labels: byKind}
	changes := telemetry.Family{Name: "toolfinch_list_changes_total", Help: "Lists that changed between two steps of a session since the start: at their end (appended) or inside (changed).", Counter: true, Labels: byKind}
	tokens := telemetry.Family{Name: "toolfinch_tokens_total", Help: "Tokens that models have read since the start, as toolfinch savings accounts for them.", Counter: true, Labels: byKind}
	for _, v := range h.now.Load().Views {
		if h.only != "" && v.Name != h.only {
			continue
		}
		c, name := counted[v.Name], v.Name
		h.observer.metrics.View(name)
		n, of := v.Catalog.Embedded(), v.Catalog.Indexed()
		add(&tools, int64(v.Of(ctx).Catalog.Len()), name)
		add(&documents, int64(of), name)
		add(&vectors, int64(n), name)
		add(&sessions, c.Sessions, name)
		add(&steps, c.Steps, name, "made")
		add(&steps, c.AllSteps, name, "all")
		add(&changes, c.Appended, name, "appended")
		add(&changes, c.Changed, name, "changed")
		for _, kind := range []struct {
			name string
			n    int64
		}{
			{"listed", c.Listed}, {"relisted", c.Relisted}, {"answers", c.Answers}, {"results", c.Results},
			{"reread", c.Reread}, {"cached", c.Cached}, {"all_listed", c.AllListed}, {"all_cached", c.AllCached},
		} {
			add(&tokens, kind.n, name, kind.name)
		}
	}
	return []telemetry.Family{tools, documents, vectors, sessions, steps, changes, tokens}
}

// serverMetrics returns metrics of the servers that the caller may use.
func (h rest) serverMetrics(ctx context.Context) []telemetry.Family {
	byServer := []string{"server"}
	states := telemetry.Family{Name: "toolfinch_servers", Help: "Servers by the state that the last exchange with them left.", Labels: []string{"state"}}
	up := telemetry.Family{Name: "toolfinch_server_up", Help: "Whether the last exchange with a server went well.", Labels: byServer}
	reconnects := telemetry.Family{Name: "toolfinch_server_reconnects_total", Help: "Connections to a server that took the place of one that had ended.", Counter: true, Labels: byServer}
	dropped := telemetry.Family{Name: "toolfinch_dropped_notifications_total", Help: "Notifications about calls that clients did not get: too long, or read too slowly.", Counter: true, Labels: byServer}
	count := map[string]int64{}
	for _, s := range h.Upstreams(ctx) {
		count[s.State]++
		ready := int64(0)
		if s.State == string(upstream.StateReady) {
			ready = 1
		}
		add(&up, ready, s.Name)
		add(&reconnects, int64(s.Restarts), s.Name)
		add(&dropped, s.Dropped, s.Name)
	}
	for _, state := range []upstream.State{upstream.StatePending, upstream.StateQueued, upstream.StateDownloading, upstream.StateReady, upstream.StateLogin, upstream.StateFailed} {
		add(&states, count[string(state)], string(state))
	}
	return []telemetry.Family{states, up, reconnects, dropped}
}

// searchMetrics returns metrics of the embedder.
func (h rest) searchMetrics() []telemetry.Family {
	up := int64(0)
	if s := h.embedder.status(); s.Model != "" && s.Reason == "" {
		up = 1
	}
	failed := telemetry.Family{Name: "toolfinch_embedder_errors_total", Help: "What the embedder failed to do since the start: to embed a query, in time, or definitions that had no vector.", Counter: true, Labels: []string{"of"}}
	add(&failed, h.embedder.queries.Failed(), "queries")
	add(&failed, h.embedder.failed.Load(), "definitions")
	return []telemetry.Family{one("toolfinch_embedder_up", "Whether queries are embedded, so that search goes by meaning, too. 0 also where words alone are meant to decide.", false, up), failed}
}

// dropMetrics returns metrics of dropped log lines and spans.
func (h rest) dropMetrics() []telemetry.Family {
	dropped := telemetry.Family{Name: "toolfinch_dropped_total", Help: "What nobody took in time since the start: lines of the log, and spans that were not delivered.", Counter: true, Labels: []string{"what"}}
	add(&dropped, h.logLost(), "log_lines")
	add(&dropped, h.traces.Lost(), "spans")
	return []telemetry.Family{dropped}
}

// gateMetrics returns metrics of accepted and refused requests, and of denials by policies.
func (h rest) gateMetrics() []telemetry.Family {
	counted := func(f telemetry.Family, reasons []inbound.Reason) telemetry.Family {
		f.Counter = true
		for i, n := range h.desk.entrance.Counts(reasons) {
			add(&f, n, string(reasons[i]))
		}
		return f
	}
	denials := telemetry.Family{Name: "toolfinch_denials_total", Help: "Calls, prompts and reads that policies denied since the start, by the policy that did; by none where no policy permits them.", Counter: true, Labels: []string{"policy"}}
	h.denials.each(func(policy string, n int64) { add(&denials, n, policy) })
	return []telemetry.Family{
		counted(telemetry.Family{Name: "toolfinch_requests_accepted_total", Help: "Requests over HTTP that were let in since the start, by what proved who makes them.", Labels: []string{"by"}}, inbound.Accepted),
		counted(telemetry.Family{Name: "toolfinch_requests_refused_total", Help: "Requests over HTTP that were not let in since the start, or lacked a scope.", Labels: []string{"reason"}}, inbound.Refused),
		denials,
	}
}

// limitMetrics returns metrics of the limits of clients, and of calls in flight.
func (h rest) limitMetrics() []telemetry.Family {
	byLimit := []string{"limit"}
	size := telemetry.Family{Name: "toolfinch_limit", Help: "How much there may be at once of what clients can make grow, by limit.", Labels: byLimit}
	used := telemetry.Family{Name: "toolfinch_limit_used", Help: "How much of it there is now.", Labels: byLimit}
	hits := telemetry.Family{Name: "toolfinch_limit_hits_total", Help: "How often the limit was reached since the start.", Counter: true, Labels: byLimit}
	for _, l := range h.bounds() {
		add(&size, l.Max(), l.Name())
		add(&used, l.Used(), l.Name())
		add(&hits, l.Hits(), l.Name())
	}
	_, running := h.observer.feed.InFlight()
	return []telemetry.Family{size, used, hits, one("toolfinch_calls_in_flight", "Calls, reads, prompts and retrievals that run now.", false, int64(running))}
}

// auditMetrics returns metrics of the audit log; nil without an audit log.
func (h rest) auditMetrics() []telemetry.Family {
	if h.audit.log == nil {
		return nil
	}
	counts := h.audit.log.Counts()
	return []telemetry.Family{
		one("toolfinch_audit_lines_total", "Lines that the audit log has written since the start.", true, counts.Written),
		one("toolfinch_audit_errors_total", "Writes of the audit log that failed since the start.", true, counts.Failed),
		one("toolfinch_audit_lost_total", "Lines that were lost because they could not be written, since the start.", true, counts.Lost),
	}
}

// replicaMetrics returns metrics of the replicas and their sessions; nil for a single process.
func (h rest) replicaMetrics() []telemetry.Family {
	if h.others == nil {
		return nil
	}
	all, leads := h.others.present()
	up := int64(1)
	if h.store.Health() != nil {
		up = 0
	}
	families := []telemetry.Family{
		one("toolfinch_database_up", "Whether PostgreSQL answers.", false, up),
		one("toolfinch_replicas", "Replicas that were there when PostgreSQL last answered, with this one.", false, int64(len(all))),
		one("toolfinch_servers_led", "Servers that this replica leads.", false, int64(len(leads))),
	}
	if h.desk.sessions == nil {
		return families
	}
	here, taken, lost := h.desk.sessions.Count()
	return append(families,
		one("toolfinch_replica_sessions", "Sessions that this replica serves.", false, int64(here)),
		one("toolfinch_sessions_taken_over_total", "Sessions that this replica has taken over from others since the start.", true, taken),
		one("toolfinch_sessions_lost_total", "Sessions that others have taken over from this replica since the start.", true, lost),
	)
}

// httpMetrics returns metrics of this program and its HTTP connections.
func (h rest) httpMetrics() []telemetry.Family {
	build := telemetry.Family{Name: "toolfinch_build_info", Help: "1, of the version that runs.", Labels: []string{"version"}}
	add(&build, 1, h.version)
	return append(h.connections.metrics(), build)
}

func (c *connections) metrics() []telemetry.Family {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := telemetry.Family{Name: "toolfinch_connections", Help: "Open connections of clients over HTTP: idle while nothing is asked over them.", Labels: []string{"state"}}
	count := map[http.ConnState]int64{}
	for _, one := range c.open {
		count[one.state]++
	}
	for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle} {
		add(&open, count[state], state.String())
	}
	return []telemetry.Family{
		open,
		one("toolfinch_connections_idle_closed_total", "Connections that were closed while idle, by clients or after the limit.", true, c.idled),
		one("toolfinch_connections_idle_limit_seconds", "After how long an idle connection is closed (http_limits.idle_time).", false, int64(c.limit/time.Second)),
	}
}
