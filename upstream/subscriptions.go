package upstream

import (
	"maps"
	"slices"
	"sync"

	"toolfinch/tool"
)

// maxSubscriptions bounds the subscribed resources of a server.
const maxSubscriptions = 10_000

var errTooManySubscriptions = &tool.RPCError{Code: tool.CodeInternal, Message: "too many resources of the server are subscribed to"}

// subscriptions are the resources whose changes clients want to know, by URI.
type subscriptions struct {
	mu   sync.Mutex // guards uris; never held over I/O
	uris map[string]bool
}

// set adds or removes a resource, and reports whether that changed the set. The error means
// that there are too many resources.
func (w *subscriptions) set(uri string, on bool) (changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.uris[uri] == on {
		return false, nil
	}
	if !on {
		delete(w.uris, uri)
		return true, nil
	}
	if len(w.uris) >= maxSubscriptions {
		return false, errTooManySubscriptions
	}
	w.uris[uri] = true
	return true, nil
}

// all returns the resources, sorted.
func (w *subscriptions) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.uris))
}

// inherit takes over the resources of a server's predecessor.
func (w *subscriptions) inherit(from *subscriptions) {
	for _, uri := range from.all() {
		w.uris[uri] = true
	}
}
