package upstream

import (
	"sync"
	"time"
)

// clock ends a call at the first of two limits: idle counts from the server's last
// sign of life, total from the start. The clock stands still while somebody holds it.
type clock struct {
	idle time.Duration
	end  func(limit time.Duration) // gets idle or total, whichever was reached

	mu        sync.Mutex // guards the fields below
	timer     *time.Timer
	total     time.Duration
	idleLeft  time.Duration // rest of idle at the time since
	totalLeft time.Duration
	since     time.Time
	holds     int
	held      time.Time // when the clock was stopped; zero while it runs
	over      bool      // the call has ended
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

// elapse subtracts the time that has passed. The lock is held, and the clock runs.
func (c *clock) elapse() {
	now := time.Now()
	c.idleLeft -= now.Sub(c.since)
	c.totalLeft -= now.Sub(c.since)
	c.since = now
}

// run starts the timer again. The lock is held.
func (c *clock) run() {
	if c.holds == 0 && !c.over {
		c.since = time.Now()
		c.timer.Reset(max(0, min(c.idleLeft, c.totalLeft)))
	}
}

// renew restarts the idle limit.
func (c *clock) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds == 0 {
		c.elapse()
	}
	c.idleLeft = c.idle
	c.run()
}

// hold stops the clock until every hold is released.
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

// heldSince returns when the clock was stopped; the zero time while it runs.
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
