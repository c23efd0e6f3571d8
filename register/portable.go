package register

import (
	"encoding/json"
	"sync"

	"toolfinch/tool"
)

// portableSchemas has the portable schemas of definitions, by hash; nil for schemas that stay as they are.
type portableSchemas struct {
	mu    sync.Mutex // guards known
	known map[string]json.RawMessage
}

// maxPortable bounds the remembered schemas: beyond it all are made again.
const maxPortable = 20_000

func (p *portableSchemas) of(t *tool.Tool) json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	schema, made := p.known[t.Def.Hash]
	if !made {
		if ported, changes := tool.Portable(t.Def.InputSchema); changes != nil {
			schema = ported
		}
		if p.known == nil || len(p.known) >= maxPortable {
			p.known = map[string]json.RawMessage{}
		}
		p.known[t.Def.Hash] = schema
	}
	return schema
}
