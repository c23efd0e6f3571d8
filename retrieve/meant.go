package retrieve

import (
	"encoding/json"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Meant returns the call that a client's tools/call means: of the tool t, or if t is nil, of the tool or meta-tool
// whose name is spelled otherwise; nil for none. An argument that is no object becomes the one that it contains.
// A call_tool of a meta-tool that only reads is that meta-tool's. hint, if not nil, ends the answer with the right form.
func (c *caller) Meant(t *tool.Tool, call *tool.Call) (of *tool.Tool, meant *tool.Call, hint func(tool.Result) tool.Result) {
	calls := t != nil && Calls(t.Name) && t.Name != ExecuteTool
	if t != nil && (call.Arguments == nil || rawjson.IsObject(call.Arguments)) && !calls {
		return t, call, nil
	}
	of, arguments := t, call.Arguments
	if of == nil {
		of = c.metaTool(call.Name)
	}
	if of == nil {
		fitting := c.catalog.spelled(call.Name, c.absent())
		if len(fitting) != 1 {
			return nil, call, nil
		}
		of = fitting[0]
	}
	switch object := objectIn(arguments); {
	case calls && object != nil:
		if meta := c.metaTool(rawjson.Text(rawjson.Member(object, "name"))); meta != nil && KindOf(meta.Def.Annotations) == KindRead {
			inner := objectIn(rawjson.Member(object, "arguments"))
			if inner == nil {
				inner = rawjson.Without(object, "name", "arguments")
			}
			if !rawjson.IsEmpty(inner) {
				of, arguments = meta, inner
			}
		}
	case calls:
	case object != nil:
		arguments = object
	case arguments != nil && unused(arguments):
		arguments = json.RawMessage(`{}`)
	}
	if of == t && string(arguments) == string(call.Arguments) {
		return t, call, nil
	}
	inner := *call
	inner.Name, inner.Arguments = of.Name, arguments
	form := formOf(of.Name, arguments)
	return of, &inner, func(result tool.Result) tool.Result { return c.hinted(call, result, form) }
}
