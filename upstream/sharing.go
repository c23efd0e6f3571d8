package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// sharing says which client uses which connection to a server. A server that asks
// nobody anything has one for all: main. Of one that asks, every client that can
// be asked has a private one, so that nothing can reach the wrong client, and all
// others share one; main is private to the first client that comes while it is
// free. What a server was told of roots it may keep, whatever it is told after that:
// its connection is for nobody else from then on.
//
// Servers that speak both eras document that they ask their client something in
// the legacy era only. So legacy clients that can be asked get a connection of
// their own era beside a main one of 2026-07-28.
type sharing struct {
	server *server
	trials trials

	mu          sync.Mutex // guards what follows and the fields of the slots; never held over I/O
	main        *slot
	others      []*slot
	sweeping    bool
	noHandshake bool // a legacy connection beside the main one gives clients nothing
}

// slot is one connection and who uses it.
type slot struct {
	*connector
	held   bool      // it is kept for client
	client string    // key of a client, "" for all that cannot be asked
	modern bool      // client is the key of one call: afterwards another call may have it
	calls  int       // that use it now
	idle   time.Time // since when calls is 0
}

const (
	maxPrivate   = 64               // connections of a server beside its main one and that of clients that cannot be asked
	legacyIdle   = 10 * time.Minute // how long a session's connection is kept without a call
	modernIdle   = time.Minute      // how long a call's is kept for the next one
	sweepEach    = 15 * time.Second // how often idle connections are looked for
	capabilities = `{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},` +
		`"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`
)

// use is the use of a connection by one call.
type use struct {
	*connection
	alone bool // no other client uses the connection
	end   func(answered bool)
}

// acquire returns a connection for a call. The call may have to wait until it is
// known whether the server asks.
func (h *sharing) acquire(ctx context.Context, c *call, r request) (*use, error) {
	client := c.Client
	u, err := h.take(ctx, c)
	if err != nil || u.alone || !client.Answers() || r.def == nil || u.Era != EraLegacy || !u.mixesUp(client) {
		return u, err
	}
	tried, asks, err := h.trials.begin(ctx, client.Key, r.def.ID, h.server.questions.begun)
	if err == nil && !asks {
		end := u.end
		u.end = func(answered bool) { tried(answered); end(answered) }
		return u, nil
	}
	u.end(false)
	if err != nil {
		return nil, err
	}
	return h.take(ctx, c) // a private one, now
}

// mixesUp reports whether what the server asks could reach, or speak of, another
// client. Over HTTP a question comes on the stream of its call, but roots may be kept
// for the whole session.
func (u *use) mixesUp(client *tool.Client) bool {
	return u.Transport != TransportHTTP || client.Can(tool.CapabilityRoots) && !u.calls.shared
}

// take returns the connection of the kind that a call is to have.
func (h *sharing) take(ctx context.Context, of *call) (*use, error) {
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
			return &use{c, alone, func(bool) { h.release(one) }}, nil
		}
		h.release(one)
		if !beside || ctx.Err() != nil || !h.withoutHandshake(one, err) {
			return nil, err
		}
	}
}

// kind decides which kind of connection a call of client is to have: beside the main
// one, which is of 2026-07-28, and alone.
func (h *sharing) kind(ctx context.Context, client *tool.Client) (beside, alone bool, err error) {
	s := h.server
	h.mu.Lock()
	handshakes := !h.noHandshake
	h.mu.Unlock()
	era, met := s.health.met()
	if s.perUser() { // each caller's connection finds out for itself
		met = true
	}
	isolate := s.settings.Isolate == IsolateAlways || s.settings.Isolate != IsolateNever && s.questions.any()
	legacy := client.Answers() && !client.Modern
	if isolate && era == EraUnknown && !s.perUser() || legacy && era != EraLegacy && !met {
		c, err := s.connect(ctx)
		if err != nil {
			return false, false, err
		}
		era = c.Era
	}
	beside = legacy && era == EraModern && handshakes
	return beside, isolate && (era == EraLegacy || beside), nil
}

