package proxy

import (
	"context"
	"math"
	"slices"
	"sort"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy/replicas"
	"toolfinch/proxy/savings"
	"toolfinch/proxy/web"
	"toolfinch/register"
	"toolfinch/store"
	"toolfinch/upstream"
)

// Bounds of the lists of a status.
const (
	maxShownSessions = 100
	maxShownCalls    = 50
	maxShownErrors   = 20
)

// Status returns the status of the proxy for its owner, with all clients and views. The caller sets PID, Configuration,
// At and Refused.
func (p *Proxy) Status(ctx context.Context) web.Status {
	now := p.now.Load()
	seen := now.Views
	if p.only != "" {
		seen = slices.DeleteFunc(slices.Clone(seen), func(v *View) bool { return v.Name != p.only })
	}
	status := p.status(ctx, now, seen, func(string) bool { return true })
	status.Version, status.Servers, status.Replicas = p.version, []web.ServerStatus{}, p.replicasStatus()
	for _, server := range (rest{p}).Upstreams(ctx) {
		status.Servers = append(status.Servers, web.ServerStatus{Upstream: server, Held: now.Held[server.Name]})
	}
	for _, s := range p.pool.Status() {
		if i := slices.IndexFunc(status.Servers, func(one web.ServerStatus) bool { return one.Name == s.Server }); i >= 0 {
			status.Servers[i].PID, status.Servers[i].Stderr, status.Servers[i].Error = s.PID, s.Stderr, s.Failure.Reason // with the words of the process
		}
	}
	return status
}

// Status returns the status of a view for the caller, with only the caller's own sessions and calls. A named principal
// gets no counts that include other clients.
func (h rest) Status(ctx context.Context, view web.View) web.Status {
	now, seen := h.now.Load(), []*View(nil)
	if v, err := h.reachable(now, view.Name); err == nil { // after an error the view was just removed
		seen = []*View{v.Of(ctx)}
	}
	own := identity.NameOf(ctx)
	status := h.status(ctx, now, seen, func(principal string) bool { return principal == own })
	for i := range status.Errors {
		if one := &status.Errors[i]; one.Outcome == identity.Denied { // a hidden tool looks as if it did not exist
			one.Server, one.Tool, one.Said = "", "", ""
		}
	}
	if own == "" {
		status.Replicas = h.replicasStatus()
	} else {
		status.Calls.Last, status.Tokens, status.Limits = []web.LastCalls{}, web.TokensStatus{}, []web.LimitStatus{}
	}
	return status
}

// status returns the status of some views, with the sessions and calls of the principals that sees accepts.
func (p *Proxy) status(ctx context.Context, now *current, views []*View, sees func(principal string) bool) web.Status {
	status := web.Status{
		Started: p.started, Now: time.Now(), Views: []web.ViewStatus{},
		Errors: []web.CallStatus{}, Search: p.embedder.status(), Limits: []web.LimitStatus{},
		Sessions: web.SessionsStatus{Shown: []web.SessionStatus{}},
	}
	if away := p.store.Trouble(); away != nil {
		status.Store = away.Brief()
	}
	named := map[string]bool{}
	for _, v := range views {
		named[v.Name] = true
		status.Views = append(status.Views, web.ViewStatus{Name: v.Name, Tools: v.Catalog.Len()})
		indexed, embedded := v.Catalog.Indexed(), v.Catalog.Embedded()
		if v.Whole != nil { // the index also has tools outside of this part
			indexed = v.Catalog.Len()
			embedded = min(embedded, indexed)
		}
		status.Search.Indexed, status.Search.Embedded = max(status.Search.Indexed, indexed), max(status.Search.Embedded, embedded)
		for _, c := range now.endpoints[v.Name].live.Connected() {
			if sees(c.Principal) {
				status.Sessions.Shown = append(status.Sessions.Shown, sessionStatus(v.Name, c))
			}
		}
	}
	mine := func(o *telemetry.Operation) bool { return named[o.View] && sees(o.Principal) }
	status.Sessions.Shown = append(status.Sessions.Shown, p.withoutSession(status.Sessions.Shown, mine)...)
	sessions := status.Sessions.Shown
	sort.Slice(sessions, func(i, j int) bool { return sessions[i].Since.After(sessions[j].Since) })
	status.Sessions.All, status.Sessions.Shown = len(sessions), sessions[:min(len(sessions), maxShownSessions)]
	p.addCalls(&status, mine)
	var sum store.Savings
	for _, one := range p.Savings(ctx) {
		if named[one.View] {
			sum = sum.Plus(one)
		}
	}
	status.Tokens.Read, status.Tokens.AllListed = savings.Cost(sum)
	for _, l := range p.bounds() {
		if hits := l.Hits(); hits > 0 {
			status.Limits = append(status.Limits, web.LimitStatus{Name: l.Name(), Used: l.Used(), Max: l.Max(), Hits: hits})
		}
	}
	return status
}

