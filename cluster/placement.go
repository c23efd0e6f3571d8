package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"

	"toolfinch/internal/leeway"
	"toolfinch/store"
)

// PlacedPattern is where a replica serves the servers that run in it alone to the others.
const PlacedPattern = "/servers/{server}/mcp"

// PresentPattern is where a replica says who is there, to those that ask.
const PresentPattern = "GET /replicas"

// Present answers a replica that does not reach the database, or wants to know whether it was heard.
func (l *Leads) Present(w http.ResponseWriter, _ *http.Request) {
	all, _, err := l.Replicas()
	l.Again()
	if err != nil {
		http.Error(w, "this replica does not know: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(all) // an error means that whoever asks is gone
}

// consult takes down who leads which servers, as another replica says that has not lost the database:
// else two would run the process of a server. Those that this one led and nobody leads, as the other's
// configuration may lack them, stay here.
func (l *Leads) consult(ctx context.Context) {
	l.mu.Lock()
	me, replicas, led, why := l.me, l.replicas, l.last, l.lost
	l.mu.Unlock()
	for _, r := range replicas {
		if r.ID == me.ID {
			continue
		}
		all, err := l.present(ctx, r.Address)
		if err != nil {
			continue
		}
		all = slices.DeleteFunc(all, func(r store.Replica) bool { return r.ID == me.ID })
		me.Leads = slices.DeleteFunc(slices.Clone(led), func(server string) bool { _, is := leaderOf(server, all); return is })
		slices.Sort(me.Leads)
		l.mu.Lock()
		l.last = me.Leads // what another has led since does not come back here when that one goes
		l.mu.Unlock()
		there := all
		for _, r := range replicas { // and those that the other does not see, which may have lost the database, too
			if r.ID == me.ID || slices.ContainsFunc(there, func(one store.Replica) bool { return one.ID == r.ID }) {
				continue
			}
			r.Leads = slices.DeleteFunc(slices.Clone(r.Leads), func(server string) bool { _, is := leaderOf(server, there); return is })
			all = append(all, r)
		}
		all = append(all, me)
		sort.Slice(all, func(i, j int) bool { return all[i].ID < all[j].ID })
		l.heard(all, why)
		return
	}
}

// present asks a replica who is there.
func (l *Leads) present(ctx context.Context, address string) (all []store.Replica, err error) {
	if l.hands == nil || address == "" {
		return nil, errors.New("the replica cannot be asked")
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(dialWithin))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/replicas", nil)
	if err != nil {
		return nil, err
	}
	answer, err := l.hands.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the replica at %s does not know who is there: %s", address, answer.Status)
	}
	return all, json.NewDecoder(answer.Body).Decode(&all)
}

// Placed returns the URL at which the leader of a server serves it to other replicas, and
// "" where this one leads it, or did when the database was last heard: its process runs on until
// another replica says that it has one.
func (l *Leads) Placed(server string) (string, error) {
	l.mu.Lock()
	me, leads, replicas, err := l.me.ID, l.leads[server], l.replicas, l.lost
	l.mu.Unlock()
	leader, led := leaderOf(server, replicas)
	switch {
	case leads, led && leader.ID == me:
		return "", nil
	case led && leader.Address == "":
		return "", errors.New("the replica that runs its process says no address: write cluster: for all of them")
	case led:
		return (&url.URL{Scheme: "https", Host: leader.Address, Path: "/servers/" + server + "/mcp", RawPath: "/servers/" + url.PathEscape(server) + "/mcp"}).String(), nil
	case err != nil:
		return "", errors.New("which replica runs its process is not known while the database cannot be reached")
	}
	return "", fmt.Errorf("no replica runs its process now")
}

// Withdrew reports whether the replica that serves a server at a URL, of which Placed knows no
// other, is there still and has said that it is about to end. One that comes back after an outage leads
// nothing for a moment, too, and goes on.
func (l *Leads) Withdrew(at string) bool {
	u, err := url.Parse(at)
	l.mu.Lock()
	defer l.mu.Unlock()
	return err == nil && l.lost == nil && slices.ContainsFunc(l.replicas, func(r store.Replica) bool { return r.Ending && r.Address != "" && r.Address == u.Host })
}

// LedElsewhere reports whether another replica leads a server, as far as is known here.
func (l *Leads) LedElsewhere(server string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	leader, led := leaderOf(server, l.replicas)
	return l.lost == nil && led && !l.leads[server] && leader.ID != l.me.ID
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
