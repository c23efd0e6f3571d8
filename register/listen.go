package register

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// Notifications of what changed.
const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

// listeners are the subscriptions/listen streams of one Live.
type listeners struct {
	mu    sync.Mutex // guards byKey; held for look-ups only
	byKey map[string]*listener
}

func (all *listeners) add(key string, t *listener) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byKey[key] = t
}

func (all *listeners) remove(key string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.byKey, key)
}

// get finds a stream by its key, nil if there is none.
func (all *listeners) get(key string) *listener {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byKey[key]
}

// all are the streams that are open.
func (all *listeners) all() []*listener {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Values(all.byKey))
}

// listener is one subscriptions/listen stream of a 2026-07-28 client.
type listener struct {
	id     json.RawMessage // of the request, which names the subscription
	wants  map[string]bool // by notification
	queued chan missed
	shown  shown // what its principal has provisioned, as far as it knows
	party  identity.Party
	since  time.Time
	told   atomic.Pointer[seen] // what it was told of last
	direct atomic.Bool          // whether it was listed every tool then; not where togetherIn
}

// notify tells the client that a list changed, if it wants to hear of that.
func (t *listener) notify(method string) {
	if t.wants[method] {
		t.tell(method, nil)
	}
}

// tell never blocks: a client that does not read misses notifications that only tell
// it to ask again.
func (t *listener) tell(method string, params json.RawMessage) {
	select {
	case t.queued <- missed{method, params}:
	default:
	}
}

// tagged is params with the subscription's ID in _meta.
func (t *listener) tagged(params json.RawMessage) json.RawMessage {
	if len(params) == 0 {
		params = json.RawMessage(`{}`)
	}
	meta := rawjson.Member(params, "_meta")
	if len(meta) == 0 || meta[0] != '{' {
		meta = json.RawMessage(`{}`)
	}
	meta, err := rawjson.Set(meta, mcp.MetaKeySubscriptionID, t.id)
	if err != nil {
		return params
	}
	if own, err := rawjson.Set(params, "_meta", meta); err == nil {
		return own
	}
	return params
}

// listen answers subscriptions/listen, which lasts until the client ends it. owner is
// the owner of the client's requests.
func (l *Live) listen(ctx context.Context, served *Served, x *wire.Exchange, owner string) (tool.Result, error) {
	party, _ := identity.PartyOf(ctx)
	var params struct {
		Notifications mcp.SubscriptionFilter `json:"notifications"`
	}
	if err := json.Unmarshal(x.Params, &params); err != nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "subscriptions/listen: the parameters are not those of the specification"}
	}
	want, declared := params.Notifications, served.Declared
	allowed := mcp.SubscriptionFilter{
		ToolsListChanged:     want.ToolsListChanged,
		PromptsListChanged:   want.PromptsListChanged && declared.Prompts,
		ResourcesListChanged: want.ResourcesListChanged && declared.Resources,
	}
	t := &listener{id: x.ID, party: party, since: time.Now(), queued: make(chan missed, 100), wants: map[string]bool{
		toolsChanged:     allowed.ToolsListChanged,
		promptsChanged:   allowed.PromptsListChanged,
		resourcesChanged: allowed.ResourcesListChanged,
	}}
	t.shown.follow(owner, served.granted)
	t.told.Store(l.announced.of(served))
	t.direct.Store(!l.togetherIn(served) && l.listsAll(nil, served))
	key := modernKey()
	l.listeners.add(key, t)
	l.tell(t, l.served(party)) // of what has changed since served was looked at
	defer func() {
		l.listeners.remove(key)
		l.parking.aside(func(ctx context.Context) { l.subscriptions.leave(ctx, key) })
	}()
	for _, uri := range want.ResourceSubscriptions {
		resource, ok := served.Resource(uri)
		if !ok || !declared.Subscribe {
			continue
		}
		if err := l.subscriptions.join(ctx, uri, resource.Def.ID, key); err != nil {
			l.log.Debug("not subscribed", "uri", uri, "error", err)
			continue
		}
		allowed.ResourceSubscriptions = append(allowed.ResourceSubscriptions, uri)
	}
	acknowledged, err := json.Marshal(map[string]any{"notifications": allowed})
	if err != nil {
		return nil, err
	}
	x.Notify("notifications/subscriptions/acknowledged", t.tagged(acknowledged))
	ended := t.tagged(json.RawMessage(`{"resultType":"complete"}`))
	if allowed.IsEmpty() {
		return tool.Result(ended), nil
	}
	for {
		select {
		case n := <-t.queued:
			x.Notify(n.method, t.tagged(n.params))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-l.closing:
			return tool.Result(ended), nil
		}
	}
}

// subscribe answers resources/subscribe and resources/unsubscribe.
func (l *Live) subscribe(ctx context.Context, served *Served, x *wire.Exchange, s *session) (tool.Result, error) {
	uri := rawjson.Text(rawjson.Member(x.Params, "uri"))
	s.asked(uri, x.Method == wire.MethodSubscribe)
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
	if s.ended() { // too late to be found when the session was forgotten
		l.subscriptions.leave(context.WithoutCancel(ctx), s.id)
	}
	l.observer.Changed(s.id)
	return tool.Result(`{}`), nil
}

// Updated tells the subscribers of a resource of a server that it changed.
func (l *Live) Updated(server, uri string, params json.RawMessage) {
	told := map[subscription]bool{} // a client that subscribed to a resource and to the whole of it hears once
	for _, one := range l.subscriptions.to(server, uri) {
		s, listener := l.session(one.key), l.listeners.get(one.key)
		var served *Served
		switch {
		case s != nil:
			served = l.servedNow(s)
		case listener != nil:
			served = l.served(listener.party)
		default:
			continue // another Live's
		}
		if one.uri == "" {
			one.uri = served.Exposed(server, uri) // which policies may have otherwise for each
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
