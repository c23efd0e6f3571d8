package upstream

import (
	"sync"
	"time"
)

// clock ends a call after two limits: idle, from one sign of life of the server to
// the next, and total. It stands still while somebody holds it.
type clock struct {
	idle time.Duration
	end  func(limit time.Duration) // gets the limit in full

	mu        sync.Mutex // guards what follows
	timer     *time.Timer
	total     time.Duration
	idleLeft  time.Duration // at the time that is since
	totalLeft time.Duration
	since     time.Time
	holds     int
	held      time.Time // since when it stands still; zero while it runs
	over      bool
}

func newClock(idle, total time.Duration, end func(limit time.Duration)) *clock {
	c := &clock{idle: idle, total: total, end: end, idleLeft: idle, totalLeft: total, since: time.Now()}
	c.timer = time.AfterFunc(min(idle, total), c.expire)
	return c
}

func (c *clock) expire() {
	c.mu.Lock()
	limit := c.idle
	if c.totalLeft < c.idleLeft {
		limit = c.total
	}
	running := !c.over && c.holds == 0
	c.mu.Unlock()
	if running {
		c.end(limit)
	}
}

// elapse takes off the time that has passed. Lock held, and the clock runs.
func (c *clock) elapse() {
	now := time.Now()
	c.idleLeft -= now.Sub(c.since)
	c.totalLeft -= now.Sub(c.since)
	c.since = now
}

// run starts the timer anew. Lock held.
func (c *clock) run() {
	if c.holds == 0 && !c.over {
		c.since = time.Now()
		c.timer.Reset(max(0, min(c.idleLeft, c.totalLeft)))
	}
}

// renew makes the whole idle limit count from now on.
func (c *clock) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds == 0 {
		c.elapse()
	}
	c.idleLeft = c.idle
	c.run()
}

// hold stops the clock until every hold was released.
func (c *clock) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds++; c.holds == 1 {
		c.timer.Stop()
		c.elapse()
		c.held = c.since
	}
}

func (c *clock) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds--; c.holds == 0 {
		c.held = time.Time{}
		c.run()
	}
}

// heldSince is since when the clock stands still, the zero time while it runs.
func (c *clock) heldSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
}

// event is something that happens again and again. Its owner's lock guards it.
type event struct{ c chan struct{} }

// next returns what is closed when the event happens the next time.
func (e *event) next() <-chan struct{} {
	if e.c == nil {
		e.c = make(chan struct{})
	}
	return e.c
}

func (e *event) happen() {
	if e.c != nil {
		close(e.c)
		e.c = nil
	}
}

// wake leaves a signal in a channel that holds one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drainSignal takes the signal out of a channel, and reports whether there was one.
func drainSignal(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
