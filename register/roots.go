package register

import (
	"context"
	"encoding/json"
	"sync"
)

const methodRoots = "roots/list"

// roots are the roots of a session's client. A client that announces changes is asked once for all
// servers.
type roots struct {
	mu      sync.Mutex      // guards the fields below; never held over a wait
	known   json.RawMessage // the result of roots/list, nil while unknown
	asking  chan struct{}   // closed with the answer; nil while nobody asks
	changes int             // how often the client announced changes
}

// changed forgets the roots.
func (r *roots) changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = nil
	r.changes++
}

// get returns the known roots, or asks for them. gone is closed when the client is gone.
func (r *roots) get(ctx context.Context, gone <-chan struct{}, ask func() (json.RawMessage, error)) (json.RawMessage, error) {
	for {
		r.mu.Lock()
		known, asking, changes := r.known, r.asking, r.changes
		mine := known == nil && asking == nil
		if mine {
			asking = make(chan struct{})
			r.asking = asking
		}
		r.mu.Unlock()
		switch {
		case known != nil:
			return known, nil
		case mine:
			result, err := ask()
			r.mu.Lock()
			r.asking = nil
			if err == nil && r.changes == changes {
				r.known = result
			}
			r.mu.Unlock()
			close(asking)
			return result, err
		}
		select {
		case <-asking:
		case <-gone:
			return nil, errClientGone
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
