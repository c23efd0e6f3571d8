package retrieve

import (
	"context"
	"encoding/json"
	"sync"

	"toolfinch/internal/schema"
	"toolfinch/tool"
)

// schemas caches compiled input schemas by the hash of their definition.
type schemas struct {
	*schema.Cache
	mu       sync.Mutex      // guards reported
	reported map[string]bool // hashes of definitions that firstReport has returned true for
}

// forget empties the cache once it has more than most schemas: some belong to definitions that are gone.
func (s *schemas) forget(most int) {
	s.Forget(most)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reported) > most {
		clear(s.reported)
	}
}

// check returns what is wrong with the arguments. The error is schema.ErrSchema if the schema cannot be used,
// schema.ErrValue if the arguments cannot be checked at all.
func (s *schemas) check(ctx context.Context, def *tool.Def, arguments json.RawMessage) ([]string, error) {
	if def.InputSchema == nil {
		return nil, nil
	}
	return s.Check(ctx, def.Hash, def.InputSchema, arguments)
}

// firstReport reports whether this is its first call with def.
func (s *schemas) firstReport(def *tool.Def) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reported[def.Hash] {
		return false
	}
	if s.reported == nil {
		s.reported = map[string]bool{}
	}
	s.reported[def.Hash] = true
	return true
}
