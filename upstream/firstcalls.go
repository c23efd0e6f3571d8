package upstream

import (
	"context"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
)

const (
	tryWithin = time.Second // how long a call waits for another client's first calls
	maxTried  = 100_000     // bounds the remembered tools of a server
)

// firstCalls lets one client at a time call tools that were never called before. A legacy
// server over stdio does not say which call a question belongs to. Once it has asked, each
// client has its own connection; but before that, its first question could belong to any
// client. So while one client's first call of a tool is in flight, first calls of other
// clients wait for a moment.
type firstCalls struct {
	mu      sync.Mutex       // guards the fields below; never held over I/O
	tried   map[tool.ID]bool // tools that have answered a call
	client  string           // key of the client whose first calls are in flight
	running int              // number of first calls in flight
	over    chan struct{}    // closed when running is 0 again
}

// begin begins the call of a tool; end ends it. If begin has to wait for another client,
// and asked is closed because the server asks clients something, begin returns asks.
func (t *firstCalls) begin(ctx context.Context, client string, id tool.ID, asked <-chan struct{}) (end func(answered bool), asks bool, err error) {
	patience := time.NewTimer(leeway.Of(tryWithin))
	defer patience.Stop()
	for {
		end, wait := t.try(client, id)
		if wait == nil {
			return end, false, nil
		}
		select {
		case <-wait:
		case <-asked:
			return nil, true, nil
		case <-patience.C: // a call without questions may take long
			return func(answered bool) { t.end(id, answered, 0) }, false, nil
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// try begins the call of a tool, or returns a channel to wait for.
func (t *firstCalls) try(client string, id tool.ID) (end func(answered bool), wait <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.tried[id]:
		return func(bool) {}, nil
	case t.running == 0:
		t.client, t.over = client, make(chan struct{})
	case t.client != client:
		return nil, t.over
	}
	t.running++
	return func(answered bool) { t.end(id, answered, 1) }, nil
}

// end ends the call of a tool; ran is 1 if running counts the call.
func (t *firstCalls) end(id tool.ID, answered bool, ran int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if answered && len(t.tried) < maxTried {
		if t.tried == nil {
			t.tried = map[tool.ID]bool{}
		}
		t.tried[id] = true
	}
	if t.running -= ran; ran > 0 && t.running == 0 {
		close(t.over)
	}
}
