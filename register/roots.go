package register

import (
	"context"
	"encoding/json"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

const methodRoots = "roots/list"

// roots are those of a session's client. A client that says when they change is
// asked for them once, whichever and however many servers want to know.
type roots struct {
	known   json.RawMessage // the result of roots/list, nil while it is not known
	asking  chan struct{}   // closed when there is an answer, nil while nobody asks
	changes int             // how often the client said that they have changed
}

// rootsChanged forgets the roots of the client.
func (s *session) rootsChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roots.known = nil
	s.roots.changes++
}

// keepsRoots reports whether the answer to a roots/list with these params holds
// until the client says otherwise.
func (s *session) keepsRoots(params json.RawMessage) bool {
	for range rawjson.Members(params) {
		return false // they may change the answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	says := rawjson.Member(rawjson.Member(s.capabilities, tool.CapabilityRoots), "listChanged")
	return string(says) == "true"
}

// askRoots returns the roots that are known, or those that ask gets.
func (s *session) askRoots(ctx context.Context, ask func() (json.RawMessage, error)) (json.RawMessage, error) {
	for {
		s.mu.Lock()
		known, asking, changes := s.roots.known, s.roots.asking, s.roots.changes
		mine := known == nil && asking == nil
		if mine {
			asking = make(chan struct{})
			s.roots.asking = asking
		}
		s.mu.Unlock()
		switch {
		case known != nil:
			return known, nil
		case mine:
			result, err := ask()
			s.mu.Lock()
			s.roots.asking = nil
			if err == nil && s.roots.changes == changes {
				s.roots.known = result
			}
			s.mu.Unlock()
			close(asking)
			return result, err
		}
		select {
		case <-asking:
		case <-s.gone:
			return nil, errClientGone
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
