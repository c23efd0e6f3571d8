package cluster

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"toolfinch/store"
)

// PlacedPattern is where a replica serves the servers that run in it alone to the others.
const PlacedPattern = "/servers/{server}/mcp"

// Reach returns what sends requests to other replicas.
func Reach(secure *tls.Config) http.RoundTripper { return newHands(secure) }

// Placed returns the URL at which the leader of a server serves it to other replicas, and
// "" where this one leads it, or did when the database was last heard: its process runs on.
func (l *Leads) Placed(server string) (string, error) {
	l.mu.Lock()
	me, leads, replicas, err := l.me.ID, l.leads[server], l.replicas, l.lost
	l.mu.Unlock()
	leader, led := leaderOf(server, replicas)
	switch {
	case leads, led && leader.ID == me:
		return "", nil
	case led && leader.Address == "":
		return "", fmt.Errorf("the replica %s, which runs its process, says no address: write cluster: for all of them", leader.Name)
	case led:
		return (&url.URL{Scheme: "https", Host: leader.Address, Path: "/servers/" + server + "/mcp", RawPath: "/servers/" + url.PathEscape(server) + "/mcp"}).String(), nil
	case err != nil:
		return "", fmt.Errorf("which replica runs its process is not known: %w", err)
	}
	return "", fmt.Errorf("no replica runs its process now")
}

// Withdrew reports whether the replica that serves a server at a URL, of which Placed knows no
// other, is there still: it has said that it is about to end.
func (l *Leads) Withdrew(at string) bool {
	u, err := url.Parse(at)
	l.mu.Lock()
	defer l.mu.Unlock()
	return err == nil && l.lost == nil && slices.ContainsFunc(l.replicas, func(r store.Replica) bool { return r.Address != "" && r.Address == u.Host })
}

func leaderOf(server string, replicas []store.Replica) (store.Replica, bool) {
	for _, r := range replicas {
		for _, led := range r.Leads {
			if led == server {
				return r, true
			}
		}
	}
	return store.Replica{}, false
}
