package web

import (
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
	"toolfinch/upstream"
)

// tools counts the view's tools of each server.
func (v View) tools() map[string]int {
	tools := map[string]int{}
	for _, s := range v.Catalog.Servers() {
		tools[s.Name] = 0
	}
	for _, t := range v.Catalog.Tools() {
		if _, ok := tools[t.Def.ID.Server]; ok {
			tools[t.Def.ID.Server]++
		}
	}
	return tools
}

// seen returns a server's state for the view. Malformed definitions are counted only if the whole server is in the view,
// because they may be outside of it.
func (v View) seen(s Upstream, tools int) Upstream {
	s.Tools = tools
	if !v.Whole(s.Name) {
		s.LeftOut, s.Mended = 0, 0
	}
	return s
}

// servers returns the view's servers in configured order.
func (q *request) servers() []Upstream {
	servers := []Upstream{}
	tools := q.view.tools()
	for _, s := range q.backend.Upstreams(q.Context()) {
		if n, ok := tools[s.Name]; ok {
			servers = append(servers, q.view.seen(s, n))
		}
	}
	return servers
}

// pending names the view's servers that were never listed.
func (q *request) pending() (names []string) {
	for _, s := range q.servers() {
		if upstream.State(s.State).Starts() {
			names = append(names, s.Name)
		}
	}
	return names
}

func (s *server) listServers(q *request) (any, error) {
	return struct {
		Servers []Upstream `json:"servers"`
	}{q.servers()}, nil
}

// reconnect reconnects a server of the view. Other servers count as unknown.
func (s *server) reconnect(q *request) (any, error) {
	name := q.PathValue("name")
	q.target = name
	if err := q.fields(); err != nil {
		return nil, err
	}
	servers := q.servers()
	if !slices.ContainsFunc(servers, func(s Upstream) bool { return s.Name == name }) {
		var names []string
		for _, s := range servers {
			names = append(names, s.Name)
		}
		near := nearest.Names(name, names, 3, nearest.Loose)
		if len(near) == 0 {
			return nil, notFound("there is no server %q", rawjson.Clip(name, maxClipped))
		}
		return nil, notFound("there is no server %q; nearest: %s", rawjson.Clip(name, maxClipped), joined(near))
	}
	connected, err := q.backend.Reconnect(q.Context(), name)
	if err != nil {
		return nil, err
	}
	if err := q.renew(); err != nil {
		return nil, err
	}
	return struct {
		Server Upstream `json:"server"`
	}{q.view.seen(connected, q.view.tools()[name])}, nil
}

// reindex lists all servers again and answers with the changes of the view's servers.
func (s *server) reindex(q *request) (any, error) {
	if err := q.fields(); err != nil {
		return nil, err
	}
	rows := []Reindexed{}
	listed := q.backend.Reindex(q.Context())
	if err := q.renew(); err != nil {
		return nil, err
	}
	tools := q.view.tools()
	for _, row := range listed {
		n, ok := tools[row.Server]
		if !ok {
			continue
		}
		row.Tools = n
		if !q.view.Whole(row.Server) {
			row.Differences = nil
		}
		rows = append(rows, row)
	}
	return struct {
		Servers []Reindexed `json:"servers"`
	}{rows}, nil
}

func joined(names []string) string { return strings.Join(names, ", ") }

func clipped(names []string) string { return rawjson.Clip(joined(names), maxClipped) }
