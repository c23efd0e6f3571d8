package conn

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// FirstDelay and MostDelay bound the delays between attempts, before jitter.
const (
	FirstDelay = 500 * time.Millisecond
	MostDelay  = time.Minute
)

// Delays pace repeated attempts: each delay is about twice the last one, with jitter. Delays begin anew after
// MostDelay without a call of Next. They are not for concurrent use.
type Delays struct {
	grow *backoff.ExponentialBackOff
	due  time.Time // time of the last attempt
}

// NewDelays returns Delays that begin with first.
func NewDelays(first time.Duration) *Delays {
	d := &Delays{grow: backoff.NewExponentialBackOff()}
	d.grow.InitialInterval, d.grow.MaxInterval = first, MostDelay
	d.Reset()
	return d
}

// Next returns how long to wait before the next attempt.
func (d *Delays) Next() time.Duration {
	if time.Since(d.due) > MostDelay {
		d.Reset()
	}
	wait := d.grow.NextBackOff()
	d.due = time.Now().Add(wait)
	return wait
}

// Reset makes the next delay the first one again.
func (d *Delays) Reset() { d.grow.Reset() }