// replicasStatus returns the status of the replicas; nil for a single process.
func (p *Proxy) replicasStatus() *web.ReplicasStatus {
	if p.others == nil {
		return nil
	}
	all, _ := p.others.present()
	s := &web.ReplicasStatus{Differ: replicas.Differences(all), Shown: []web.ReplicaStatus{}}
	if p.desk.sessions != nil {
		here, _, _ := p.desk.sessions.Count()
		s.Sessions = &here
	}
	for _, r := range all {
		s.Shown = append(s.Shown, web.ReplicaStatus{
			Name: r.Name, ID: r.ID, This: r.ID == p.others.me.ID, Version: r.Version, Seconds: int(r.Up.Seconds()), Leads: r.LeadsServers(),
		})
	}
	return s
}

func sessionStatus(view string, c register.Connected) web.SessionStatus {
	s := web.SessionStatus{View: view, Client: c.Client, Era: string(upstream.EraLegacy), Principal: c.Principal, Transport: c.Transport, Since: c.Since}
	if c.Modern {
		s.Era = string(upstream.EraModern)
	}
	return s
}

// withoutSession returns the 2026-07-28 clients that called something in the last hour and have no event stream. They
// have no sessions, so each is shown like a session.
func (p *Proxy) withoutSession(known []web.SessionStatus, sees func(*telemetry.Operation) bool) (all []web.SessionStatus) {
	recently := time.Now().Add(-time.Hour)
	at := map[web.SessionStatus]int{} // by status with a zero Since: index in all; -1 if in known
	for _, s := range known {
		s.Since = time.Time{}
		at[s] = -1
	}
	for _, o := range p.Feed().Recent(math.MaxInt, func(o *telemetry.Operation) bool {
		return o.Era == string(upstream.EraModern) && o.Time.After(recently) && sees(o)
	}) {
		s := web.SessionStatus{View: o.View, Client: o.Client, Era: o.Era, Principal: o.Principal, Transport: o.Transport}
		i, met := at[s]
		if !met {
			i = len(all)
			at[s], all = i, append(all, s)
		}
		if i >= 0 {
			all[i].Since = o.Time // Recent begins with the newest call: the oldest one stays
		}
	}
	return all
}

// addCalls adds the calls that sees accepts, and the counts of all calls.
func (p *Proxy) addCalls(status *web.Status, sees func(*telemetry.Operation) bool) {
	running, _ := p.Feed().InFlight()
	status.Calls.Shown = []web.CallStatus{}
	for _, o := range running {
		if o.Depth > 0 || !sees(&o) {
			continue
		}
		if status.Calls.InFlight++; status.Calls.InFlight <= maxShownCalls {
			o.Duration = status.Now.Sub(o.Time)
			status.Calls.Shown = append(status.Calls.Shown, callStatus(&o))
		}
	}
	for _, o := range p.Feed().Recent(maxShownErrors, func(o *telemetry.Operation) bool {
		return o.Depth == 0 && o.Outcome != identity.Success && o.Outcome != identity.Cancelled && sees(o)
	}) {
		status.Errors = append(status.Errors, callStatus(o))
	}
	hour := p.Feed().Hour(status.Now)
	for _, minutes := range []int{5, len(hour)} {
		last := web.LastCalls{Minutes: minutes}
		for _, m := range hour[len(hour)-minutes:] {
			last.Calls += m.All
			last.Failed += m.Failed() - m.Outcomes[identity.Cancelled]
		}
		status.Calls.Last = append(status.Calls.Last, last)
	}
}

func callStatus(o *telemetry.Operation) web.CallStatus {
	return web.CallStatus{
		Kind: o.Kind, Began: o.Time, View: o.View, Server: o.Server, Tool: o.Tool, Name: o.Name, Client: o.Client, Principal: o.Principal,
		MS: float64(o.Duration.Microseconds()) / 1000, Outcome: o.Outcome, Reason: o.Reason, Said: o.Said,
	}
}

// Feed returns the running and the last operations.
func (p *Proxy) Feed() *telemetry.Feed { return p.observer.feed }

// Savings returns, by view, the tokens that the clients' models have read since Open, and the tokens that they would
// have read with every tool listed. Day is empty. Savings first counts new calls, which takes up to 0.4 s under load.
func (p *Proxy) Savings(ctx context.Context) []store.Savings { return p.desk.meter.Totals(ctx) }

// bounds returns the limits of everything that clients can make grow.
func (p *Proxy) bounds() []*limit.Limit {
	return slices.Concat([]*limit.Limit{p.connections.bound}, p.desk.connected.Limits(), p.desk.limits.All(), []*limit.Limit{p.desk.provisioned}, p.desk.subscriptions.Limits(), p.desk.entrance.Limits(), p.pool.Limits(), p.logins.Limits(), p.now.Load().Limits.Limits())
}
