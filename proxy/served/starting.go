package served

import (
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

// waiting returns meta-tools that wait for servers which are starting, unless a call
// is about what is there. Not all find something: those in apart never wait.
func (v *View) waiting(tools []*tool.Tool, apart map[string]bool) []*tool.Tool {
	if len(v.Starting) == 0 {
		return tools
	}
	out := slices.Clone(tools)
	for i, t := range out {
		if apart[t.Name] {
			continue
		}
		out[i] = t.With(tool.LayerStarting, func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
				if v.lacks(call.Arguments) {
					if now := v.live.Started(ctx); now != v {
						if same := now.Shown.MetaTool(t.Name); same != nil {
							return same.Handler(ctx, call)
						}
					}
				}
				return next(ctx, call)
			}
		})
	}
	return out
}

// lacks reports whether what a call of a meta-tool is about may yet come.
func (v *View) lacks(arguments []byte) bool {
	text := func(of []byte, member string) string { return rawjson.Text(rawjson.Member(of, member)) }
	for _, server := range []string{text(arguments, "server"), text(rawjson.Member(arguments, "filter"), "server")} {
		if server != "" {
			return slices.Contains(v.Starting, server)
		}
	}
	var names []string
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
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return v.named(name) == nil && !v.Retriever.IsMeta(name) })
}

// showStarting has what the view shows wait for servers that are starting.
func (v *View) showStarting() {
	v.Shown.Because, v.Shown.IsMeta = v.Retriever.Because, v.Retriever.IsMeta
	if len(v.Starting) > 0 {
		v.Shown.Started = func(ctx context.Context) *register.Served {
			if now := v.live.Started(ctx); now.Shown.Source != nil {
				return &now.Shown
			}
			return &v.Shown // the view was removed meanwhile
		}
	}
}
