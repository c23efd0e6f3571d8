package proxy

import (
	"context"
	"encoding/json"
	"errors"

	"toolfinch/register"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// events is what the proxy does with what upstreams say outside of any call.
func (p *Proxy) events() upstream.Events {
	return upstream.Events{
		Started: func(server string, s *upstream.Settings, pid int) { p.observer.spawned(server, s, pid) },
		Updated: func(server, uri string, params json.RawMessage) {
			id := tool.ID{Server: server, Name: uri, Kind: tool.KindResource}
			for _, v := range p.now.Load().views {
				if !v.catalog.Excludes(id) { // a part of what is not excluded may be
					v.live.Updated(server, uri, params)
				}
			}
		},
		Log: func(server, client string, asked bool, params json.RawMessage) {
			for _, v := range p.now.Load().views {
				if v.has(server) {
					v.live.Log(client, v.hears(server), asked, params)
				}
			}
		},
		Notify: func(client, method string, params json.RawMessage) {
			if live := p.liveOf(client); live != nil {
				live.Notify(client, method, params)
			}
		},
		Ask: func(ctx context.Context, client, method string, params json.RawMessage) (json.RawMessage, error) {
			if live := p.liveOf(client); live != nil {
				return live.Ask(ctx, client, method, params)
			}
			return nil, errors.New("the client is gone")
		},
		Reaches: func(client string) bool {
			live := p.liveOf(client)
			return live != nil && live.Reaches(client)
		},
	}
}

// liveOf returns the live server that a client's session is of, nil when it has
// ended.
func (p *Proxy) liveOf(client string) *register.Live {
	for _, v := range p.now.Load().views {
		if v.live.Knows(client) {
			return v.live
		}
	}
	return nil
}
