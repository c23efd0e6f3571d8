package upstream

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"toolfinch/upstream/conn"
)

// calls are the calls in flight over one connection.
type calls struct {
	conn   *conn.Conn
	shared bool // isolate: never is configured: clients share a connection despite different roots

	mu      sync.Mutex // guards the fields below; never held over I/O
	byID    map[int64]*call
	told    rootsOwner // owner of the roots that the server knows
	ended   event      // a call has ended
	stalled stallBudget
}

// add registers a call under the ID of its request, so that messages about the request
// find it. It reports false if the call must not be sent, because the server knows the
// roots of another owner.
func (t *calls) add(id int64, c *call) bool {
	owner := c.rootsOwner()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told != "" && t.told != owner {
		return false
	}
	t.byID[id] = c
	return true
}

func (t *calls) remove(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
	t.ended.happen()
}

// of returns the call of a request; nil if there is none.
func (t *calls) of(id int64) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// about returns the calls that a message on a stream may be about: the stream's own call,
// or else all calls in flight, because some servers send messages on any open stream of
// the session.
func (t *calls) about(stream int64) []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[stream]; c != nil {
		return []*call{c}
	}
	return slices.Collect(maps.Values(t.byID))
}

// latest returns the client's latest call in flight; nil if there is none.
func (t *calls) latest(key string) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last int64
	for id, c := range t.byID {
		if c.key() == key {
			last = max(last, id)
		}
	}
	return t.byID[last]
}

// count returns the number of calls, and a channel that is closed when a call ends.
func (t *calls) count() (n int, ended <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID), t.ended.next()
}

// giveUp ends all calls with err.
func (t *calls) giveUp(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byID {
		c.cancel(err)
	}
}

// unanswered returns the time since which every call waits for its client's answer. It is
// zero if a call does not wait, or if there are fewer calls than expected or none.
func (t *calls) unanswered(expected int) (since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byID) < max(expected, 1) {
		return since
	}
	for _, c := range t.byID {
		held := c.clock.heldSince()
		if held.IsZero() {
			return held
		}
		if since.IsZero() || held.Before(since) {
			since = held
		}
	}
	return since
}

// rootsOwner returns the owner of the roots that the server knows.
func (t *calls) rootsOwner() rootsOwner {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

// tellRoots notes that the server is told the roots of owner, who is the client with key.
// It refuses if the server knows the roots of another owner, or if calls of other clients
// are in flight. In the second case later is closed when a call has ended.
func (t *calls) tellRoots(owner rootsOwner, key string) (may bool, later <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if owner == "" || t.told != "" && t.told != owner {
		return false, nil
	}
	for _, c := range t.byID {
		if c.key() != key {
			return false, t.ended.next()
		}
	}
	t.told = owner
	return true, nil
}

// suspects are the calls that a question of the server may belong to at one moment.
type suspects struct {
	calls   []*call         // the latest first; of one client, unless unclear or err is set
	unclear bool            // several clients have calls, and at least one client could answer
	err     error           // several clients have calls, and no client could answer
	changed <-chan struct{} // closed when a call ends
}

// suspect returns the calls that a question on a stream may belong to.
func (t *calls) suspect(stream int64, capability string) suspects {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[stream]; c != nil {
		return suspects{calls: []*call{c}}
	}
	var found []*call
	several, able := false, false
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(t.byID))) {
		if !t.conn.Waits(id) {
			continue // answered
		}
		c := t.byID[id]
		found = append(found, c)
		several = several || c.key() != found[0].key()
		able = able || c.Client.Can(capability)
	}
	out := suspects{calls: found, unclear: several && able, changed: t.ended.next()}
	if several && !able {
		out.err = cannot(capability)
	}
	return out
}

// pass passes a notification on to the client of a call. It runs on the goroutine that
// reads the connection, and blocks while the client's queue is full, so that the server
// waits too. On the call's own stream no other client waits. On another stream the wait is
// bounded; after that, notifications are dropped.
func (t *calls) pass(stream int64, to *call, method string, params json.RawMessage) {
	message := notification{method, params}
	for room := to.notices.offer(message); room != nil; room = to.notices.offer(message) {
		if !t.stall(stream, to, room) {
			to.notices.drop()
			return
		}
	}
}

// stall waits for room in the queue, and reports whether to offer again.
func (t *calls) stall(stream int64, to *call, room <-chan struct{}) bool {
	tick := time.NewTicker(stallTick)
	defer tick.Stop()
	for waiting := true; waiting; {
		began := time.Now()
		select {
		case <-room:
			waiting = false
		case <-tick.C:
		case <-to.ctx.Done():
			return false
		case <-t.conn.Life.Done():
			return false
		}
		if !t.affordable(stream, to, time.Since(began)) {
			return false
		}
	}
	return true
}

// affordable reports whether the reader of the connection may have been blocked for d: no
// other call waited for it, or the budget allowed it.
func (t *calls) affordable(stream int64, to *call, d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stream != 0 && t.byID[stream] == to {
		return true
	}
	others := t.conn.Waiting()
	for id, one := range t.byID {
		if one == to && t.conn.Waits(id) {
			others--
		}
	}
	return others <= 0 || t.stalled.spend(d, time.Now())
}
