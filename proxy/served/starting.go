package served

import (
	"cmp"
	"context"
	"slices"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/register"
	"toolfinch/tool"
)

// How long a list of tools waits for servers that are starting.
const (
	listsWait    = 5 * time.Minute // as long as start_wait says
	listsMayWait = 3 * time.Second // where clients can search instead; opencode gives a server 5 s
)

// waiting returns meta-tools that wait for starting servers, unless a call is about tools that are known, and for new
// lists if a call names an unknown tool. The meta-tools in apart never wait, because they find nothing.
func (v *View) waiting(tools []*tool.Tool, apart map[string]bool) []*tool.Tool {
	out := slices.Clone(tools)
	for i, t := range out {
		if apart[t.Name] {
			continue
		}
		out[i] = t.With(tool.LayerStarting, func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
				now := v
				names, server := named(call.Arguments)
				unknown := slices.IndexFunc(names, func(name string) bool { return v.named(name) == nil && !v.Retriever.IsMeta(name) })
				switch {
				case server != "" && slices.Contains(v.Starting, server), server == "" && len(v.Starting) > 0 && (len(names) == 0 || unknown >= 0):
					now = v.live.Started(ctx)
				case unknown >= 0:
					now = v.live.Renewed(ctx, names[unknown])
				}
				if now != v {
					if same := now.Shown.MetaTool(t.Name); same != nil {
						return same.Handler(ctx, call)
					}
				}
				return next(ctx, call)
			}
		})
	}
	return out
}

// named returns the names in the arguments of a meta-tool, and the server that it is about; "" for none.
func named(arguments []byte) (names []string, server string) {
	text := func(of []byte, member string) string { return rawjson.Text(rawjson.Member(of, member)) }
	for _, member := range []string{"name", "tool_id", "path"} {
		if name := text(arguments, member); name != "" {
			names = append(names, name)
		}
	}
	for one := range rawjson.Elements(rawjson.Member(arguments, "calls")) {
		names = append(names, text(one, "name"))
	}
	for id := range rawjson.Elements(rawjson.Member(arguments, "tool_ids")) {
		names = append(names, rawjson.Text(id))
	}
	return names, cmp.Or(text(arguments, "server"), text(rawjson.Member(arguments, "filter"), "server"))
}

// showStarting has lists of the view wait for starting servers.
func (v *View) showStarting() {
	v.Shown.Because, v.Shown.IsMeta = v.Retriever.Because, v.Retriever.IsMeta
	shown := func(now *View) *register.Served {
		if now.Shown.Source != nil {
			return &now.Shown
		}
		return &v.Shown // the view was removed meanwhile
	}
	if len(v.Starting) > 0 {
		v.Shown.Started = func(ctx context.Context) *register.Served { return shown(v.live.Started(ctx)) }
	}
	v.Shown.Renewed = func(ctx context.Context, name string) *register.Served { return shown(v.live.Renewed(ctx, name)) }
}
