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

// list_changed is handled by a client beside the call that caused it, so an
// agent would run its next step with the old list. The answer of retrieve_tools
// is therefore held until the client has asked for the new list.
const (
	// holdCap is how long a client gets to ask for the new list.
	holdCap = 1500 * time.Millisecond
	// holdGrace lets the client take in the list it was just sent. Gemini CLI needs
	// 20 ms on a quiet machine; on a busy one 50 ms were too short in two runs of
	// three with eight retrievals each, 150 ms in one of three. Clients that Awaits
	// knows need none.
	holdGrace = 150 * time.Millisecond
)

// errMissed is of a stage that has ended without what was waited for.
var errMissed = errors.New("the client has not listed its tools again")

// hold waits until listed is closed, plus the grace, and reports whether it is. Only
// this shows that a client re-lists: one that lists before each turn does so anyway. A
// client known never to re-list is not waited for.
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

// clients remembers, by "name version", which clients re-list while an answer waits for
// it. Nobody is waited for in vain more than twice: a client that is met does so once,
// one that has re-listed before twice.
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
	full := !known && len(c.relists) >= maxClients
	if !full {
		c.relists[client] = now
	}
	c.mu.Unlock()
	if full {
		return // it is waited for, as one never seen
	}
	if client != "" && (!known || before != now) {
		c.remember(client, now)
	}
}
