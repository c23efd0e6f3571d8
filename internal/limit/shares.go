package limit

import "sync"

// Shares bounds the quantity of one thing for each owner. Used returns the sum of all owners. The methods are safe
// for concurrent use.
type Shares struct {
	Limit

	mu sync.Mutex       // guards of; held for look-ups only
	of map[string]int64 // quantities by owner, never 0
}

// NewShares is New, but max is for each owner.
func NewShares(name string, max int64, what, advice string) *Shares {
	s := &Shares{of: map[string]int64{}}
	s.name, s.what, s.advice, s.max, s.own = name, what, advice, max, true
	return s
}

// TakeFor takes one for an owner. The owner "" has no limit. The error is an *Error.
func (s *Shares) TakeFor(owner string) error {
	if owner == "" {
		return nil
	}
	s.mu.Lock()
	full := s.of[owner] >= s.max
	if !full {
		s.of[owner]++
	}
	s.mu.Unlock()
	if full {
		return s.Refuse()
	}
	s.Count(1)
	return nil
}

// ReleaseFor undoes TakeFor.
func (s *Shares) ReleaseFor(owner string) {
	if owner == "" {
		return
	}
	s.mu.Lock()
	if s.of[owner]--; s.of[owner] == 0 {
		delete(s.of, owner)
	}
	s.mu.Unlock()
	s.Count(-1)
}
