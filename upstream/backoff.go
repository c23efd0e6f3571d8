package upstream

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Bounds of the delays between attempts, before jitter.
const (
	firstDelay = 500 * time.Millisecond
	mostDelay  = time.Minute
)

// delays paces the attempts at one thing: exponential, with jitter. Every retry
// of the package takes its delay from one. The delays begin anew after the thing
// has gone well for longer than mostDelay. Not for concurrent use.
type delays struct {
	grow *backoff.ExponentialBackOff
	due  time.Time // when the last attempt was to be made
}

func newDelays(first time.Duration) *delays {
	d := &delays{grow: backoff.NewExponentialBackOff()}
	d.grow.InitialInterval, d.grow.MaxInterval = first, mostDelay
	d.reset()
	return d
}

// next returns how long to wait before the next attempt.
func (d *delays) next() time.Duration {
	if time.Since(d.due) > mostDelay {
		d.reset()
	}
	wait := d.grow.NextBackOff()
	d.due = time.Now().Add(wait)
	return wait
}

// reset makes the next delay the first one again.
func (d *delays) reset() { d.grow.Reset() }

// pause reports whether the connection and ctx outlived a delay.
func (c *conn) pause(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-c.service.Done():
		return false
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
