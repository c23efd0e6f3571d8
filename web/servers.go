package web

import (
	"slices"
	"strings"

	"toolfinch/nearest"
)

// has reports whether the view has something of a server.
func (v View) has(name string) bool {
	for _, s := range v.Catalog.Servers() {
		if s.Name == name {
			return true
		}
	}
	return false
}

// servers are those of the view, in configured order.
func (q *request) servers() []Server {
	servers := []Server{}
	for _, s := range q.house.Servers() {
		if q.view.has(s.Name) {
			servers = append(servers, s)
		}
	}
	return servers
}

func (s *server) listServers(q *request) (any, error) {
	return struct {
		Servers []Server `json:"servers"`
	}{q.servers()}, nil
}

// reconnect is for the servers of the view alone: to others it leads nowhere.
func (s *server) reconnect(q *request) (any, error) {
	name := q.PathValue("name")
	q.target = name
	if err := q.fields(); err != nil {
		return nil, err
	}
	servers := q.servers()
	if !slices.ContainsFunc(servers, func(s Server) bool { return s.Name == name }) {
		var names []string
		for _, s := range servers {
			names = append(names, s.Name)
		}
		near := nearest.Names(name, names, 3, nearest.Loose)
		if len(near) == 0 {
			return nil, notFound("there is no server %q", clip(name))
		}
		return nil, notFound("there is no server %q; nearest: %s", clip(name), joined(near))
	}
	connected, err := q.house.Reconnect(q.Context(), name)
	if err != nil {
		return nil, err
	}
	return struct {
		Server Server `json:"server"`
	}{connected}, nil
}

// reindex lists all servers anew and tells of those of the view.
func (s *server) reindex(q *request) (any, error) {
	if err := q.fields(); err != nil {
		return nil, err
	}
	rows := []Reindexed{}
	for _, row := range q.house.Reindex(q.Context()) {
		if q.view.has(row.Server) {
			rows = append(rows, row)
		}
	}
	return struct {
		Servers []Reindexed `json:"servers"`
	}{rows}, nil
}

func joined(names []string) string { return strings.Join(names, ", ") }

func clipped(names []string) string { return clip(joined(names)) }
