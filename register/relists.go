package register

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Clients handle list_changed beside the call that caused it, so an agent would run its next step with
// the old list. The hold delays the answer of retrieve_tools until the client has listed its tools
// again.
const (
	// holdCap bounds the wait for the client's list request.
	holdCap = 1500 * time.Millisecond
	// holdGrace lets the client read its new list. Gemini CLI needs 20 ms on a quiet machine; on a busy
	// one 50 ms failed in two of three runs with eight retrievals each, 150 ms in one of three. Clients
	// in Served.Awaits need no grace.
	holdGrace = 150 * time.Millisecond
)

// errMissed ends the hold's stage when the client does not re-list.
var errMissed = errors.New("the client has not listed its tools again")

// hold waits until listed is closed, plus the grace, and reports whether the client re-listed. A
// request outside of a hold proves nothing: some clients list before each turn. Clients that never
// re-list are not waited for.
func (c *relists) hold(ctx context.Context, served *Served, client string, listed <-chan struct{}) bool {
	if c.never(client) || served.when(client) == Never {
		return false
	}
	_, held := telemetry.Start(ctx, telemetry.StageHold, "")
	var missed error
	defer func() { held(missed) }()
	wait := time.NewTimer(leeway.Of(holdCap))
	defer wait.Stop()
	select {
	case <-listed:
		c.relisted(client)
		if served.awaits(client) {
			return true
		}
		wait.Reset(holdGrace)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		return true
	case <-wait.C:
		c.missed(client)
		missed = errMissed
	case <-ctx.Done():
		missed = ctx.Err()
	}
	return false
}

// relists remembers, by "name version", which clients re-list during a hold. A client gets at most two
// holds in vain: one if it is new, two if it has re-listed before.
type relists struct {
	remember func(client string, relists tool.Relists)

	mu      sync.Mutex // guards relists; remember is called outside of it
	relists map[string]tool.Relists
}

func newRelists(known map[string]tool.Relists, remember func(string, tool.Relists)) *relists {
	c := &relists{remember: remember, relists: map[string]tool.Relists{}}
	maps.Copy(c.relists, known)
	return c
}

// never reports whether the client is known not to re-list.
func (c *relists) never(client string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	relists, known := c.relists[client]
	return known && relists == tool.RelistsNever
}

func (c *relists) relisted(client string) {
	c.learn(client, func(before tool.Relists, known bool) tool.Relists {
		if known && before == tool.RelistsMostly {
			return before
		}
		return tool.RelistsAlways
	})
}

func (c *relists) missed(client string) {
	c.learn(client, func(before tool.Relists, _ bool) tool.Relists {
		if before == tool.RelistsAlways {
			return tool.RelistsMostly
		}
		return tool.RelistsNever
	})
}

func (c *relists) learn(client string, next func(before tool.Relists, known bool) tool.Relists) {
	c.mu.Lock()
	before, known := c.relists[client]
	now := next(before, known)
	if !known && len(c.relists) >= maxClients {
		for other := range c.relists { // its next hold teaches it again
			delete(c.relists, other)
			break
		}
	}
	c.relists[client] = now
	c.mu.Unlock()
	if client != "" && (!known || before != now) {
		c.remember(client, now)
	}
}
