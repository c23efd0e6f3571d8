package proxy

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/upstream/login"
)

// started waits until no server of the view is starting for the first time, or until
// that has taken start_wait, and returns what the maker of the request has of the view
// that is served then. Servers that
// the store knows are not waited for.
func (e *endpoint) started(ctx context.Context) *View { return e.startedAll(ctx).of(ctx) }

func (e *endpoint) startedAll(ctx context.Context) *View {
	for {
		all := e.desk.views.now.Load()
		v := e.now()
		left := time.Until(v.startsUntil)
		if len(v.starting) == 0 || left <= 0 {
			return v
		}
		timer := time.NewTimer(left)
		select {
		case <-all.replaced:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return v
		}
		timer.Stop()
	}
}

// How long a list of tools waits for servers that are starting.
const (
	listsWait    = 5 * time.Minute // as long as start_wait says
	listsMayWait = 3 * time.Second // where clients can search instead; opencode gives a server 5 s
)

// startOf notes which servers of a planned view were never listed and are connecting
// for the first time.
func (k *listings) startOf(v *View, wait time.Duration) {
	for _, server := range v.upstreams {
		if k.byServer[server] != nil || k.listedThisRun[server] || k.readOnly {
			continue
		}
		if k.began[server].IsZero() {
			k.began[server] = time.Now()
		}
		v.starting = append(v.starting, server)
		if until := k.began[server].Add(wait); until.After(v.startsUntil) {
			v.startsUntil = until
		}
	}
}

// waiting returns meta-tools that wait for servers which are starting, unless a call
// is about what is there. Not all find something: those in apart never wait.
func (v *View) waiting(tools []*tool.Tool, apart map[string]bool) []*tool.Tool {
	if len(v.starting) == 0 {
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
					if now := v.started(ctx); now != v {
						if same := now.shown.MetaTool(t.Name); same != nil {
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
			return slices.Contains(v.starting, server)
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
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !v.knows(name) && !v.retriever.IsMeta(name) })
}

// knows reports whether something of the view has a name.
func (v *View) knows(name string) bool {
	if _, err := v.catalog.Find(name); err == nil {
		return true
	}
	if _, ok := v.catalog.Prompt(name); ok {
		return true
	}
	_, ok := v.catalog.Resource(name)
	return ok
}

// showStarting has what the view shows wait for servers that are starting.
func (v *View) showStarting() {
	v.shown.Because, v.shown.IsMeta = v.retriever.Because, v.retriever.IsMeta
	if len(v.starting) > 0 {
		v.shown.Started = func(ctx context.Context) *register.Served {
			if now := v.started(ctx); now.shown.Source != nil {
				return &now.shown
			}
			return &v.shown // the view was removed meanwhile
		}
	}
}

// absent is what is said of a server whose tools cannot be called now, and whether it
// is such a server. known is what the catalog has of it, nil for nothing.
func (v *View) absent(s upstream.Health, known *retrieve.Server, listed bool) (a retrieve.Absent, is bool) {
	switch {
	case s.State == upstream.StateReady && listed:
		return a, false
	case known == nil:
		a = retrieve.Absent{Server: s.Server, Prefix: s.Server}
	default:
		a = retrieve.Absent{Server: s.Server, Listed: listed, Prefix: s.Server, Description: known.Description}
		if known.Prefix != nil {
			a.Prefix = *known.Prefix
		}
	}
	switch {
	case s.State == upstream.StateLogin && s.Err != nil:
		if needed, ok := errors.AsType[*login.Needed](s.Err); ok {
			a.Login = strings.TrimPrefix(needed.Error(), "needs a login: ")
		}
	case s.State == upstream.StateFailed && s.Err != nil:
		a.Reason = strings.TrimPrefix(upstream.Reason(s.Err), "connect: ")
	case s.State != upstream.StateFailed && !listed && v.endpoint != nil:
		a.Starting, a.How = max(1, time.Since(s.Began)), "HTTP"
		if s.Command != "" {
			a.How = strings.TrimSuffix(filepath.Base(s.Command), ".exe")
		}
	default:
		return a, false
	}
	return a, true
}
