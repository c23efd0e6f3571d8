package register

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/tool"
	"toolfinch/wire"
)

// Notifications of what changed.
const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

// subscriptions knows who wants to hear of which resource. An upstream is
// subscribed to with the first and left with the last of them.
type subscriptions struct {
	change func(ctx context.Context, id tool.ID, on bool) error

	turns sync.Map // server -> *sync.Mutex: held while the upstream answers, so that its subscriptions change in order

	mu    sync.Mutex // guards what follows; held for look-ups only
	byURI map[string]*subscribed
}

// leaveTimeout bounds how long upstreams are waited for that are left.
const leaveTimeout = 10 * time.Second

type subscribed struct {
	id   tool.ID
	keys []string // of sessions and listeners; none when it is about to be left
}

func (s *subscriptions) turn(server string) *sync.Mutex {
	turn, _ := s.turns.LoadOrStore(server, new(sync.Mutex))
	return turn.(*sync.Mutex)
}

func (s *subscriptions) join(ctx context.Context, uri string, id tool.ID, key string) error {
	turn := s.turn(id.Server)
	turn.Lock()
	defer turn.Unlock()
	s.mu.Lock()
	known := s.byURI[uri]
	if known != nil && !slices.Contains(known.keys, key) {
		known.keys = append(known.keys, key)
	}
	s.mu.Unlock()
	if known != nil {
		return nil
	}
	if err := s.change(ctx, id, true); err != nil {
		return err
	}
	s.mu.Lock()
	s.byURI[uri] = &subscribed{id: id, keys: []string{key}}
	s.mu.Unlock()
	return nil
}

// leave ends the subscriptions of key: of one URI, or all when none is named.
// An upstream that cannot be told has none to end.
func (s *subscriptions) leave(ctx context.Context, key string, uris ...string) {
	last := map[string]tool.ID{}
	s.mu.Lock()
	for uri, known := range s.byURI {
		if len(uris) > 0 && !slices.Contains(uris, uri) {
			continue
		}
		known.keys = slices.DeleteFunc(known.keys, func(k string) bool { return k == key })
		if len(known.keys) == 0 {
			last[uri] = known.id
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for uri, id := range last {
		s.drop(ctx, uri, id)
	}
}

// drop leaves the upstream, unless somebody has joined meanwhile.
func (s *subscriptions) drop(ctx context.Context, uri string, id tool.ID) {
	turn := s.turn(id.Server)
	turn.Lock()
	defer turn.Unlock()
	s.mu.Lock()
	known := s.byURI[uri]
	unused := known != nil && len(known.keys) == 0
	if unused {
		delete(s.byURI, uri)
	}
	s.mu.Unlock()
	if unused {
		_ = s.change(ctx, id, false)
	}
}

func (s *subscriptions) keys(uri string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.byURI[uri]; known != nil {
		return slices.Clone(known.keys)
	}
	return nil
}

// subscribe answers resources/subscribe and resources/unsubscribe.
func (l *Live) subscribe(ctx context.Context, x *wire.Exchange, s *session) (tool.Result, error) {
	uri := rawjson.Text(rawjson.Member(x.Params, "uri"))
	if x.Method == wire.MethodUnsubscribe {
		l.subscriptions.leave(ctx, s.id, uri)
		return tool.Result(`{}`), nil
	}
	t, ok := l.source.Resource(uri)
	if !ok {
		return nil, notFound(tool.KindResource, uri, "", false)
	}
	if err := l.subscriptions.join(ctx, uri, t.Def.ID, s.id); err != nil {
		return nil, err
	}
	if s.ended() { // too late to be found when the session was forgotten
		l.subscriptions.leave(context.WithoutCancel(ctx), s.id)
	}
	return tool.Result(`{}`), nil
}

// Updated tells who subscribed to a resource of a server that it changed.
func (l *Live) Updated(server, uri string, params json.RawMessage) {
	exposed := l.source.Exposed(server, uri)
	keys := l.subscriptions.keys(exposed)
	if len(keys) == 0 {
		return
	}
	if exposed != uri {
		quoted, _ := json.Marshal(exposed)
		if own, err := rawjson.Set(params, "uri", quoted); err == nil {
			params = own
		}
	}
	for _, key := range keys {
		if s := l.session(key); s != nil {
			l.Notify(key, resourceUpdated, params)
		} else if listener := l.listener(key); listener != nil {
			listener.tell(resourceUpdated, params)
		}
	}
}

// listener is one subscriptions/listen stream of a 2026-07-28 client.
type listener struct {
	id     json.RawMessage // of the request, which names the subscription
	wants  map[string]bool // by notification
	queued chan [2]string  // method and params
}

// tell never blocks: a client that does not read misses what it would ask for anyway.
func (t *listener) tell(method string, params json.RawMessage) {
	select {
	case t.queued <- [2]string{method, string(params)}:
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

// listen answers subscriptions/listen: it lasts until the client ends it.
func (l *Live) listen(ctx context.Context, x *wire.Exchange) (tool.Result, error) {
	var params struct {
		Notifications mcp.SubscriptionFilter `json:"notifications"`
	}
	if err := json.Unmarshal(x.Params, &params); err != nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "subscriptions/listen: the parameters are not those of the specification"}
	}
	want, offered := params.Notifications, l.offered()
	allowed := mcp.SubscriptionFilter{
		ToolsListChanged:     want.ToolsListChanged,
		PromptsListChanged:   want.PromptsListChanged && offered.Prompts,
		ResourcesListChanged: want.ResourcesListChanged && offered.Resources,
	}
	t := &listener{id: x.ID, queued: make(chan [2]string, 100), wants: map[string]bool{
		toolsChanged:     allowed.ToolsListChanged,
		promptsChanged:   allowed.PromptsListChanged,
		resourcesChanged: allowed.ResourcesListChanged,
	}}
	key := l.modernClient(nil).Key
	l.mu.Lock()
	l.listeners[key] = t
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.listeners, key)
		l.mu.Unlock()
		l.subscriptions.leave(context.WithoutCancel(ctx), key)
	}()
	for _, uri := range want.ResourceSubscriptions {
		resource, ok := l.source.Resource(uri)
		if !ok || !offered.Subscribe {
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
			x.Notify(n[0], t.tagged(json.RawMessage(n[1])))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-l.closing:
			return tool.Result(ended), nil
		}
	}
}

func (l *Live) listener(key string) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listeners[key]
}

// broadcast tells every client that a list changed.
func (l *Live) broadcast(method string) {
	for _, s := range l.everySession() {
		l.Notify(s.id, method, nil)
	}
	l.mu.Lock()
	var told []*listener
	for _, t := range l.listeners {
		if t.wants[method] {
			told = append(told, t)
		}
	}
	l.mu.Unlock()
	for _, t := range told {
		t.tell(method, nil)
	}
}
