package retrieve

import (
	"fmt"
	"strings"
	"sync"

	"toolfinch/tool"
)

// written remembers the parameters of tools that were found, as they are answered: writing
// those of five takes as long as finding them among a thousand.
type written struct {
	mu     sync.Mutex // guards what follows; not held while writing
	byHash map[string]string
	size   int // bytes of the texts
}

// maxWritten bounds written.size, beyond which it begins anew.
const maxWritten = 4 << 20

func (w *written) parametersOf(def *tool.Def) string {
	w.mu.Lock()
	text, known := w.byHash[def.Hash]
	w.mu.Unlock()
	if known {
		return text
	}
	text = parametersOf(def)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size += len(text); w.byHash == nil || w.size > maxWritten {
		w.byHash, w.size = map[string]string{}, len(text)
	}
	w.byHash[def.Hash] = text
	return text
}

// parametersOf is a line for each parameter of a tool; its schema where lines cannot
// say how to call it.
func parametersOf(def *tool.Def) string {
	lines, ok := parameters(def.InputSchema)
	switch {
	case !ok && len(def.InputSchema) > maxHit:
		return fmt.Sprintf("\n schema: %d bytes, ask with detail full", len(def.InputSchema))
	case !ok:
		return "\n schema: " + literal(def.InputSchema)
	case len(lines) == 0:
		return "\n no parameters"
	}
	return "\n " + strings.Join(lines, "\n ")
}
