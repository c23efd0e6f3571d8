// Package limit bounds quantities that strangers can increase: it counts them, refuses more than the bound, and
// counts the refusals. It does not know what they measure.
package limit

import (
	"fmt"
	"sync/atomic"
)

// Limit bounds the quantity of one thing. Its methods are safe for concurrent use.
type Limit struct {
	name, what, advice string
	max                int64
	own                bool // max is for each owner
	used, hits         atomic.Int64
	measure            func() int64 // returns the quantity; nil: it is in used
}

// New returns a limit of max. name is its name in metrics and documentation; what completes "too many"; advice says
// what to do.
func New(name string, max int64, what, advice string) *Limit {
	return &Limit{name: name, what: what, advice: advice, max: max}
}

// Measured is New for a quantity that used returns.
func Measured(name string, max int64, what, advice string, used func() int64) *Limit {
	l := New(name, max, what, advice)
	l.measure = used
	return l
}

// Error says that a limit was reached, and what to do.
type Error struct{ limit *Limit }

func (e *Error) Error() string {
	return fmt.Sprintf("too many %s: the limit is %d; %s", e.limit.what, e.limit.max, e.limit.advice)
}

// Own reports whether only one owner's share is used up.
func (e *Error) Own() bool { return e.limit.own }

// Name is the limit's name.
func (l *Limit) Name() string { return l.name }

// Max is the bound.
func (l *Limit) Max() int64 { return l.max }

// Used is the present quantity.
func (l *Limit) Used() int64 {
	if l.measure != nil {
		return l.measure()
	}
	return l.used.Load()
}

// Hits counts the refusals since the start.
func (l *Limit) Hits() int64 { return l.hits.Load() }

// Take takes n. The error is an *Error.
func (l *Limit) Take(n int64) error { return l.TakeBelow(n, l.max) }

// TakeBelow is Take with a lower bound, which leaves the rest to other callers.
func (l *Limit) TakeBelow(n, most int64) error {
	for {
		used := l.used.Load()
		if used+n > most {
			return l.Refuse()
		}
		if l.used.CompareAndSwap(used, used+n) { // a refused quantity must not count against others
			return nil
		}
	}
}

// TakeOf takes one from the share of an owner; has is the owner's present count. Used returns the sum of all owners.
func (l *Limit) TakeOf(has *atomic.Int64) error {
	if has.Add(1) > l.max {
		has.Add(-1)
		return l.Refuse()
	}
	l.used.Add(1)
	return nil
}

// Refuse counts a refusal made elsewhere, and returns its error.
func (l *Limit) Refuse() error {
	l.hits.Add(1)
	return &Error{l}
}

// Count adds to the quantity after the caller's own check.
func (l *Limit) Count(n int64) { l.used.Add(n) }

// Release returns a quantity to the limit.
func (l *Limit) Release(n int64) { l.used.Add(-n) }

// ReleaseOf undoes TakeOf.
func (l *Limit) ReleaseOf(has *atomic.Int64) {
	has.Add(-1)
	l.used.Add(-1)
}
