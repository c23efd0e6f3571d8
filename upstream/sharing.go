package upstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolfinch/tool"
)

// sharing decides which client uses which connection to a server. A server that asks its
// clients nothing has one connection for all clients: main. If the server asks, each client
// that can be asked gets a private connection, so that no question reaches the wrong client,
// and all other clients share one. The first client that comes while main is free gets main
// as its private connection. A server may keep a client's roots, so no other client gets the
// connection afterwards.
//
// Servers of both eras document that they ask clients in the legacy era only. So legacy
// clients that can be asked get a legacy connection beside a main connection of 2026-07-28.
type sharing struct {
	server *server
	first  firstCalls

	mu       sync.Mutex // guards the fields below and the fields of the slots; never held over I/O
	main     *slot
	beside   []*slot // all slots but main
	sweeping bool
}

func newSharing(s *server) *sharing {
	main := &connector{server: s, purpose: purpose{main: true, declare: s.settings.capabilities()}, fresh: make(chan struct{}, 1)}
	return &sharing{server: s, main: &slot{connector: main}}
}

const (
	maxPrivate = 64               // slots beside main and the slot of clients that cannot be asked
	legacyIdle = 10 * time.Minute // how long a session's idle connection is kept
	modernIdle = time.Minute      // how long the idle connection of a 2026-07-28 call is kept
	sweepEach  = 15 * time.Second // how often idle connections are closed
)

// lease is the use of a connection by one call.
type lease struct {
	*connection
	alone bool // no other client uses the connection
	end   func(answered bool)
}

// acquire returns a connection for a call. It may wait until another client's first call
// has shown whether the server asks.
func (h *sharing) acquire(ctx context.Context, c *call, r request) (*lease, error) {
	client := c.Client
	u, err := h.take(ctx, c)
	if err != nil || u.alone || !client.Answers() || r.def == nil || u.Era != EraLegacy || !u.mixesUp(client) {
		return u, err
	}
	tried, asks, err := h.first.begin(ctx, client.Key, r.def.ID, h.server.questions.begun)
	if err == nil && !asks {
		end := u.end
		u.end = func(answered bool) { tried(answered); end(answered) }
		return u, nil
	}
	u.end(false)
	if err != nil {
		return nil, err
	}
	return h.take(ctx, c) // now a private connection
}

// mixesUp reports whether a question of the server could reach or concern another client.
// Over HTTP a question comes on the stream of its call, but the server may keep roots for
// the whole session.
func (u *lease) mixesUp(client *tool.Client) bool {
	return u.Transport != TransportHTTP || client.Can(tool.CapabilityRoots) && !u.calls.shared
}

// take returns a connection of the kind that a call needs.
func (h *sharing) take(ctx context.Context, of *call) (*lease, error) {
	perUser := h.server.perUser()
	if perUser && of.Principal == "" && !of.Local {
		return nil, errNobody
	}
	for {
		beside, alone, err := h.kind(ctx, of.Client)
		alone = alone || perUser
		if err == nil && alone {
			err = h.server.questions.learnRoots(ctx, of)
		}
		if err != nil {
			return nil, err
		}
		one, err := h.reserve(of, beside, alone)
		if err != nil {
			return nil, err
		}
		c, err := one.connect(ctx)
		if err == nil && !(beside && c.Sessionless()) {
			return &lease{c, alone, func(bool) { h.release(one) }}, nil
		}
		h.release(one)
		if !beside || ctx.Err() != nil || !h.withoutHandshake(one, err) {
			return nil, err
		}
	}
}

// kind decides which kind of connection a call needs: beside is a legacy connection beside a
// main connection of 2026-07-28, alone is a connection without other clients.
func (h *sharing) kind(ctx context.Context, client *tool.Client) (beside, alone bool, err error) {
	s := h.server
	handshakes := !s.noHandshake.Load()
	era, met := s.health.met()
	if s.perUser() { // each caller's connection finds the era itself
		met = true
	}
	isolate := s.settings.Isolate == IsolateAlways || s.settings.Isolate != IsolateNever && s.questions.any()
	legacy := client.Answers() && !client.Modern
	if isolate && era == EraUnknown && !s.perUser() || legacy && era != EraLegacy && !met {
		c, err := h.main.connect(ctx)
		if err != nil {
			return false, false, err
		}
		era = c.Era
	}
	beside = legacy && era == EraModern && handshakes
	return beside, isolate && (era == EraLegacy || beside), nil
}

