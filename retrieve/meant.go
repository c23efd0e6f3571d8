package retrieve

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// Meant returns the call that a client's tools/call means: of the tool t, or if t is nil, of the tool whose name is
// spelled otherwise; nil for none. Arguments in JSON text or other types become what the tool's schema wants, if they
// then fit. The function ends the answer to such a call with the right form; it is nil for a call that means itself.
func (c *caller) Meant(ctx context.Context, t *tool.Tool, call *tool.Call) (*tool.Tool, *tool.Call, func(tool.Result) tool.Result) {
	meant := *call
	if t == nil {
		if t = c.metaTool(call.Name); t == nil {
			t, _ = c.resolve(call.Name)
		}
		if t == nil {
			return nil, call, nil
		}
		meant.Name = t.Name
	}
	if call.Arguments != nil && (c.validate == nil || c.validate(t.Def.ID.Server)) {
		arguments := call.Arguments
		switch object := args.ObjectIn(arguments); {
		case object != nil:
			arguments = object
		case unused(arguments):
			arguments = json.RawMessage(`{}`)
		}
		if arguments = args.Mend(t.Def.InputSchema, arguments); !bytes.Equal(arguments, call.Arguments) {
			if misfits, err := c.Misfits(ctx, t, arguments); err == nil && len(misfits) == 0 {
				meant.Arguments = arguments
			}
		}
	}
	if meant.Name == call.Name && bytes.Equal(meant.Arguments, call.Arguments) {
		return t, call, nil
	}
	return t, &meant, func(result tool.Result) tool.Result {
		return c.hinted(call, result, formOf("name", t.Name, meant.Arguments))
	}
}

// hinted ends the answer to a mended call with the right form, once a session.
func (c *caller) hinted(call *tool.Call, result tool.Result, form string) tool.Result {
	content := rawjson.Member(json.RawMessage(result), "content")
	if len(content) == 0 || content[0] != '[' || !result.Complete() || !c.catalog.forms.first(call.Session) {
		return result
	}
	blocks := slices.Collect(rawjson.Elements(content))
	with, err := rawjson.Set(result, "content", rawjson.Array(append(blocks, textBlock("Understood; the right form is "+form))))
	if err != nil {
		return result
	}
	return with
}
