package upstream

import (
	"errors"
	"slices"
	"sync"
	"time"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// seats says which client has which connection to a server. A server that asks
// nobody anything has one for all: main. Of one that asks, every client that
// can be asked has its own, so that nothing can reach the wrong one, and all
// others share one; main is the first's that comes while it is free.
type seats struct {
	mu       sync.Mutex // guards what follows and the fields of the seats; never held over I/O
	main     *seat
	extra    []*seat
	sweeping bool
}

// seat is one connection and who has it.
type seat struct {
	line   *line
	common bool      // no client's from the start; see server.common
	held   bool      // it is kept for holder
	holder string    // key of a client, "" for all that cannot be asked
	modern bool      // holder is the key of one call: afterwards another call may have it
	calls  int       // that use it now
	idle   time.Time // since when calls is 0
}

const (
	maxExtra     = 64               // connections of a server beside its main one and that of clients that cannot be asked
	legacyIdle   = 10 * time.Minute // how long a session's connection is kept without a call
	modernIdle   = time.Minute      // how long a call's is kept for the next one
	sweepEach    = 15 * time.Second // how often idle connections are looked for
	capabilities = `{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},` +
		`"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`
)

var (
	errGaveWay = errors.New("the client has not answered what the server asked, and others wait for the server; call again")
)

// sit returns the seat for a call of client, who leaves it afterwards.
func (s *server) sit(client *tool.Client, p placing) (*seat, error) {
	t := &s.seats
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.life.Err() != nil {
		return nil, ErrClosed
	}
	base := t.main
	if p.beside {
		base = s.common()
	}
	if !p.alone {
		base.calls++
		return base, nil
	}
	key, modern, declare := seatKey(client), false, []byte(`{}`)
	if client.Answers() {
		modern = client.Modern
		declare = only(abilitiesOf(client.WithoutTasks()), tool.CapabilityRoots, tool.CapabilitySampling, tool.CapabilityElicitation, "extensions")
	}
	place := t.find(base, key, modern, declare)
	if place == nil {
		if key != "" && t.count() >= maxExtra {
			full := s.askers.Refuse()
			if !s.evict() && !s.oust() {
				return nil, full
			}
		}
		place = &seat{line: &line{server: s, legacy: true, declare: declare}}
		if !modern { // what it is asked outside of calls goes to this client
			place.line.owner = key
		}
		s.addSeat(place)
	}
	place.held, place.holder, place.modern = true, key, modern
	place.calls++
	return place, nil
}

// addSeat adds a connection beside the main one. Lock held.
func (s *server) addSeat(one *seat) {
	t := &s.seats
	t.extra = append(t.extra, one)
	if !t.sweeping {
		t.sweeping = true
		s.work.Go(s.sweep)
	}
}

// seatKey is the key of the client that a seat is kept for: "" for all clients
// that cannot be asked.
func seatKey(client *tool.Client) string {
	if client.Answers() {
		return client.Key
	}
	return ""
}

// find returns a seat that the client has or may have: base, which is no
// client's from the start, or another. Lock held.
func (t *seats) find(base *seat, key string, modern bool, declare []byte) *seat {
	for _, one := range append([]*seat{base}, t.extra...) {
		if one.held && one.holder == key {
			return one
		}
	}
	if base.calls == 0 && (!base.held || time.Since(base.idle) > legacyIdle) {
		return base // before the others: subscriptions and list_changed are its
	}
	if modern {
		for _, one := range t.extra {
			if one.modern && one.calls == 0 && string(one.line.declare) == string(declare) {
				return one
			}
		}
	}
	return nil
}

// leave ends what sit began.
func (s *server) leave(one *seat) {
	t := &s.seats
	t.mu.Lock()
	defer t.mu.Unlock()
	one.calls--
	one.idle = time.Now()
	if (one == t.main || one.common) && one.modern && one.calls == 0 {
		one.held = false
	}
}

// shared reports whether a seat is that of all clients that cannot be asked. There
// is one, so it needs no bound.
func (one *seat) shared() bool { return one.held && one.holder == "" }

// count is how many connections there are of clients that can be asked.
// Lock held.
func (t *seats) count() (n int) {
	for _, one := range t.extra {
		if !one.shared() {
			n++
		}
	}
	return n
}

// evict makes room by closing a connection that no call uses: one kept for
// whatever call comes next, else the one that has been idle longest. Lock held.
func (s *server) evict() bool {
	t := &s.seats
	victim := -1
	for i, one := range t.extra {
		switch {
		case one.calls > 0, one.shared():
		case victim < 0, one.modern && !t.extra[victim].modern,
			one.modern == t.extra[victim].modern && one.idle.Before(t.extra[victim].idle):
			victim = i
		}
	}
	if victim < 0 {
		return false
	}
	s.work.Go(t.extra[victim].line.close)
	t.extra = slices.Delete(t.extra, victim, victim+1)
	return true
}

// oust makes room by ending the calls of the client that has left a question of the
// server unanswered for longest. It reports false when none has: all connections
// are at work. Lock held.
func (s *server) oust() bool {
	t := &s.seats
	victim, longest := -1, time.Time{}
	for i, one := range t.extra {
		if since := one.unanswered(); !since.IsZero() && (victim < 0 || since.Before(longest)) {
			victim, longest = i, since
		}
	}
	if victim < 0 {
		return false
	}
	one := t.extra[victim]
	if c := one.line.current(); c != nil {
		c.giveWay()
	}
	s.work.Go(one.line.close)
	t.extra = slices.Delete(t.extra, victim, victim+1)
	return true
}

// unanswered is since when the client of a seat has been asked something, in all
// of its calls; the zero time if it has not. Lock of seats held.
func (one *seat) unanswered() (since time.Time) {
	c := one.line.current()
	if c == nil {
		return since
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flights) == 0 || len(c.flights) < one.calls {
		return since
	}
	for _, f := range c.flights {
		held := f.limit.heldSince()
		if held.IsZero() {
			return held
		}
		if since.IsZero() || held.Before(since) {
			since = held
		}
	}
	return since
}

// giveWay ends the calls over the connection: others need it.
func (c *conn) giveWay() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.flights {
		f.cancel(errGaveWay)
	}
}

