package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"toolfinch/tool"
)

// Base applies the settings under each server to the tools of the upstreams, for all views. It leaves out tools with a
// Problem that is an error.
func Base(upstreams []Upstream, servers []UpstreamTools) ([]Upstream, []Problem) {
	out := slices.Clone(upstreams)
	var problems []Problem
	for i := range out {
		server := entryOf(servers, out[i].Server)
		if server == nil {
			continue
		}
		problems = append(problems, server.unmatched(out[i], true)...)
		problems = append(problems, out[i].configure(server)...)
	}
	return out, problems
}

func (u *Upstream) configure(server *UpstreamTools) []Problem {
	var problems []Problem
	var names claims
	var hidden []string
	tools := make([]*tool.Tool, 0, len(u.Tools))
	output := map[tool.ID]*OutputCache{}
	for _, c := range choices(u.Tools, server.Tools) {
		if c.by != nil && c.by.Disabled {
			hidden = append(hidden, c.tool.Def.ID.Name)
			continue
		}
		t, wrong := c.by.apply(c.tool, tool.LayerServerArguments)
		if len(wrong) == 0 {
			wrong = names.claim(t, c.at(server.At))
		}
		if len(wrong) > 0 {
			problems = append(problems, wrong...)
			continue
		}
		tools = append(tools, t)
		if c.by != nil && c.by.Output != nil {
			output[t.Def.ID] = c.by.Output
		}
	}
	u.Tools, u.hidden, u.Output, u.OutputDefault, u.Trim = tools, hidden, output, server.Output, server.Trim
	return problems
}

// Compile makes a view of the upstreams that Base has returned. It leaves out only the tools with a Problem that is an
// error.
func Compile(s Settings, base []Upstream, env Env) (*Compiled, []Problem) {
	env = env.pendingIn(base)
	env.own = s.ownNames()
	env = env.namedIn(s)
	c := compiler{settings: s, env: env, names: claims{view: s.Name, proxy: s.ProxyTool}, skills: map[string]tool.ID{}}
	var problems []Problem
	c.hooks, problems = newHooks(s, env)
	problems = append(problems, s.absent(base)...)
	v := &Compiled{Settings: s}
	for _, u := range base {
		server := entryOf(s.Tools, u.Server)
		if server != nil {
			problems = append(problems, server.unmatched(u, false)...)
		}
		if !s.wants(u.Server, server) {
			continue
		}
		in, wrong := c.upstream(u, server)
		problems = append(problems, wrong...)
		nothing := s.IncludeAll && len(u.Tools) == 0 // a view of everything also has empty upstreams
		if len(in.Tools) > 0 || !in.Listed || nothing {
			v.Upstreams = append(v.Upstreams, in)
		}
	}
	var wrong []Problem
	v.Own, wrong = c.own()
	problems = append(problems, wrong...)
	if t := runScript(s, env); t != nil {
		v.Meta = append(v.Meta, t)
	}
	for i := range problems {
		problems[i].View, problems[i].At = s.Name, cmp.Or(problems[i].At, s.At)
	}
	return v, problems
}

// ownNames returns the names that calls may use for the view's composite and custom tools.
func (s Settings) ownNames() (names []string) {
	for _, c := range s.Composites {
		names = append(names, c.Name, s.Name+"."+c.Name)
	}
	for _, c := range s.Customs {
		name := c.CalledAs()
		names = append(names, name, s.Name+"."+name)
	}
	return names
}

type compiler struct {
	settings Settings
	env      Env
	hooks    *hooks
	names    claims
	skills   map[string]tool.ID // by the URI that clients see
}

// upstream returns u with the tools that the view has. server is nil if the view's settings do not name u.
func (c *compiler) upstream(u Upstream, server *UpstreamTools) (Upstream, []Problem) {
	if before := c.env.Before; before != nil && server == nil && c.hooks == nil && len(c.settings.Skills) == 0 {
		i := slices.IndexFunc(before.Upstreams, func(b Upstream) bool { return b.Server == u.Server })
		if i >= 0 && before.Upstreams[i].Listed == u.Listed && tool.Same(before.Upstreams[i].source, u.Tools) {
			return before.Upstreams[i], nil
		}
	}
	out := Upstream{Server: u.Server, Listed: u.Listed, Output: map[tool.ID]*OutputCache{}, source: u.Tools}
	var overrides []Override
	if server != nil {
		overrides = server.Tools
	}
	var problems []Problem
	for _, choice := range choices(u.Tools, overrides) {
		if !c.settings.selected(choice) {
			continue
		}
		if choice.tool.Def.ID.Kind != tool.KindTool { // only tools have hooks and kept results
			t := c.masked(choice.tool, u.Server)
			if t.Def.ID.Kind == tool.KindSkill {
				var wrong []Problem
				if t, wrong = c.skill(t); t == nil {
					problems = append(problems, wrong...)
					continue
				}
			}
			out.Tools = append(out.Tools, t)
			continue
		}
		var kept *OutputCache
		if c.env.Keep != nil {
			kept = outputOf(choice, u, server)
		}
		t, wrong := c.tool(choice, kept)
		if len(wrong) == 0 {
			t = trimmed(t, cmp.Or(c.settings.Trim, u.Trim))
		}
		if len(wrong) > 0 {
			problems = append(problems, wrong...)
			continue
		}
		out.Tools = append(out.Tools, t)
		if kept != nil {
			out.Output[t.Def.ID] = kept
		}
	}
	return out, problems
}

