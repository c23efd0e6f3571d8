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
	id          json.RawMessage // of the request, which names the subscription
	wants       map[string]bool // by notification
	queued      chan notification
	provisioned provisioned // what its principal has provisioned, as far as it knows
	party       identity.Party
	since       time.Time
	told        atomic.Pointer[fingerprints] // what it was told of last
	direct      atomic.Bool                  // whether it was listed every tool then; not where togetherIn
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
	case t.queued <- notification{method, params}:
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
