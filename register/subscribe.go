package register

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/limit"
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

// Subscriptions knows who wants to hear of which resource, of all Lives that
// serve the same upstreams. An upstream is
// subscribed to with the first and left with the last of them. What counts is
// the server's own URI: clients may know it by another, which may change when
// another server comes to list the same.
type Subscriptions struct {
	change func(ctx context.Context, id tool.ID, on bool) error

	turns sync.Map // server -> chan struct{} that holds one: taken while the upstream answers, so that its subscriptions change in order

	most  *limit.Limit // of each client
	bytes *limit.Limit // of a URI

	mu   sync.Mutex                 // guards what follows; held for look-ups only
	byID map[tool.ID][]subscription // an ID with none is about to be left
	of   map[string]int             // how many a client has, by key
}

// Limits are those of subscriptions.
func (s *Subscriptions) Limits() []*limit.Limit { return []*limit.Limit{s.most, s.bytes} }

// NewSubscriptions returns subscriptions of nobody. change subscribes to a
// resource of an upstream, or ends that; nil where that cannot be.
func NewSubscriptions(change func(ctx context.Context, id tool.ID, on bool) error) *Subscriptions {
	if change == nil {
		change = func(context.Context, tool.ID, bool) error {
			return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "resource subscriptions are not offered"}
		}
	}
	return &Subscriptions{
		change: change,
		most:   limit.New("subscriptions", maxSubscriptions, "subscriptions of this client", "end others first"),
		bytes:  limit.New("subscription_bytes", maxSubscribed, "bytes in the URI of a subscription", "subscribe to a shorter one"),
		byID:   map[tool.ID][]subscription{},
		of:     map[string]int{},
	}
}

// maxSubscriptions is how many resources a session, or one subscriptions/listen,
// may follow.
const maxSubscriptions = 1000

// maxSubscribed is how long the URI of one may be, in bytes: it is kept.
const maxSubscribed = 8 << 10

// subscription is of a session or a listener, by the URI that it named.
type subscription struct{ key, uri string }

// leaveTimeout bounds how long upstreams are waited for that are left.
const leaveTimeout = 10 * time.Second

// turn waits for the turn to change the subscriptions of a server, and returns
// what ends it. Without the turn it returns the reason why ctx has ended.
func (s *Subscriptions) turn(ctx context.Context, server string) (end func(), err error) {
	turn, _ := s.turns.LoadOrStore(server, make(chan struct{}, 1))
	held := turn.(chan struct{})
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return func() {}, context.Cause(ctx)
	}
}

func (s *Subscriptions) join(ctx context.Context, uri string, id tool.ID, key string) error {
	if len(uri) > maxSubscribed {
		return &tool.RPCError{Code: tool.CodeInvalidParams, Message: s.bytes.Refuse().Error()}
	}
	end, err := s.turn(ctx, id.Server)
	if err != nil {
		return err
	}
	defer end()
	one := subscription{key, uri}
	s.mu.Lock()
	all, known := s.byID[id]
	has := slices.Contains(all, one)
	full := !has && s.of[key] >= maxSubscriptions
	if known && !has && !full {
		s.byID[id] = append(all, one)
		s.count(key, 1)
	}
	s.mu.Unlock()
	switch {
	case full:
		return &tool.RPCError{Code: tool.CodeInternal, Message: s.most.Refuse().Error()}
	case known:
		return nil
	}
	if err := s.change(ctx, id, true); err != nil {
		return err
	}
	s.mu.Lock()
	s.byID[id] = []subscription{one}
	s.count(key, 1)
	s.mu.Unlock()
	return nil
}

// count is for who holds the lock.
func (s *Subscriptions) count(key string, n int) {
	if s.of[key] += n; s.of[key] == 0 {
		delete(s.of, key)
	}
	s.most.Count(int64(n))
}

