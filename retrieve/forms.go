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

// told remembers what sessions were told, so that it is said once.
type told struct {
	mu   sync.Mutex // guards seen
	seen map[remark]bool
}

type remark struct{ session, about string }

// maxTold bounds the remembered remarks: beyond it all are forgotten, and made once more.
const maxTold = 100_000

// first reports whether this is the first time for a session. A client without sessions is told each time.
func (t *told) first(session, about string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := remark{session, about}
	if t.seen[key] {
		return false
	}
	if t.seen == nil || len(t.seen) >= maxTold {
		t.seen = map[remark]bool{}
	}
	t.seen[key] = session != ""
	return true
}

// has reports whether a session was told something.
func (t *told) has(session, about string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[remark{session, about}]
}

// compact returns JSON without spaces between its tokens; nil if value is not JSON.
func compact(value []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return nil
	}
	return out.Bytes()
}
