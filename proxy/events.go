package proxy

import (
	"context"
	"encoding/json"
	"errors"

	"toolfinch/register"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// eventsOf returns the handlers that pass messages of upstreams to clients.
func eventsOf(served func() *current, o *observer) upstream.Events {
	return upstream.Events{
		Started: o.spawned,
		Updated: func(server, uri string, params json.RawMessage) {
			id := tool.ID{Server: server, Name: uri, Kind: tool.KindResource}
			now := served()
			for name, e := range now.endpoints {
				if !now.ByName[name].Catalog.Excludes(id) { // Live.Updated checks what each party may read
					e.live.Updated(server, uri, params)
				}
			}
		},
		Log: func(server, client string, asked bool, params json.RawMessage) {
			now := served()
			for name, e := range now.endpoints {
				if v := now.ByName[name]; v.Has(server) {
					e.live.Log(client, v.Hears(server), asked, params)
				}
			}
		},
		Notify: func(client, method string, params json.RawMessage) {
			if live := liveOf(served(), client); live != nil {
				live.Notify(client, method, params)
			}
		},
		Ask: func(ctx context.Context, client, method string, params json.RawMessage) (json.RawMessage, error) {
			if live := liveOf(served(), client); live != nil {
				return live.Ask(ctx, client, method, params)
			}
			return nil, errors.New("the client is gone")
		},
		Reaches: func(client string) bool {
			live := liveOf(served(), client)
			return live != nil && live.Reaches(client)
		},
	}
}

// liveOf returns the live server that has a client's session; nil if the session has ended.
func liveOf(now *current, client string) *register.Live {
	for _, e := range now.endpoints {
		if e.live.Knows(client) {
			return e.live
		}
	}
	return nil
}
