package retrieve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
)

// maxForm bounds the arguments that an answer repeats, in bytes.
const maxForm = 200

// formOf returns the arguments of a meta-tool for a call; key is the member with the name.
func formOf(key, name string, arguments json.RawMessage) string {
	shown := string(compact(arguments))
	if shown == "" || len(shown) > maxForm {
		shown = "{...}"
	}
	return fmt.Sprintf(`{%q: %q, "arguments": %s}`, key, name, shown)
}

// shownForms remembers the sessions that were shown the right form of a call.
type shownForms struct {
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// maxHinted bounds the remembered sessions: beyond it all are forgotten, and shown the form once more.
const maxHinted = 10_000

// first reports whether this is the first time for a session. A client without sessions is told each time.
func (h *shownForms) first(session string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[session] {
		return false
	}
	if h.seen == nil || len(h.seen) >= maxHinted {
		h.seen = map[string]bool{}
	}
	h.seen[session] = session != ""
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
