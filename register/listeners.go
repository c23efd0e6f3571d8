package register

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
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

// get finds a stream by its key, nil if it is gone.
func (all *listeners) get(key string) *listener {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byKey[key]
}

// all returns the open streams.
func (all *listeners) all() []*listener {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Values(all.byKey))
}

// listener is one subscriptions/listen stream of a 2026-07-28 client.
type listener struct {
	id          json.RawMessage // the request's ID names the subscription
	wants       map[string]bool // by notification
	queued      chan notification
	provisioned provisioned // as the client knows it
	party       identity.Party
	since       time.Time
	told        atomic.Pointer[fingerprints] // the last lists that the client was told of
	direct      atomic.Bool                  // the client was listed every tool; unused with countAsOne
}

// notify tells the client that a list changed, if it subscribed to that list.
func (t *listener) notify(method string) {
	if t.wants[method] {
		t.tell(method, nil)
	}
}

// tell never blocks: a slow client loses notifications, which only tell it to list again.
func (t *listener) tell(method string, params json.RawMessage) {
	select {
	case t.queued <- notification{method, params}:
	default:
	}
}

// tagged adds the subscription's ID to the _meta of params.
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
