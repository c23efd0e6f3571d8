package register

import (
	"cmp"
	"slices"
	"sync"

	"toolfinch/tool"
)

// provisioned are the provisioned tools of the client's last list or notification. The client is told
// when its list would differ.
type provisioned struct {
	mu    sync.Mutex // guards the fields below; held over look-ups, never over a write to the client
	owner string     // of the client's last request
	known bool       // the client has a list, which can be out of date
	tools []*tool.Tool
}

// by notes the owner of a request.
func (s *provisioned) by(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = owner
}

func (s *provisioned) isOf(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner == owner
}

func namesOf(tools []*tool.Tool) []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return names
}

// isKnown reports whether the client has a list.
func (s *provisioned) isKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// follow replaces the tools by the present ones, and returns them and the difference. owner is the
// owner of a list request, "" without a request.
func (s *provisioned) follow(owner string, listedTo func(owner string) []*tool.Tool) (now []*tool.Tool, change Change, differs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner, s.known = cmp.Or(owner, s.owner), s.known || owner != ""
	now = listedTo(s.owner)
	before := s.tools
	s.tools = now
	if slices.EqualFunc(before, now, func(a, b *tool.Tool) bool { return a.Name == b.Name && a.Def.Hash == b.Def.Hash }) {
		return now, Change{}, false
	}
	was, is := namesOf(before), namesOf(now)
	return now, Change{Added: without(is, was), Removed: without(was, is)}, true
}