// reserve returns the slot for a call, until release.
func (h *sharing) reserve(of *call, beside, alone bool) (*slot, error) {
	client, whose := of.Client, of.whose()
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
	one := h.find(base, key, whose, principal, modern, declare)
	if one == nil {
		if key+principal != "" && h.count() >= maxPrivate {
			full := h.server.private.Refuse()
			if !h.makeRoom() {
				return nil, full
			}
		}
		one = &slot{connector: &connector{server: h.server, legacy: beside || !h.server.perUser(), declare: declare, principal: principal}}
		if !modern { // what it is asked outside of calls goes to this client
			one.owner = key
		}
		h.add(one)
	}
	one.held, one.client, one.modern = true, key, modern
	one.calls++
	return one, nil
}

// release ends what reserve began.
func (h *sharing) release(one *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.calls--
	one.idle = time.Now()
	switch {
	case !one.modern || one.calls > 0 || h.server.life.Err() != nil:
	case one == h.main || one.common:
		one.held = false
	case !one.knowsOnly("") && !h.server.questions.wantsRoots():
		h.remove(one) // no call comes with these roots: see learnRoots
	}
}

// remove closes a connection beside the main one, without waiting. Lock held.
func (h *sharing) remove(one *slot) {
	h.server.work.Go(one.close)
	h.others = slices.DeleteFunc(h.others, func(other *slot) bool { return other == one })
}

// add adds a connection beside the main one. Lock held.
func (h *sharing) add(one *slot) {
	h.others = append(h.others, one)
	if !h.sweeping {
		h.sweeping = true
		h.server.work.Go(h.sweep)
	}
}

// common returns the slot of legacy clients beside a main one of 2026-07-28, until
// the server has asked something and each gets its own. Lock held.
func (h *sharing) common() *slot {
	if i := slices.IndexFunc(h.others, func(one *slot) bool { return one.common }); i >= 0 {
		return h.others[i]
	}
	one := &slot{connector: &connector{server: h.server, legacy: true, common: true, declare: []byte(capabilities)}}
	h.add(one)
	return one
}

// privateKey is the key of the client that a slot is kept for: "" for all clients
// that cannot be asked.
func privateKey(client *tool.Client) string {
	if client.Answers() {
		return client.Key
	}
	return ""
}

// find returns a slot that the client has or may have: base, which is no client's
// from the start, or another; none whose server knows roots that are not whose.
// Lock held.
func (h *sharing) find(base *slot, key, whose, principal string, modern bool, declare []byte) *slot {
	for _, one := range append([]*slot{base}, h.others...) {
		if one.held && one.client == key && one.principal == principal && one.knowsOnly(whose) {
			return one
		}
	}
	if base.principal == principal && base.calls == 0 && (!base.held || time.Since(base.idle) > legacyIdle) && base.knowsOnly(whose) {
		return base // before the others: subscriptions and list_changed are its
	}
	for _, one := range h.others {
		if modern && one.modern && one.principal == principal && one.calls == 0 && string(one.declare) == string(declare) && one.knowsOnly(whose) {
			return one
		}
	}
	return nil
}

// knowsOnly reports whether the server over the slot's connection knows nobody's
// roots but those, as of call.whose.
func (one *slot) knowsOnly(whose string) bool {
	c := one.current()
	if c == nil {
		return true
	}
	told := c.calls.whose()
	return told == "" || told == whose
}

// forAll reports whether a slot is that of all clients that cannot be asked. There
// is one, so it needs no bound.
func (one *slot) forAll() bool { return one.held && one.client == "" && one.principal == "" }

// count is how many connections there are of clients that can be asked.
// Lock held.
func (h *sharing) count() (n int) {
	for _, one := range h.others {
		if !one.forAll() {
			n++
		}
	}
	return n
}