// reserve returns a slot for a call, until release.
func (h *sharing) reserve(of *call, beside, alone bool) (*slot, error) {
	client, owner := of.Client, of.rootsOwner()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server.life.Err() != nil {
		return nil, ErrClosed
	}
	base := h.main
	if beside {
		base = h.common()
	}
	if !alone {
		base.calls++
		return base, nil
	}
	key, modern, declare := privateKey(client), false, []byte(`{}`)
	if client.Answers() {
		modern = client.Modern
		declare = only(abilitiesOf(client.WithoutTasks()), tool.CapabilityRoots, tool.CapabilitySampling, tool.CapabilityElicitation, "extensions")
	}
	principal := h.server.principal(of.Call)
	one := h.find(base, key, owner, principal, modern, declare)
	if one == nil {
		if key+principal != "" && h.count() >= maxPrivate {
			full := h.server.env.private.Refuse()
			if !h.makeRoom() {
				return nil, full
			}
		}
		one = &slot{connector: &connector{server: h.server, purpose: purpose{legacy: beside || !h.server.perUser(), declare: declare, principal: principal}}}
		if !modern { // requests outside of calls go to this session
			one.owner = key
		}
		h.add(one)
	}
	one.reserved, one.client, one.modern = true, key, modern
	one.calls++
	return one, nil
}

// release gives back a slot.
func (h *sharing) release(one *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.calls--
	one.idle = time.Now()
	switch {
	case !one.modern || one.calls > 0 || h.server.life.Err() != nil:
	case one == h.main || one.common:
		one.reserved = false
	case !one.knowsOnly("") && !h.server.questions.wantsRoots():
		h.remove(one) // no later call has the same roots: see learnRoots
	}
}

// remove closes a slot beside main. It does not wait. The lock is held.
func (h *sharing) remove(one *slot) {
	h.server.work.Go(one.close)
	h.beside = slices.DeleteFunc(h.beside, func(other *slot) bool { return other == one })
}

// add adds a slot beside main. The lock is held.
func (h *sharing) add(one *slot) {
	h.beside = append(h.beside, one)
	if !h.sweeping {
		h.sweeping = true
		h.server.work.Go(h.sweep)
	}
}

// common returns the slot that legacy clients share beside a main connection of 2026-07-28,
// until the server asks and each client gets its own. The lock is held.
func (h *sharing) common() *slot {
	if i := slices.IndexFunc(h.beside, func(one *slot) bool { return one.common }); i >= 0 {
		return h.beside[i]
	}
	one := &slot{connector: &connector{server: h.server, purpose: purpose{legacy: true, common: true, declare: h.server.settings.capabilities()}}}
	h.add(one)
	return one
}

// find returns a slot that the client has or may get: base, which belongs to no client at
// first, or a slot beside it. It never returns a slot whose server knows the roots of
// another owner. The lock is held.
func (h *sharing) find(base *slot, key string, owner rootsOwner, principal string, modern bool, declare []byte) *slot {
	for _, one := range append([]*slot{base}, h.beside...) {
		if one.reserved && one.client == key && one.principal == principal && one.knowsOnly(owner) {
			return one
		}
	}
	if base.principal == principal && base.calls == 0 && (!base.reserved || time.Since(base.idle) > legacyIdle) && base.knowsOnly(owner) {
		return base // preferred, because subscriptions and list_changed use it
	}
	for _, one := range h.beside {
		if modern && one.modern && one.principal == principal && one.calls == 0 && string(one.declare) == string(declare) && one.knowsOnly(owner) {
			return one
		}
	}
	return nil
}

// count returns the number of slots that count towards maxPrivate. The lock is held.
func (h *sharing) count() (n int) {
	for _, one := range h.beside {
		if !one.forAll() {
			n++
		}
	}
	return n
}

