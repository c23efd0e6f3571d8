package upstream

import (
	"context"
	"encoding/json"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Whose roots a server knows. Telling it of others does not make sure that it works
// with those: it may keep what it has when the next client answers with nothing or an
// error, take its time, or never ask again. So no call of a client is sent over a
// connection whose server knows the roots of another one.

// whose says which roots the server that gets the call may know: those of the session,
// or of a 2026-07-28 client, which has none, what it answered; "" while that is not
// known, and for a client without roots.
func (c *call) whose() string {
	if !c.Client.Can(tool.CapabilityRoots) {
		return ""
	}
	if !c.Client.Modern {
		return ofSession(c.Client.Key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !hasRoots(c.roots) {
		return ""
	}
	return "roots " + string(rawjson.Member(c.roots, "roots"))
}

func ofSession(key string) string { return "session " + key }

// hasRoots reports whether a result of roots/list has any.
func hasRoots(result json.RawMessage) bool {
	for range rawjson.Elements(rawjson.Member(result, "roots")) {
		return true
	}
	return false
}

// knowRoots notes what the client of a 2026-07-28 call answered to roots/list.
func (c *call) knowRoots(result json.RawMessage) {
	if !c.Client.Modern {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots = result
}

// knownRoots is the answer to a question that the client has answered before in this
// call, nil to any other.
func (c *call) knownRoots(method string, params json.RawMessage) json.RawMessage {
	if method != methodRoots || !rawjson.IsEmpty(params) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roots
}

// learnRoots asks the client of a 2026-07-28 call for its roots, if the server would ask
// before the call anyway, so that the call gets a connection whose server knows them.
// Where the server asks in some calls only, the others are not to ask for them: they get
// a connection whose server knows none.
func (q *questions) learnRoots(ctx context.Context, c *call) error {
	q.mu.Lock()
	asks := q.roots && q.rootsTold
	q.mu.Unlock()
	if !asks || !c.Client.Can(tool.CapabilityRoots) || !c.Client.Modern || c.knownRoots(methodRoots, nil) != nil {
		return nil
	}
	result, err := q.ask(ctx, []*call{c}, methodRoots, nil)
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case err != nil:
		result = noRoots
	}
	c.knowRoots(result)
	return nil
}

// whose is whose roots the server knows, "" for nobody's.
func (t *calls) whose() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

// tell notes that the server is told the roots of a client, unless it knows those of
// another, or calls of others are in flight: then later is closed when one has ended.
func (t *calls) tell(whose, key string) (may bool, later <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if whose == "" || t.told != "" && t.told != whose {
		return false, nil
	}
	for _, c := range t.byID {
		if c.key() != key {
			return false, t.ended.next()
		}
	}
	t.told = whose
	return true, nil
}

// tell is calls.tell of a result of roots/list, before it is passed on.
func (c *connection) tell(whose, key string, result json.RawMessage) (may bool, later <-chan struct{}) {
	if c.calls.shared || !hasRoots(result) {
		return true, nil
	}
	if may, later = c.calls.tell(whose, key); may {
		q := &c.server.questions
		q.mu.Lock()
		q.rootsTold = true
		q.mu.Unlock()
	}
	return may, later
}

// mayTell waits until a call's client is the only one with calls in flight, so that
// its roots can be told.
func (a *asks) mayTell(ctx context.Context, of *call, result json.RawMessage) error {
	patience, done := a.patience()
	defer done()
	for {
		may, later := a.over.tell(of.whose(), of.key(), result)
		if may {
			return nil
		}
		if later == nil {
			return errUnclear
		}
		select {
		case <-later:
		case <-patience:
			return errUnclear
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// patience is how long a request of the server waits to know whom it is for.
func (a *asks) patience() (over <-chan time.Time, done func()) {
	limit := leeway.Of(clearWithin)
	if a.wait(1) > 1 {
		limit = leeway.Of(clearNextWithin)
	}
	timer := time.NewTimer(limit)
	return timer.C, func() { timer.Stop(); a.wait(-1) }
}
