package retrieve

import (
	"encoding/json"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

func (r *Retriever) callTool(most Kind, name, description, annotations, server string) *tool.Tool {
	return meta(name, description, `{"type":"object","properties":{`+
		`"name":{"type":"string","description":"Name or uri found, or server.tool"},`+
		`"arguments":{"type":"object"},`+
		`"calls":{"type":"array","items":{"type":"object"},"description":"Instead: several {name, arguments}, in order until one fails"}}}`,
		annotations, r.CallTool(most, server))
}

// meta makes a meta-tool, marked so that clients with their own tool search keep it loaded.
func meta(name, description, input, annotations string, handler tool.Handler) *tool.Tool {
	raw := rawjson.Of(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations json.RawMessage `json:"annotations"`
		Meta        json.RawMessage `json:"_meta"`
	}{name, description, json.RawMessage(input), json.RawMessage(annotations),
		json.RawMessage(`{"anthropic/alwaysLoad":true}`)})
	def, err := tool.ParseDef("toolfinch", raw)
	if err != nil {
		panic("retrieve: meta-tool " + name + ": " + err.Error())
	}
	return &tool.Tool{Name: name, Def: def, Handler: handler}
}
