package retrieve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
)

// maxForm bounds the arguments that an answer repeats, in bytes.
const maxForm = 200

// formOf returns how a call should be written.
func formOf(name string, arguments json.RawMessage) string {
	shown := string(compact(arguments))
	if shown == "" || len(shown) > maxForm {
		shown = "{...}"
	}
	return fmt.Sprintf(`{"name": %q, "arguments": %s}`, name, shown)
}

// shownForms remembers the sessions that were shown the right form of a call.
type shownForms struct {
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// maxShown bounds the remembered sessions: beyond it all are forgotten, and shown the form once more.
const maxShown = 10_000

// first reports whether this is the first time for a session. A client without sessions is told each time.
func (s *shownForms) first(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[session] {
		return false
	}
	if s.seen == nil || len(s.seen) >= maxShown {
		s.seen = map[string]bool{}
	}
	s.seen[session] = session != ""
	return true
}

// compact returns JSON without spaces between its tokens; nil if value is not JSON.
func compact(value []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return nil
	}
	return out.Bytes()
}