// makeRoom closes a connection: one that no call uses, of those one that is kept for
// whatever call comes next, and of those the one that has been idle longest. Where
// all are used, it ends the calls of the client that has left questions unanswered
// for longest. It reports false when there is none such. Lock held.
func (h *sharing) makeRoom() bool {
	var idle, silent *slot
	var longest time.Time
	for _, one := range h.others {
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

// unanswered is since when the client of a slot has been asked something, in all
// of its calls; the zero time if it has not. Lock of sharing held.
func (one *slot) unanswered() (since time.Time) {
	if c := one.current(); c != nil {
		return c.calls.unanswered(one.calls)
	}
	return since
}

// sweep closes connections that have been idle, until the server's life ends.
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
				return one.calls == 0 && now.Sub(one.idle) > limit && (one.held || !one.common)
			})
		}
	}
}

// drop ends the connections beside the main one that out holds for, each when its calls in flight have
// ended, without waiting.
func (h *sharing) drop(out func(*slot) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server.life.Err() != nil {
		return // everything is being closed
	}
	h.others = slices.DeleteFunc(h.others, func(one *slot) bool {
		if !out(one) {
			return false
		}
		h.server.work.Go(one.finish)
		return true
	})
}

// forget gives up what belongs to a client, whose calls in flight go on.
func (h *sharing) forget(key string) {
	h.mu.Lock()
	if h.main.held && h.main.client == key {
		h.main.held = false
	}
	h.mu.Unlock()
	h.drop(func(one *slot) bool { return one.client == key })
	if c := h.main.current(); c != nil {
		c.users.forget(key)
	}
}

// withoutHandshake notes that a legacy connection beside the main one gives
// clients nothing, until the main one is made anew: the server refused it, with
// err, or has no session over it, in which it could ask. It reports false when
// that is not certain because the connection was given up.
func (h *sharing) withoutHandshake(one *slot, err error) bool {
	closed := one.isClosed()
	h.mu.Lock()
	known := h.noHandshake
	h.noHandshake = known || !closed
	h.mu.Unlock()
	if known || closed {
		return known
	}
	h.server.log.Debug("legacy clients share the connection of the 2026-07-28 era: the server has none for them that it could ask over", "error", err)
	h.drop(func(other *slot) bool { return other == one })
	return true
}

// mainDialled has withoutHandshake found out anew.
func (h *sharing) mainDialled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noHandshake = false
}

// connectors returns all connectors, the main one first.
func (h *sharing) connectors() []*connector {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []*connector{h.main.connector}
	for _, one := range h.others {
		all = append(all, one.connector)
	}
	return all
}

// connections returns all connections that are there.
func (h *sharing) connections() (all []*connection) {
	for _, l := range h.connectors() {
		if c := l.current(); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// beside returns the connection of legacy clients over stdio beside the main one,
// nil without. It is another process, which tells of changes that the main one
// does not know.
func (h *sharing) beside() *connection {
	for _, l := range h.connectors() {
		if c := l.current(); l.common && c != nil && c.Transport == TransportStdio {
			return c
		}
	}
	return nil
}

// rootsChanged tells the server over every connection that is the client's alone.
func (h *sharing) rootsChanged(key string) {
	for _, c := range h.connections() {
		if c.users.isOnly(key) {
			c.roots.tell()
		}
	}
}

// only returns the named members of an object, as an object.
func only(object []byte, names ...string) json.RawMessage {
	return pick(object, func(key string) bool { return slices.Contains(names, key) })
}

// without returns an object less the named members.
func without(object []byte, names ...string) json.RawMessage {
	return pick(object, func(key string) bool { return !slices.Contains(names, key) })
}

func pick(object []byte, wanted func(key string) bool) json.RawMessage {
	out := rawjson.NewObject(len(object))
	for key, value := range rawjson.Members(object) {
		if wanted(key) {
			out.Add(key, value)
		}
	}
	return out.JSON()
}
