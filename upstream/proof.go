package upstream

import (
	"context"
	"sync"
	"time"

	"toolfinch/tool"
)

// A legacy server over stdio does not say which call a question belongs to. Once
// it has asked something each client has its own connection; until then calls of
// several clients share one, and the first questions could be anybody's. So a tool
// is tried before it is shared: while one client's call of a tool that has never
// been called is under way, such calls of other clients wait for a moment.

const (
	proveWithin = time.Second // how long a call waits for another to show whether its tool asks
	maxProven   = 100_000     // tools of a server that are remembered as proven
)

// proofs are the tools of a server that were called without a question.
type proofs struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	proven map[tool.ID]bool
	trial  *trial // nil while no tool is being tried
}

// trial is one client's calls of tools that have not been proven.
type trial struct {
	client string
	calls  int
	over   chan struct{} // closed when none of them is under way
}

// try begins the call of a tool, which done ends. Instead it may return why the
// call has to wait.
func (p *proofs) try(client string, id tool.ID) (done func(answered bool), wait *trial) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proven[id] {
		return func(bool) {}, nil
	}
	if p.trial == nil {
		p.trial = &trial{client: client, over: make(chan struct{})}
	}
	t := p.trial
	if t.client != client {
		return nil, t
	}
	t.calls++
	return func(answered bool) { p.end(t, id, answered) }, nil
}

// end ends the call of a tool; t is the trial that it was part of, nil for none.
func (p *proofs) end(t *trial, id tool.ID, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered && len(p.proven) < maxProven {
		if p.proven == nil {
			p.proven = map[tool.ID]bool{}
		}
		p.proven[id] = true
	}
	if t == nil {
		return
	}
	if t.calls--; t.calls == 0 {
		close(t.over)
		p.trial = nil
	}
}

// takeProven is take for a request, which may have to wait until it is known
// whether the server asks. proven ends it.
func (s *server) takeProven(ctx context.Context, client *tool.Client, r request) (place *seat, c *conn, alone bool, proven func(answered bool), err error) {
	proven = func(bool) {}
	place, c, alone, err = s.take(ctx, client)
	if err != nil || alone || !client.Answers() || r.def == nil || c.era != EraLegacy || c.transport() == TransportHTTP {
		return place, c, alone, proven, err
	}
	proven, asks, err := s.prove(ctx, client.Key, r.def.ID)
	if err == nil && !asks {
		return place, c, alone, proven, nil
	}
	s.leave(place)
	if err == nil {
		place, c, alone, err = s.take(ctx, client) // one of its own, now
	}
	return place, c, alone, proven, err
}

// prove begins a call of a tool on behalf of a client; done ends it. asks says that
// the server has asked something while the call had to wait.
func (s *server) prove(ctx context.Context, client string, id tool.ID) (done func(answered bool), asks bool, err error) {
	done = func(bool) {}
	patience := time.NewTimer(proveWithin)
	defer patience.Stop()
	for {
		proven, wait := s.proofs.try(client, id)
		if wait == nil {
			return proven, false, nil
		}
		select {
		case <-wait.over:
		case <-s.hasAsked:
			return done, true, nil
		case <-patience.C: // it takes long, as calls do that ask nothing
			return func(answered bool) { s.proofs.end(nil, id, answered) }, false, nil
		case <-ctx.Done():
			return done, false, context.Cause(ctx)
		}
	}
}
