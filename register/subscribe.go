package register

import (
	"context"
	"encoding/json"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// subscribe answers resources/subscribe and resources/unsubscribe.
func (l *Live) subscribe(ctx context.Context, served *Served, x *wire.Exchange, s *session) (tool.Result, error) {
	uri := rawjson.Text(rawjson.Member(x.Params, "uri"))
	s.restoring.asked(uri, x.Method == wire.MethodSubscribe)
	if x.Method == wire.MethodUnsubscribe {
		l.subscriptions.leave(ctx, s.id, uri)
		l.observer.Changed(s.id)
		return tool.Result(`{}`), nil
	}
	t, ok := served.Resource(uri)
	if !ok {
		return nil, notFound(tool.KindResource, uri, "", false)
	}
	if err := l.subscriptions.join(ctx, uri, t.Def.ID, s.id); err != nil {
		return nil, err
	}
	if s.ended() { // the session ended before the subscription existed
		l.subscriptions.leave(context.WithoutCancel(ctx), s.id)
	}
	l.observer.Changed(s.id)
	return tool.Result(`{}`), nil
}

// Updated tells the subscribers of a server's resource that it changed.
func (l *Live) Updated(server, uri string, params json.RawMessage) {
	told := map[subscription]bool{} // a client that subscribed to a resource and to the folder above it is told once
	for _, one := range l.subscriptions.to(server, uri) {
		s, listener := l.session(one.key), l.listeners.get(one.key)
		var served *Served
		switch {
		case s != nil:
			served = l.servedNow(s)
		case listener != nil:
			served = l.served(listener.party)
		default:
			continue // of another Live
		}
		if one.uri == "" {
			one.uri = served.Exposed(server, uri) // policies may give each party another URI
		}
		if served.Class != "" {
			if _, still := served.Resource(one.uri); !still {
				continue
			}
		}
		if told[one] {
			continue
		}
		told[one] = true
		own := params
		if one.uri != uri {
			if set, err := rawjson.Set(params, "uri", rawjson.Quote(one.uri)); err == nil {
				own = set
			}
		}
		if s != nil {
			l.Notify(one.key, resourceUpdated, own)
		} else {
			listener.tell(resourceUpdated, own)
		}
	}
}
