package proxy

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy/web/page"
)

const (
	seenFor        = time.Hour
	maxSeenClients = 20
)

// Clients returns the user's clients that are connected or were in the last hour, the last to call first.
func (h paged) Clients(ctx context.Context) []page.SeenClient {
	own, owner := identity.NameOf(ctx), h.owner(ctx)
	mine := func(principal string) bool { return owner || own != "" && principal == own }
	var all []*page.SeenClient
	by := map[clientKey]*page.SeenClient{}
	of := func(key clientKey) *page.SeenClient {
		if by[key] == nil {
			by[key] = &page.SeenClient{Name: key.name, Principal: key.principal, Transport: key.transport}
			all = append(all, by[key])
		}
		return by[key]
	}
	for _, e := range h.now.Load().endpoints {
		for _, c := range e.live.Connected() {
			if !mine(c.Principal) {
				continue
			}
			one := of(clientKey{c.Client, c.Principal, c.Transport})
			one.Sessions++
			if one.Since.IsZero() || c.Since.Before(one.Since) {
				one.Since = c.Since
			}
		}
	}
	lately := time.Now().Add(-seenFor)
	for _, o := range h.Feed().Recent(math.MaxInt, func(o *telemetry.Operation) bool {
		return o.Depth == 0 && ofClients(o) && mine(o.Principal) && o.Time.After(lately)
	}) {
		one := of(clientKey{o.Client, o.Principal, o.Transport})
		if one.Calls++; one.Calls == 1 { // Recent begins with the latest
			one.Last, one.N = o.Time, o.N
			if seen, ok := h.Sees(ctx, o); ok {
				one.LastCall = cmp.Or(seen.Tool, seen.Name)
			}
		}
		if one.Sessions == 0 {
			one.Since = o.Time
		}
	}
	for key, at := range h.observer.left.since(lately) {
		if !mine(key.principal) {
			continue
		}
		if one := of(key); one.Sessions == 0 && at.After(one.Last) {
			one.Left = at
		}
	}
	slices.SortStableFunc(all, func(a, b *page.SeenClient) int {
		return cmp.Or(-cmp.Compare(min(a.Sessions, 1), min(b.Sessions, 1)), b.Last.Compare(a.Last), cmp.Compare(a.Name, b.Name))
	})
	seen := make([]page.SeenClient, min(len(all), maxSeenClients))
	for i := range seen {
		seen[i] = *all[i]
	}
	return seen
}

// ofClients reports whether an operation came from a client over MCP or REST, and not from the page or a command.
func ofClients(o *telemetry.Operation) bool {
	switch o.Transport {
	case identity.TransportStdio, identity.TransportHTTP, identity.TransportSSE, identity.TransportREST:
		return true
	}
	return false
}