// sweep closes connections that have been idle, until the server's life ends.
func (s *server) sweep() {
	every := time.NewTicker(sweepEach)
	defer every.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case now := <-every.C:
			s.drop(func(one *seat) bool {
				limit := legacyIdle
				if one.modern {
					limit = modernIdle
				}
				return one.calls == 0 && now.Sub(one.idle) > limit && (one.held || !one.common)
			})
		}
	}
}

// forget gives up what belongs to a client.
func (s *server) forget(key string) {
	t := &s.seats
	t.mu.Lock()
	if t.main.held && t.main.holder == key {
		t.main.held = false
	}
	t.mu.Unlock()
	s.drop(func(one *seat) bool { return one.holder == key })
	if c := t.main.line.current(); c != nil {
		c.disown(key)
	}
}

// askers is how many connections of clients that are asked the servers have.
func (p *Pool) askers() (n int64) {
	for _, s := range p.now.Load().order {
		s.seats.mu.Lock()
		n += int64(s.seats.count())
		s.seats.mu.Unlock()
	}
	return n
}

// drop closes the extra connections that out holds for, without waiting.
func (s *server) drop(out func(*seat) bool) {
	t := &s.seats
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.life.Err() != nil {
		return // everything is being closed
	}
	t.extra = slices.DeleteFunc(t.extra, func(one *seat) bool {
		if !out(one) {
			return false
		}
		s.work.Go(one.line.close)
		return true
	})
}

// lines returns all connections of the server.
func (s *server) lines() []*line {
	t := &s.seats
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []*line{t.main.line}
	for _, one := range t.extra {
		all = append(all, one.line)
	}
	return all
}

// rootsChanged tells the server over every connection that is the client's alone.
func (s *server) rootsChanged(key string) {
	for _, l := range s.lines() {
		if c := l.current(); c != nil && c.belongsTo(key) {
			c.tellRoots()
		}
	}
}

// users of a connection: what it asks outside of calls is for its only one.
type users struct {
	count  int    // nobody yet, one, or several
	key    string // of the one
	legacy bool   // the one has a session, in which it can be asked outside of calls
	roots  bool   // the server has asked for roots
}

const (
	usedByNobody = iota
	usedByOne
	usedBySeveral
)

// own makes the client that a call is of the only user of the connection. stale
// says that it was another's before, whose roots the server has asked for.
func (c *conn) own(client *tool.Client) (stale bool) {
	holder := seatKey(client)
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.users.count != usedByOne || c.users.key != holder
	c.users.key, c.users.count = holder, usedByOne
	c.users.legacy = client != nil && !client.Modern
	return changed && c.users.roots
}

// share notes a user of a connection that all clients share.
func (c *conn) share(client *tool.Client) {
	key, legacy := "", false
	if client != nil {
		key, legacy = client.Key, !client.Modern
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.users.count == usedByNobody:
		c.users.key, c.users.count, c.users.legacy = key, usedByOne, legacy
	case c.users.key != key:
		c.users.count = usedBySeveral
	}
}

// onlyUser is the key of the session that alone has used the connection, "" for
// none or several.
func (c *conn) onlyUser() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users.count != usedByOne || !c.users.legacy {
		return ""
	}
	return c.users.key
}

// disown sees to it that nobody asks a client that has left.
func (c *conn) disown(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users.count == usedByOne && c.users.key == key {
		c.users.count = usedByNobody
	}
}

func (c *conn) belongsTo(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return key != "" && c.users.count == usedByOne && c.users.key == key
}

// only returns the named members of an object, as an object.
func only(object []byte, names ...string) []byte {
	return pick(object, func(key string) bool { return slices.Contains(names, key) })
}

// without returns an object less the named members.
func without(object []byte, names ...string) []byte {
	return pick(object, func(key string) bool { return !slices.Contains(names, key) })
}

func pick(object []byte, wanted func(key string) bool) []byte {
	out := rawjson.NewObject(len(object))
	for key, value := range rawjson.Members(object) {
		if wanted(key) {
			out.Add(key, value)
		}
	}
	return out.JSON()
}
