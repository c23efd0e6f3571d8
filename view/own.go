package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// ownTool makes a tool that belongs to the view. output and annotations may be nil.
func ownTool(server, name, title, description string, input, output, annotations json.RawMessage) (*tool.Tool, error) {
	raw, err := rawjson.Encode(struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description,omitempty"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
		Annotations  json.RawMessage `json:"annotations,omitempty"`
	}{name, title, description, input, output, annotations})
	if err != nil {
		return nil, err
	}
	def, _, err := tool.TakeIn(tool.KindTool, server, raw)
	if err != nil {
		return nil, err
	}
	return &tool.Tool{Name: name, Def: def}, nil
}

// findHooked returns the ID and the handler, with hooks, of an upstream's tool that a composite or custom tool calls. It
// runs for every call, because tools come and go.
func findHooked(env Env, h *hooks, name string) (id string, handler tool.Handler, err error) {
	t, found := env.Find(name)
	if !found { // only the owner gets the nearest names, in a Problem
		return "", nil, errors.New(env.missing(name))
	}
	handler = h.around(t)
	if env.Around != nil {
		handler = env.Around(t, handler)
	}
	return t.Def.ID.String(), handler, nil
}

// namedIn returns env with a Find that also knows the names that the view gives to upstreams' tools.
func (e Env) namedIn(s Settings) Env {
	find := e.Find
	e.Find = func(name string) (*tool.Tool, bool) {
		if strings.Contains(name, ".") { // IDs have a dot, exposed names have none
			return find(name)
		}
		if slices.Contains(e.own, name) {
			return nil, false
		}
		for _, server := range s.Tools {
			for _, o := range server.Tools {
				if o.Name == name && !o.Disabled {
					return find(server.Name + "." + o.Tool)
				}
			}
		}
		return find(name)
	}
	return e
}

// missing says why Find has not found a tool with this ID.
func (e Env) missing(id string) string {
	switch {
	case slices.Contains(e.own, id):
		return fmt.Sprintf("%q is a composite or custom tool of the view; only tools of servers can be called here, as \"server.tool\"", id)
	case e.Pending != nil && e.Pending(id):
		return fmt.Sprintf("the tool %q is not known: its server has not been listed, or is disabled, or the tool is hidden", id)
	}
	return fmt.Sprintf("unknown tool %q", id)
}

// checkCalls looks up the tools that an own tool calls; at are their places. It returns the weakest annotations that the
// own tool may have, and whether all called tools are known.
func checkCalls(s Settings, env Env, by string, ids []string, at []Place) (least tool.Annotations, known bool, problems []Problem) {
	known = true
	defs := make([]*tool.Def, 0, len(ids))
	for i, id := range ids {
		if t, found := env.Find(id); found {
			defs = append(defs, t.Def)
			continue
		}
		known = false
		defs = append(defs, nil)
		problem := Problem{View: s.Name, At: at[i], Message: by + ": " + env.missing(id)}
		if near := env.Nearest(id, 3); len(near) > 0 {
			problem.Hint = "did you mean " + orList(near) + "?"
		}
		problem.Warning = !slices.Contains(env.own, id) && env.Pending != nil && env.Pending(id)
		problems = append(problems, problem)
	}
	return floor(defs), known, problems
}

// floor returns the weakest annotations that a tool may have if it calls tools with these definitions. nil stands for an
// unknown tool.
func floor(defs []*tool.Def) tool.Annotations {
	all := tool.Annotations{ReadOnly: true, Idempotent: true}
	for _, def := range defs {
		one := tool.Annotations{Destructive: true, OpenWorld: true}
		if def != nil {
			one = def.Annotations
		}
		all.ReadOnly = all.ReadOnly && one.ReadOnly
		all.Destructive = all.Destructive || one.Destructive && !one.ReadOnly
		all.Idempotent = all.Idempotent && one.Repeatable()
		all.OpenWorld = all.OpenWorld || one.OpenWorld
	}
	return all
}

// hints returns annotations as a JSON object with all members.
func hints(a tool.Annotations) json.RawMessage {
	return fmt.Appendf(nil, `{"readOnlyHint":%t,"destructiveHint":%t,"idempotentHint":%t,"openWorldHint":%t}`,
		a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld)
}

// pendingIn adds a Pending that knows the servers of base, if env has none.
func (e Env) pendingIn(base []Upstream) Env {
	if e.Pending == nil {
		e.Pending = func(id string) bool {
			if !strings.ContainsAny(id, ".:") { // an exposed name may belong to any server
				return slices.ContainsFunc(base, func(u Upstream) bool { return !u.Listed })
			}
			of := func(u Upstream) bool {
				return strings.HasPrefix(id, u.Server+".") || strings.HasPrefix(id, u.Server+":")
			}
			// A server that is not in base is disabled, or a mistake that package configs reports.
			return !slices.ContainsFunc(base, of) || slices.ContainsFunc(base, func(u Upstream) bool {
				return of(u) && (!u.Listed || slices.Contains(u.hidden, id[len(u.Server)+1:]))
			})
		}
	}
	return e
}
