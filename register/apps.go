package register

import (
	"slices"
	"strings"

	"toolfinch/tool"
)

// appScheme is what URIs of apps begin with (MCP Apps).
const appScheme = "ui://"

// maxApps is how many servers are remembered whose apps a session has.
const maxApps = 16

// reads notes that the session's client reads a resource: the app that it is may
// call tools of its server. s may be nil.
func (s *session) reads(id tool.ID) {
	if s == nil || !strings.HasPrefix(id.Name, appScheme) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(s.apps), func(server string) bool { return server == id.Server })
	s.apps = append([]string{id.Server}, others[:min(len(others), maxApps-1)]...)
}

// appsOpen are the servers whose apps the session's client has, the last first.
// s may be nil.
func (s *session) appsOpen() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps
}
