package register

import (
	"slices"
	"sync"
)

// restoring holds the subscriptions that a session had in another process and does not have here yet.
type restoring struct {
	mu      sync.Mutex // guards the fields below; held for look-ups only
	uris    []string   // replaced, never edited
	joining string     // the URI that is being subscribed to
	wanted  bool       // the client itself has subscribed to joining meanwhile
}

// begin replaces the subscriptions to restore.
func (r *restoring) begin(uris []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uris = uris
}

// left returns the URIs without a subscription yet.
func (r *restoring) left() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.uris)
}

// join notes that a subscription to a URI begins.
func (r *restoring) join(uri string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joining, r.wanted = uri, false
}

// joined notes that a URI has its subscription, and reports whether the client still wants it.
func (r *restoring) joined(uri string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.remove(uri)
	return left || r.joining == uri && r.wanted
}

// asked notes that the client itself subscribes to a URI, or unsubscribes.
func (r *restoring) asked(uri string, subscribes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.joining == uri {
		r.wanted = subscribes
	}
	if !subscribes {
		r.remove(uri)
	}
}

// remove reports whether it removed a URI. The caller holds the lock.
func (r *restoring) remove(uri string) bool {
	before := len(r.uris)
	r.uris = slices.DeleteFunc(slices.Clone(r.uris), func(left string) bool { return left == uri })
	return len(r.uris) < before
}
