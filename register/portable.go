package register

import (
	"encoding/json"
	"sync"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// portableSchemas remembers the portable schemas of definitions, by hash; nil for those that stay as they are.
type portableSchemas struct {
	mu    sync.Mutex // guards known
	known map[string]*tool.PortableSchema
}

// maxPortable bounds the remembered schemas: beyond it all are made again.
const maxPortable = 20_000

func (p *portableSchemas) of(t *tool.Tool) *tool.PortableSchema {
	p.mu.Lock()
	defer p.mu.Unlock()
	ported, made := p.known[t.Def.Hash]
	if !made {
		ported = tool.Portable(t.Def.InputSchema)
		if p.known == nil || len(p.known) >= maxPortable {
			p.known = map[string]*tool.PortableSchema{}
		}
		p.known[t.Def.Hash] = ported
	}
	return ported
}

// unported returns a call with the tool's own names of arguments.
func (p *portableSchemas) unported(t *tool.Tool, call *tool.Call) *tool.Call {
	ported := p.of(t)
	if ported == nil || ported.Keys == nil || !rawjson.IsObject(call.Arguments) {
		return call
	}
	out := rawjson.NewObject(len(call.Arguments))
	for name, value := range rawjson.Members(call.Arguments) {
		if own, is := ported.Keys[name]; is {
			name = own
		}
		out.Add(name, value)
	}
	inner := *call
	inner.Arguments = json.RawMessage(rawjson.Unique(out.JSON()))
	return &inner
}
