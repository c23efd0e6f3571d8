package register

import (
	"context"
	"strings"
	"sync"
	"time"

	"toolfinch/rawjson"
)

// list_changed is handled by a client beside the call that caused it, so an
// agent would run its next step with the old list. The answer of retrieve_tools
// is therefore held until the client has asked for the new list.
const (
	// holdCap is how long a client gets to ask for the new list.
	holdCap = 1500 * time.Millisecond
	// holdGrace lets the client take in the list it was just sent. Agents that
	// were tried need 20 ms on a quiet machine; on a busy one, 75 ms were too
	// short for one run of Gemini CLI in five.
	holdGrace = 150 * time.Millisecond
	// missesToForget is the number of list_changed in vain after which a client known
	// to re-list counts as one that does not.
	missesToForget = 3
)

// expect notes that the client of s is about to be told that its list has changed. It
// returns what hold needs.
func (s *session) expect() (client string, listed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notified = time.Now()
	return s.client, s.listed
}

// hold waits until listed is closed, plus the grace. A client known never to
// re-list is not waited for.
func (l *Live) hold(ctx context.Context, client string, listed <-chan struct{}) {
	if l.clients.never(client) {
		return
	}
	wait := time.NewTimer(holdCap)
	defer wait.Stop()
	select {
	case <-listed:
		wait.Reset(holdGrace)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
	case <-wait.C:
		l.clients.missed(client)
	case <-ctx.Done():
	}
}

// Bounds of what is remembered of clients, which may call themselves anything.
const (
	maxClients    = 10_000
	maxClientName = 128 // bytes of its name, and of its version
)

// clientName is how a client is known: "name version".
func clientName(name, version string) string {
	return strings.TrimSpace(rawjson.Head(name, maxClientName) + " " + rawjson.Head(version, maxClientName))
}

// clients remembers, by "name version", which clients re-list after list_changed.
type clients struct {
	remember func(client string, relists bool)

	mu      sync.Mutex // guards the maps; remember is called outside of it
	relists map[string]bool
	misses  map[string]int
}

func newClients(known map[string]bool, remember func(string, bool)) *clients {
	c := &clients{remember: remember, relists: map[string]bool{}, misses: map[string]int{}}
	for client, relists := range known {
		c.relists[client] = relists
	}
	return c
}

// never reports whether the client is known not to re-list.
func (c *clients) never(client string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	relists, known := c.relists[client]
	return known && !relists
}

func (c *clients) relisted(client string) {
	c.mu.Lock()
	delete(c.misses, client)
	c.mu.Unlock()
	c.learn(client, true)
}

func (c *clients) missed(client string) {
	c.mu.Lock()
	if _, known := c.misses[client]; !known && len(c.misses) >= maxClients {
		clear(c.misses)
	}
	c.misses[client]++
	trusted := c.relists[client] && c.misses[client] < missesToForget
	c.mu.Unlock()
	if !trusted {
		c.learn(client, false)
	}
}

func (c *clients) learn(client string, relists bool) {
	c.mu.Lock()
	before, known := c.relists[client]
	full := !known && len(c.relists) >= maxClients
	if !full {
		c.relists[client] = relists
	}
	c.mu.Unlock()
	if full {
		return // it is waited for, as one never seen
	}
	if client != "" && (!known || before != relists) {
		c.remember(client, relists)
	}
}