// leave ends the subscriptions of key: of one URI, or all when none is named.
// An upstream that cannot be told has none to end.
func (s *Subscriptions) leave(ctx context.Context, key string, uris ...string) {
	var last []tool.ID
	s.mu.Lock()
	for id, all := range s.byID {
		left := slices.DeleteFunc(all, func(one subscription) bool {
			return one.key == key && (len(uris) == 0 || slices.Contains(uris, one.uri))
		})
		s.count(key, len(left)-len(all))
		if s.byID[id] = left; len(left) == 0 {
			last = append(last, id)
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for _, id := range last {
		s.drop(ctx, id)
	}
}

// drop leaves the upstream, unless somebody has joined meanwhile. One that keeps
// others waiting until ctx ends is left out of turn: nothing is kept for it.
func (s *Subscriptions) drop(ctx context.Context, id tool.ID) {
	end, _ := s.turn(ctx, id.Server)
	defer end()
	s.mu.Lock()
	all, known := s.byID[id]
	unused := known && len(all) == 0
	if unused {
		delete(s.byID, id)
	}
	s.mu.Unlock()
	if unused {
		_ = s.change(ctx, id, false)
	}
}

// to returns the subscriptions to a resource of a server, and those to one that
// it is a part of: servers may tell of parts of what was subscribed to. Of the
// latter the URI is "": theirs is not that of the part.
func (s *Subscriptions) to(server, uri string) []subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []subscription
	for id, all := range s.byID {
		switch {
		case id.Server != server:
		case id.Name == uri:
			found = append(found, all...)
		case partOf(uri, id.Name):
			for _, one := range all {
				found = append(found, subscription{key: one.key})
			}
		}
	}
	return found
}

// partOf reports whether a URI is below another.
func partOf(uri, whole string) bool {
	rest, below := strings.CutPrefix(uri, whole)
	return below && rest != "" && (strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// subscribe answers resources/subscribe and resources/unsubscribe.
func (l *Live) subscribe(ctx context.Context, served *Served, x *wire.Exchange, s *session) (tool.Result, error) {
	uri := rawjson.Text(rawjson.Member(x.Params, "uri"))
	if x.Method == wire.MethodUnsubscribe {
		l.subscriptions.leave(ctx, s.id, uri)
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
	return tool.Result(`{}`), nil
}

// Updated tells who subscribed to a resource of a server that it changed.
func (l *Live) Updated(server, uri string, params json.RawMessage) {
	exposed := ""
	told := map[subscription]bool{} // a client that subscribed to a resource and to the whole of it hears once
	for _, one := range l.subscriptions.to(server, uri) {
		s, listener := l.session(one.key), l.listener(one.key)
		if s == nil && listener == nil {
			continue // another Live's
		}
		if one.uri == "" {
			exposed = cmp.Or(exposed, l.served().Exposed(server, uri))
			one.uri = exposed
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

// listener is one subscriptions/listen stream of a 2026-07-28 client.
type listener struct {
	id     json.RawMessage // of the request, which names the subscription
	wants  map[string]bool // by notification
	queued chan missed
	shown  shown // what its principal has provisioned, as far as it knows
}

// tell never blocks: a client that does not read misses what it would ask for anyway.
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

// listen answers subscriptions/listen: it lasts until the client, whose requests
// come for owner, ends it.
func (l *Live) listen(ctx context.Context, served *Served, x *wire.Exchange, owner string) (tool.Result, error) {
	var params struct {
		Notifications mcp.SubscriptionFilter `json:"notifications"`
	}
	if err := json.Unmarshal(x.Params, &params); err != nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "subscriptions/listen: the parameters are not those of the specification"}
	}
	want, offered := params.Notifications, served.Offered
	allowed := mcp.SubscriptionFilter{
		ToolsListChanged:     want.ToolsListChanged,
		PromptsListChanged:   want.PromptsListChanged && offered.Prompts,
		ResourcesListChanged: want.ResourcesListChanged && offered.Resources,
	}
	t := &listener{id: x.ID, queued: make(chan missed, 100), wants: map[string]bool{
		toolsChanged:     allowed.ToolsListChanged,
		promptsChanged:   allowed.PromptsListChanged,
		resourcesChanged: allowed.ResourcesListChanged,
	}}
	t.shown.follow(owner, served.granted)
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
		resource, ok := served.Resource(uri)
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
			x.Notify(n.method, t.tagged(n.params))
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
	l.tellListeners(method, func(*listener) bool { return true })
}

// tellListeners tells those clients of 2026-07-28 that want to hear of it and
// that concerns says it is for.
func (l *Live) tellListeners(method string, concerns func(*listener) bool) {
	l.mu.Lock()
	var told []*listener
	for _, t := range l.listeners {
		if t.wants[method] {
			told = append(told, t)
		}
	}
	l.mu.Unlock()
	for _, t := range told {
		if concerns(t) {
			t.tell(method, nil)
		}
	}
}
