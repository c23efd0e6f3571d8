package retrieve

import (
	"bytes"
	"context"
	"encoding/json"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

func (r *Retriever) callTool(most Kind, name, description, annotations, server string) *tool.Tool {
	return r.meta(name, description, `{"type":"object","properties":{`+
		`"name":{"type":"string","description":"Name or uri found, or server.tool"},`+
		`"arguments":{"type":"object"},`+
		`"calls":{"type":"array","items":{"type":"object"},"description":"Instead: several {name, arguments}, in order until one fails"}}}`,
		annotations, r.CallTool(most, server))
}

// otherNames are names that models give the arguments of meta-tools, folded.
var otherNames = map[string]string{
	"query":       "q search searchquery searchterm text task intent need keywords prompt input question description goal capability request",
	"queries":     "needs tasks searches",
	"limit":       "k topk n max maxresults maxtools numresults count top size",
	"server":      "servername serverid mcpserver servers",
	"detail":      "details detaillevel verbosity",
	"kind":        "type kinds",
	"tool_ids":    "ids id toolid tools tool toolnames toolname names name",
	"name":        "tool toolname toolid id path",
	"tags":        "tag labels",
	"ttl_seconds": "ttl",
}

// meta makes a meta-tool, marked so that clients with their own tool search keep it loaded. It takes arguments under
// other names, in another shape, and in other types.
func (r *Retriever) meta(name, description, input, annotations string, handler tool.Handler) *tool.Tool {
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
	if Calls(name) { // it reads the shapes of calls itself
		return &tool.Tool{Name: name, Def: def, Handler: handler}
	}
	return &tool.Tool{Name: name, Def: def, Handler: func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		shaped := args.Shape(def.InputSchema, call.Arguments, otherNames)
		inner := *call
		inner.Arguments = args.Mend(def.InputSchema, shaped)
		result, err := handler(ctx, &inner)
		if err == nil && !bytes.Equal(shaped, call.Arguments) {
			result = r.hinted(call, result, name+" "+rawjson.Clip(string(shaped), maxForm))
		}
		return result, err
	}}
}
