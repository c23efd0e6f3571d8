package upstream

import (
	"context"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
)

// A legacy server over stdio does not say which call a question belongs to. Once
// it has asked something each client has its own connection; until then calls of
// several clients share one, and the first questions could be anybody's. So a tool
// is tried before it is shared: while one client's call of a tool that has never
// been called is under way, such calls of other clients wait for a moment.

const (
	tryWithin = time.Second // how long a call waits for another to show whether its tool asks
	maxTried  = 100_000     // tools of a server that are remembered as tried
)

// trials are the tools of a server that were called without a question, and those
// that are being called for the first time.
type trials struct {
	mu      sync.Mutex // guards what follows; never held over I/O
	tried   map[tool.ID]bool
	client  string        // whose tools are being tried
	running int           // calls of such tools
	over    chan struct{} // closed when running is 0 again
}

// begin begins the call of a tool; end ends it. It may wait for the calls of another
// client, and then asks says that the server has asked something, which closes
// asked.
func (t *trials) begin(ctx context.Context, client string, id tool.ID, asked <-chan struct{}) (end func(answered bool), asks bool, err error) {
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
		case <-patience.C: // it takes long, as calls do that ask nothing
			return func(answered bool) { t.end(id, answered, 0) }, false, nil
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// try begins the call of a tool, or returns what the call has to wait for.
func (t *trials) try(client string, id tool.ID) (end func(answered bool), wait <-chan struct{}) {
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

// end ends the call of a tool; ran is 1 where running counts it.
func (t *trials) end(id tool.ID, answered bool, ran int) {
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
