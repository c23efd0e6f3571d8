package register

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// complete sends completion/complete to the upstream that has the prompt or template.
func complete(ctx context.Context, upstreams Upstreams, served *Served, call *tool.Call) (tool.Result, error) {
	ref := rawjson.Member(call.Params, "ref")
	var target *tool.Tool
	var key, name string
	switch rawjson.Text(rawjson.Member(ref, "type")) {
	case "ref/prompt":
		key = "name"
		name = rawjson.Text(rawjson.Member(ref, key))
		target, _ = served.Prompt(name)
	case "ref/resource":
		key = "uri"
		name = rawjson.Text(rawjson.Member(ref, key))
		templates := served.Items(tool.KindTemplate)
		if i := slices.IndexFunc(templates, func(t *tool.Tool) bool { return t.Name == name }); i >= 0 {
			target = templates[i]
		} else {
			target, _ = served.Resource(name)
		}
	}
	if target == nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "completion for an unknown prompt or resource template: " + strconv.Quote(name)}
	}
	mapped := rawjson.NewObject(len(ref))
	for member, value := range rawjson.Members(ref) {
		switch {
		case member == key:
			value = rawjson.Quote(target.Def.ID.Name)
		case member != "type" && slices.ContainsFunc([]string{"type", "name", "uri"}, func(known string) bool { return strings.EqualFold(member, known) }):
			continue // a server that ignores case would read a second key
		}
		mapped.Add(member, value)
	}
	var err error
	if call.Params, err = rawjson.Set(call.Params, "ref", mapped.JSON()); err != nil {
		return nil, err
	}
	return upstreams.Complete(ctx, target.Def.ID.Server, call)
}