// skill puts a skill where the view has it. Of two skills in one place the first counts.
func (c *compiler) skill(t *tool.Tool) (*tool.Tool, []Problem) {
	by, moved := c.settings.skillPattern(t.Def.ID), *t
	path, _ := strings.CutPrefix(t.Def.ID.Name, "skill://")
	uri := "skill://" + t.Def.ID.Server + "/" + path // as package retrieve names it
	at := Place{}
	if by != nil {
		at = by.At
		if by.Under != "" {
			uri = "skill://" + by.Under + "/" + tool.SkillOf(t.Def).Name + tool.SkillFile
			moved.Name = uri
		}
	}
	if first, taken := c.skills[uri]; taken {
		return nil, []Problem{{At: at, Message: fmt.Sprintf("%s is left out: %s has its URI, %s", t.Def.ID, first, uri), Hint: "put one of them elsewhere: {skill: PATTERN, under: PATH}"}}
	}
	c.skills[uri] = t.Def.ID
	return &moved, nil
}

// tool makes one tool of the view with all layers.
func (c *compiler) tool(from choice, kept *OutputCache) (*tool.Tool, []Problem) {
	// Hooks run below the view's binding: like composite and custom tools, they use the tool's own arguments and can set
	// hidden ones.
	if from.by != nil && c.hooks != nil && len(c.hooks.pre) > 0 {
		by := *from.by
		by.hooked = true
		from.by = &by
	}
	t, problems := from.by.apply(c.masked(c.hooked(from.tool), from.tool.Def.ID.Server), tool.LayerViewArguments)
	if len(problems) > 0 {
		return nil, problems
	}
	if problems := c.names.claim(t, from.at(Place{})); len(problems) > 0 {
		return nil, problems
	}
	if kept == nil {
		return t, nil
	}
	t, err := withoutOutputSchema(t)
	if err != nil {
		return nil, []Problem{{At: from.at(c.settings.At), Message: err.Error()}}
	}
	return t.With(tool.LayerOutput, c.env.Keep(*kept)), nil
}

func (c *compiler) hooked(t *tool.Tool) *tool.Tool {
	return t.With(tool.LayerHooks, c.hooks.layer(t.Def))
}

// masked hides secrets in a tool's answers. server is "" for a tool of the view.
func (c *compiler) masked(t *tool.Tool, server string) *tool.Tool {
	if c.env.MaskSecrets == nil {
		return t
	}
	return t.With(tool.LayerSecrets, c.env.MaskSecrets(server))
}

// own makes the view's composite and custom tools.
func (c *compiler) own() ([]*tool.Tool, []Problem) {
	made, problems := composites(c.settings, c.env, c.hooks)
	places := map[string]Place{}
	written, wrong := customs(c.settings, c.env, c.hooks, places)
	problems = append(problems, wrong...)
	for _, composite := range c.settings.Composites {
		places[composite.Name] = composite.At
	}
	var tools []*tool.Tool
	for _, t := range slices.Concat(made, written) {
		if _, taken := c.env.Find(t.Def.ID.String()); taken {
			problems = append(problems, Problem{
				At:      places[t.Name],
				Message: fmt.Sprintf("%q is also a tool of the server %q, which the view is named like", t.Name, c.settings.Name),
				Hint:    "choose another name for the tool or the view",
			})
			continue
		}
		if wrong := c.names.claim(t, places[t.Name]); len(wrong) > 0 {
			problems = append(problems, wrong...)
			continue
		}
		tools = append(tools, c.masked(c.hooked(t), ""))
	}
	return tools, problems
}

// outputOf returns how large results of a tool are kept, nil if they are not. Settings for the tool come before settings
// for all tools, and of two such settings the view's before the server's.
func outputOf(c choice, u Upstream, server *UpstreamTools) *OutputCache {
	var found *OutputCache
	if c.by != nil {
		found = c.by.Output
	}
	found = cmp.Or(found, u.Output[c.tool.Def.ID])
	if server != nil {
		found = cmp.Or(found, server.Output)
	}
	found = cmp.Or(found, u.OutputDefault)
	if found == nil || found.MinSize <= 0 {
		return nil
	}
	return &OutputCache{
		MinSize: found.MinSize,
		Preview: cmp.Or(found.Preview, DefaultPreview),
		TTL:     cmp.Or(found.TTL, DefaultOutputTTL),
	}
}
