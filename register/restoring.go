package register

import "slices"

// unrestored are the URIs that the session is yet to be subscribed to.
func (s *session) unrestored() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.restoring)
}

// restored notes that the session need not be subscribed to a URI any more, and reports whether
// its client still wants that.
func (s *session) restored(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.forget(uri)
	return was || s.rejoining == uri && s.rejoined
}

// asked notes that the client subscribes to a URI itself, or unsubscribes.
func (s *session) asked(uri string, subscribes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejoining == uri {
		s.rejoined = subscribes
	}
	if !subscribes {
		s.forget(uri)
	}
}

// forget takes a URI out of those to restore, and reports whether it was one; the caller holds the lock.
func (s *session) forget(uri string) bool {
	before := len(s.restoring)
	s.restoring = slices.DeleteFunc(slices.Clone(s.restoring), func(one string) bool { return one == uri })
	return len(s.restoring) < before
}
