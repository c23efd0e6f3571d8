package upstream

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// notificationQueue holds the notifications on their way to the client of one call. A
// goroutine of its own passes them on in order. If the queue is full, the goroutine that
// reads the connection waits, and with it the server: see calls.pass.
type notificationQueue struct {
	notify func(method string, params json.RawMessage) // nil for a client that wants no notifications
	life   context.Context                             // ends with the call

	mu      sync.Mutex // guards the fields below; never held over notify
	waiting []notification
	bytes   int // length of the waiting params
	room    event
	dropped int  // number of notifications that were not passed on
	lagging bool // set by a drop until the queue is empty: nobody waits for the client
	passing bool
	over    bool
	work    sync.WaitGroup
}

type notification struct {
	method string
	params json.RawMessage
}

// Bounds of one queue in notifications and bytes. A single notification may be longer.
const (
	maxWaiting      = 256
	maxWaitingBytes = 1 << 20
)

// offer queues a notification, or drops it if the client lags. If the queue is full, offer
// does nothing and returns a channel that is closed when there is room.
func (n *notificationQueue) offer(message notification) (room <-chan struct{}) {
	if n.notify == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return nil
	}
	if len(n.waiting) >= maxWaiting || len(n.waiting) > 0 && n.bytes+len(message.params) > maxWaitingBytes {
		switch {
		case n.life.Err() != nil: // the call has ended
			return nil
		case n.lagging:
			n.dropped++
			return nil
		}
		return n.room.next()
	}
	n.waiting = append(n.waiting, message)
	n.bytes += len(message.params)
	if !n.passing {
		n.passing = true
		n.work.Go(n.pass)
	}
	return nil
}

// drop counts a notification as dropped.
func (n *notificationQueue) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over && n.life.Err() == nil {
		n.dropped++
		n.lagging = true
	}
}

// pass passes the queue on to the client.
func (n *notificationQueue) pass() {
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

// end closes the queue to new notifications.
func (n *notificationQueue) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	n.room.happen()
}

// stallMost is how long slow clients may block the reader of a connection while other
// clients wait for answers. Blocked time is forgiven stallEarned times slower than it is
// spent.
const (
	stallMost   = 5 * time.Second
	stallEarned = 4
	stallTick   = 50 * time.Millisecond
)

// stallBudget is the time for which a connection's reader may still be blocked.
type stallBudget struct {
	spent time.Duration
	at    time.Time // when spent was computed
}

// spend takes d from the budget, and reports whether the budget allowed it.
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
