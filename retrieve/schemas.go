package retrieve

import (
	"context"
	"encoding/json"
	"sync"

	"toolfinch/internal/schema"
	"toolfinch/tool"
)

// schemas holds compiled input schemas by the hash of their definition.
type schemas struct {
	*schema.Cache
	mu   sync.Mutex      // guards said
	said map[string]bool // hashes of definitions for which first has returned true
}

// forget forgets all schemas once there are more than most: some are of definitions
// that are gone.
func (s *schemas) forget(most int) {
	s.Forget(most)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.said) > most {
		clear(s.said)
	}
}

// check returns what is wrong with the arguments. The error is schema.ErrSchema if only
// the upstream can tell, schema.ErrValue if nobody should try.
func (s *schemas) check(ctx context.Context, def *tool.Def, arguments json.RawMessage) ([]string, error) {
	if def.InputSchema == nil {
		return nil, nil
	}
	return s.Check(ctx, def.Hash, def.InputSchema, arguments)
}

// first reports whether this is its first call with def.
func (s *schemas) first(def *tool.Def) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said[def.Hash] {
		return false
	}
	if s.said == nil {
		s.said = map[string]bool{}
	}
	s.said[def.Hash] = true
	return true
}
