// Package limit bounds what strangers can make grow: it counts, refuses what
// is too much, and says how often that was. It knows nothing of what it counts.
package limit

import (
	"fmt"
	"sync/atomic"
)

// Limit is how much of one thing there may be at once. Its methods are safe for
// concurrent use.
type Limit struct {
	name, what, advice string
	max                int64
	own                bool // of each owner
	used, hits         atomic.Int64
	measure            func() int64 // nil: used says it
}

// New returns a limit of max. name is that of metrics and of the documentation;
// what completes "too many", or "too much"; advice says what to do about it.
func New(name string, max int64, what, advice string) *Limit {
	return &Limit{name: name, what: what, advice: advice, max: max}
}

// Measured is New for what is counted elsewhere: used is asked how much there is.
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

// Own reports whether it was the share of one owner that was used up, so that others may go on.
func (e *Error) Own() bool { return e.limit.own }

// Name is that of the limit.
func (l *Limit) Name() string { return l.name }

// Max is how much there may be.
func (l *Limit) Max() int64 { return l.max }

// Used is how much there is now.
func (l *Limit) Used() int64 {
	if l.measure != nil {
		return l.measure()
	}
	return l.used.Load()
}

// Hits is how often the limit was reached since the start.
func (l *Limit) Hits() int64 { return l.hits.Load() }

// Take takes n of what there may be. The error is an *Error.
func (l *Limit) Take(n int64) error { return l.TakeBelow(n, l.max) }

// TakeBelow is Take up to a lower limit, which leaves the rest to others.
func (l *Limit) TakeBelow(n, most int64) error {
	for {
		used := l.used.Load()
		if used+n > most {
			return l.Refuse()
		}
		if l.used.CompareAndSwap(used, used+n) { // what is refused must not refuse others
			return nil
		}
	}
}

// TakeOf takes one of what each owner may have; has is what this one has. What is
// used is that of all owners.
func (l *Limit) TakeOf(has *atomic.Int64) error {
	if has.Add(1) > l.max {
		has.Add(-1)
		return l.Refuse()
	}
	l.used.Add(1)
	return nil
}

// Refuse counts a refusal of what is counted elsewhere, and returns its error.
func (l *Limit) Refuse() error {
	l.hits.Add(1)
	return &Error{l}
}

// Count adds to what is used, where who counts has checked it.
func (l *Limit) Count(n int64) { l.used.Add(n) }

// Release gives back what Take took.
func (l *Limit) Release(n int64) { l.used.Add(-n) }

// ReleaseOf gives back what TakeOf took.
func (l *Limit) ReleaseOf(has *atomic.Int64) {
	has.Add(-1)
	l.used.Add(-1)
}
