package upstream

import "time"

// slot is one connector and its present user.
type slot struct {
	*connector
	reserved bool      // only client may use it
	client   string    // key of a client; "" for all clients that cannot be asked
	modern   bool      // client is the key of one call; other calls may use the slot after it
	calls    int       // number of calls that use it now
	idle     time.Time // when calls became 0
}

// knowsOnly reports whether, over the slot's connection, the server knows no roots or only
// this owner's roots.
func (s *slot) knowsOnly(owner rootsOwner) bool {
	c := s.current()
	if c == nil {
		return true
	}
	told := c.calls.rootsOwner()
	return told == "" || told == owner
}

// forAll reports whether the slot is for all clients that cannot be asked. There is only one
// such slot, so it does not count towards the bound.
func (s *slot) forAll() bool { return s.reserved && s.client == "" && s.principal == "" }

// unanswered returns the time since which all calls over the slot wait for their client's
// answer; zero if a call does not wait. The lock of sharing is held.
func (s *slot) unanswered() (since time.Time) {
	if c := s.current(); c != nil {
		return c.calls.unanswered(s.calls)
	}
	return since
}
