package upstream

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// notices are the notifications on their way to the client of one call. They are
// passed on one after the other, off the loop that reads the connection. When too
// many wait, that loop waits too, and so does the server: see calls.pass.
type notices struct {
	notify func(method string, params json.RawMessage) // nil for a client that wants none
	life   context.Context                             // of the call

	mu      sync.Mutex // guards what follows; never held over notify
	waiting []notice
	bytes   int // of their params
	room    event
	dropped int  // the client did not get
	lagging bool // one was dropped, and the client has not caught up since: nobody waits for it
	passing bool
	over    bool
	work    sync.WaitGroup
}

type notice struct {
	method string
	params json.RawMessage
}

// Bounds of the notifications that wait for one client, in number and in bytes.
// A single one may be longer.
const (
	maxWaiting      = 256
	maxWaitingBytes = 1 << 20
)

// offer takes a notification for the client, or drops it when the client lags.
// When too much waits for the client, it takes nothing and returns a channel that
// is closed when that has changed.
func (n *notices) offer(one notice) (room <-chan struct{}) {
	if n.notify == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return nil
	}
	if len(n.waiting) >= maxWaiting || len(n.waiting) > 0 && n.bytes+len(one.params) > maxWaitingBytes {
		switch {
		case n.life.Err() != nil: // nobody waits for it
			return nil
		case n.lagging:
			n.dropped++
			return nil
		}
		return n.room.next()
	}
	n.waiting = append(n.waiting, one)
	n.bytes += len(one.params)
	if !n.passing {
		n.passing = true
		n.work.Go(n.pass)
	}
	return nil
}

// drop counts a notification that the client does not get.
func (n *notices) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over && n.life.Err() == nil {
		n.dropped++
		n.lagging = true
	}
}

// pass passes on what waits.
func (n *notices) pass() {
	for {
		n.mu.Lock()
		if len(n.waiting) == 0 {
			n.passing, n.lagging = false, false
			n.mu.Unlock()
			return
		}
		next := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.bytes -= len(next.params)
		n.room.happen()
		n.mu.Unlock()
		n.notify(next.method, next.params)
	}
}

// end takes no more.
func (n *notices) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	n.room.happen()
}

// stallMost is how long in a row clients that read slowly may keep a connection
// from being read on which others wait for answers. That time comes back
// stallEarned times slower than it passes.
const (
	stallMost   = 5 * time.Second
	stallEarned = 4
	stallTick   = 50 * time.Millisecond
)

// stallBudget is how long a connection may still be kept from being read.
type stallBudget struct {
	spent time.Duration
	at    time.Time // when spent was right
}

// spend reports whether d was still allowed.
func (s *stallBudget) spend(d time.Duration, now time.Time) bool {
	if !s.at.IsZero() {
		s.spent = max(0, s.spent-now.Sub(s.at)/stallEarned)
	}
	s.at = now
	if s.spent+d > stallMost {
		return false
	}
	s.spent += d
	return true
}

// pass passes a notification on to the client of a call. It runs on the loop that
// reads the connection and waits while too much waits for that client: nothing
// more is read from the server, which has to wait too. On a stream of the call's
// own that harms nobody; elsewhere it has a bound, after which notifications are
// dropped.
func (t *calls) pass(stream int64, to *call, method string, params json.RawMessage) {
	one := notice{method, params}
	for room := to.notices.offer(one); room != nil; room = to.notices.offer(one) {
		if !t.stall(stream, to, room) {
			to.notices.drop()
			return
		}
	}
}

// stall waits for room, and reports whether to try again.
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

// affordable reports whether the connection could go unread for d more, because
// nobody else waited for it or because that was within its bound.
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