// makeRoom closes one slot. It prefers an idle slot of the modern era, then an idle slot of
// a session, and among these the slot that has been idle longest. If all are in use, it ends
// the calls of the client that has left questions unanswered longest. It reports false if
// there is no such client. The lock is held.
func (h *sharing) makeRoom() bool {
	var idle, silent *slot
	var longest time.Time
	for _, one := range h.beside {
		switch {
		case one.calls == 0 && !one.forAll():
			if idle == nil || one.modern && !idle.modern || one.modern == idle.modern && one.idle.Before(idle.idle) {
				idle = one
			}
		default:
			if since := one.unanswered(); !since.IsZero() && (silent == nil || since.Before(longest)) {
				silent, longest = one, since
			}
		}
	}
	victim := idle
	if victim == nil && silent != nil {
		victim = silent
		if c := victim.current(); c != nil {
			c.calls.giveUp(errGaveWay)
		}
	}
	if victim == nil {
		return false
	}
	h.remove(victim)
	return true
}

// sweep closes idle slots until the server's life ends.
func (h *sharing) sweep() {
	every := time.NewTicker(sweepEach)
	defer every.Stop()
	for {
		select {
		case <-h.server.life.Done():
			return
		case now := <-every.C:
			h.drop(func(one *slot) bool {
				limit := legacyIdle
				if one.modern {
					limit = modernIdle
				}
				return one.calls == 0 && now.Sub(one.idle) > limit && (one.reserved || !one.common)
			})
		}
	}
}

// drop removes the slots beside main for which out returns true. Each closes after its calls
// in flight have ended. It does not wait.
func (h *sharing) drop(out func(*slot) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server.life.Err() != nil {
		return // all connections are being closed
	}
	h.beside = slices.DeleteFunc(h.beside, func(one *slot) bool {
		if !out(one) {
			return false
		}
		h.server.work.Go(one.finish)
		return true
	})
}

// forget gives up the slots of a client that has left. Its calls in flight continue.
func (h *sharing) forget(key string) {
	h.mu.Lock()
	if h.main.reserved && h.main.client == key {
		h.main.reserved = false
	}
	h.mu.Unlock()
	h.drop(func(one *slot) bool { return one.client == key })
	if c := h.main.current(); c != nil {
		c.users.forget(key)
	}
}

// withoutHandshake notes that a legacy connection beside main is useless until main is made
// again: the server refused it with err, or opened no session in which it could ask. It
// reports false if the connection was given up: then err proves nothing.
func (h *sharing) withoutHandshake(one *slot, err error) bool {
	closed := one.isClosed()
	known := h.server.noHandshake.Load()
	if !closed {
		known = h.server.noHandshake.Swap(true)
	}
	if known || closed {
		return known
	}
	h.server.log.Debug("legacy clients share the connection of the 2026-07-28 era: the server has none for them that it could ask over", "error", err)
	h.drop(func(other *slot) bool { return other == one })
	return true
}

// connectors returns all connectors, beginning with main.
func (h *sharing) connectors() []*connector {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []*connector{h.main.connector}
	for _, one := range h.beside {
		all = append(all, one.connector)
	}
	return all
}

// connections returns all present connections.
func (h *sharing) connections() (all []*connection) {
	for _, l := range h.connectors() {
		if c := l.current(); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// commonProcess returns the connection that legacy clients share beside main, if it is over
// stdio; nil if not. It is a second process of the server, which reports changes that the
// main process does not know.
func (h *sharing) commonProcess() *connection {
	for _, l := range h.connectors() {
		if c := l.current(); l.common && c != nil && c.Transport == TransportStdio {
			return c
		}
	}
	return nil
}

// rootsChanged tells the server that a client's roots have changed, over the connections
// that only this client uses.
func (h *sharing) rootsChanged(key string) {
	for _, c := range h.connections() {
		if c.users.isOnly(key) {
			c.roots.notifyChanged()
		}
	}
}

// tellLevel tells the server the wanted log level over all connections. told is done once
// the server has answered.
func (h *sharing) tellLevel(told *sync.WaitGroup) {
	for _, c := range h.connections() {
		told.Add(1)
		if !c.Go(func() { defer told.Done(); c.level.tell() }) {
			told.Done()
		}
	}
}

// retire closes the connections selected by which, once their calls have ended. The main
// connection is made again at once if the server is watched. It does not wait.
func (h *sharing) retire(which func(c *connection) bool) {
	for _, l := range h.connectors() {
		l.spawn(func(c *connection) {
			switch {
			case c == nil || !which(c):
			case l.main:
				c.Retire()
			default:
				c.finish(errReplaced)
			}
		})
	}
}
