package register

import (
	"fmt"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// groups answers groups/list and groups/get.
func (l *Live) groups(served *Served, x *wire.Exchange, call *tool.Call, s *session) (tool.Result, error) {
	if served.Groups == nil {
		return nil, methodNotFound(x.Method)
	}
	all := served.Groups()
	var out rawjson.Object
	if x.Method == wire.MethodListGroups {
		out.Add("groups", rawjson.Of(append([]Group{}, all...))) // no null
		return tool.Result(out.JSON()), nil
	}
	i := slices.IndexFunc(all, func(g Group) bool { return g.Name == call.Name })
	if i < 0 {
		return nil, &tool.RPCError{Code: tool.CodeResourceNotFound, Message: fmt.Sprintf("unknown group %.100q", call.Name)}
	}
	var registered Set
	if own := l.sessionFor(call); own != nil {
		l.recall(served, call, own)
		own.mu.Lock()
		registered, _, _ = own.set.sync(served.Lookup)
		own.mu.Unlock()
	}
	listed := map[string]bool{} // a tool is listed or in groups, never both
	for _, t := range l.toolsFor(served, call, s, registered) {
		listed[t.Name] = true
	}
	tools := slices.DeleteFunc(slices.Clone(all[i].Tools), func(t *tool.Tool) bool { return listed[t.Name] })
	if all[i].Instructions != "" {
		out.AddText("instructions", all[i].Instructions)
	}
	as, named := l.listedTo(served, call.Client.Name, s == nil, registered)
	out.Add("contents", listing("tools", tools, "", as))
	result := tool.Result(out.JSON())
	if s == nil && *named {
		result = hinted(result, 0, false)
	}
	return result, nil
}
