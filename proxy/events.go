package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"toolfinch/register"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// levels are the most verbose levels of log messages that the clients of each
// view ask for.
type levels struct {
	mu sync.Mutex // guards by; held while upstreams are told, so that the last they hear is the newest
	by map[*endpoint]string
}

// set takes the level of a view, "" for none, and tells the most verbose of all.
func (l *levels) set(e *endpoint, level string, tell func(level string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[*endpoint]string{}
	}
	if level == "" && l.by[e] == "" {
		return
	}
	l.by[e] = level
	if level == "" {
		delete(l.by, e)
	}
	for _, level := range tool.LogLevels {
		for _, wanted := range l.by {
			if wanted == level {
				tell(level)
				return
			}
		}
	}
}

// events is what the proxy does with what upstreams say outside of any call.
func (p *Proxy) events() upstream.Events {
	return upstream.Events{
		Updated: func(server, uri string, params json.RawMessage) {
			id := tool.ID{Server: server, Name: uri, Kind: tool.KindResource}
			for _, v := range p.served.Load().views {
				if !v.catalog.Excludes(id) { // a part of what is not excluded may be
					v.live.Updated(server, uri, params)
				}
			}
		},
		Log: func(server, client string, asked bool, params json.RawMessage) {
			for _, v := range p.served.Load().views {
				if v.has(server) {
					v.live.Log(client, asked, params)
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
	for _, v := range p.served.Load().views {
		if v.live.Knows(client) {
			return v.live
		}
	}
	return nil
}
