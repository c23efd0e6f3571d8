package view

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/tool"
)

// choice is an upstream's tool, prompt or resource with its override.
type choice struct {
	tool *tool.Tool
	by   *Override // nil for none
}

// named reports whether the override names the tool exactly.
func (c choice) named() bool { return c.by != nil && c.by.Tool == c.tool.Def.ID.Name }

// at returns the place of the override or, without an override, elsewhere.
func (c choice) at(elsewhere Place) Place {
	if c.by != nil {
		return c.by.At
	}
	return elsewhere
}

// choices pairs tools with their overrides. An override with the exact name comes first, then the last matching glob.
// Prompts and resources have no overrides.
func choices(tools []*tool.Tool, overrides []Override) []choice {
	exact := make(map[string]*Override, len(overrides))
	var globs []*Override // last first
	for i := range overrides {
		o := &overrides[i]
		exact[o.Tool] = o
		if IsGlob(o.Tool) {
			globs = append(globs, o)
		}
	}
	slices.Reverse(globs)
	out := make([]choice, len(tools))
	for i, t := range tools {
		out[i].tool = t
		if t.Def.ID.Kind != tool.KindTool || len(overrides) == 0 {
			continue
		}
		name := t.Def.ID.Name
		if out[i].by = exact[name]; out[i].by != nil {
			continue
		}
		if at := slices.IndexFunc(globs, func(o *Override) bool { return matches(o.Tool, name) }); at >= 0 {
			out[i].by = globs[at]
		}
	}
	return out
}

// selected reports whether a view has the tool, prompt or resource. An exactly named tool is never
// excluded.
func (s *Settings) selected(c choice) bool {
	switch id := c.tool.Def.ID; {
	case id.Kind == tool.KindSkill && s.skillPattern(id) != nil:
	case c.by != nil && c.by.Disabled:
		return false
	case c.named():
		return true
	case c.by == nil && !s.IncludeAll:
		return false
	}
	return !excluded(s.Exclude, c.tool.Def.ID)
}

// Uses reports whether the view depends on a server: it may show tools of the server, or its composite and custom tools
// may call them.
func (s *Settings) Uses(server string) bool {
	return s.IncludeAll || len(s.Composites)+len(s.Customs) > 0 || entryOf(s.Tools, server) != nil || s.hasSkills(server)
}

// hasSkills reports whether the view may show skills of a server that it names as skills.
func (s *Settings) hasSkills(server string) bool {
	return slices.ContainsFunc(s.Skills, func(p SkillPattern) bool { return p.concerns(server) })
}

// skillPattern returns the pattern that counts for a skill; nil for none.
func (s *Settings) skillPattern(id tool.ID) *SkillPattern {
	for i := range slices.Backward(s.Skills) {
		if excluded([]Pattern{s.Skills[i].Pattern}, id) {
			return &s.Skills[i]
		}
	}
	return nil
}

// wants reports whether a view may have items of a server.
func (s *Settings) wants(name string, server *UpstreamTools) bool {
	return s.IncludeAll || s.hasSkills(name) || server != nil &&
		slices.ContainsFunc(server.Tools, func(o Override) bool { return !o.Disabled })
}

func entryOf(servers []UpstreamTools, name string) *UpstreamTools {
	if i := slices.IndexFunc(servers, func(s UpstreamTools) bool { return s.Name == name }); i >= 0 {
		return &servers[i]
	}
	return nil
}

// maxHints bounds the lookups of nearest names for a server's missing tools: each takes a millisecond among thousands of
// tools, with every change of the server.
const maxHints = 5

// unmatched returns problems for the overrides that match no tool of u. base says that they are under the server.
func (s *UpstreamTools) unmatched(u Upstream, base bool) []Problem {
	if len(s.Tools) == 0 {
		return nil
	}
	var names []string
	for _, t := range u.Tools {
		if t.Def.ID.Kind == tool.KindTool {
			names = append(names, t.Def.ID.Name)
		}
	}
	if !u.Listed && len(names) == 0 {
		return []Problem{{
			At:      s.At,
			Message: fmt.Sprintf("the tools of server %q are not checked: it has not been listed yet", s.Name),
			Warning: true,
		}}
	}
	var problems []Problem
	for i := range s.Tools {
		o := &s.Tools[i]
		glob := IsGlob(o.Tool)
		if slices.ContainsFunc(names, func(name string) bool { return name == o.Tool || glob && matches(o.Tool, name) }) {
			continue
		}
		// Other clients' lists name tools that are gone, which hides no other tool and shows none. A near name is a slip.
		listed := o.Disabled || slices.ContainsFunc(s.Tools, func(all Override) bool { return all.Tool == "*" && all.Disabled })
		gone := base && listed && len(nearest.Names(o.Tool, names, 1, nearest.Close)) == 0
		p := Problem{At: o.At, Warning: !u.Listed || gone}
		switch {
		case slices.Contains(u.hidden, o.Tool):
			p.Message, p.Warning = fmt.Sprintf("the tool %q is left out: it is hidden under server %q", o.Tool, s.Name), true
		case glob:
			p.Message, p.Warning = fmt.Sprintf("server %q has no tool that matches %q", s.Name, o.Tool), true
		case len(problems) < maxHints:
			p.Hint = didYouMean(o.Tool, names)
			fallthrough
		default:
			p.Message = fmt.Sprintf("server %q has no tool %q", s.Name, o.Tool)
		}
		problems = append(problems, p)
	}
	return problems
}

// absent warns of unknown servers, and of patterns in Exclude that match nothing.
func (s *Settings) absent(base []Upstream) []Problem {
	var problems []Problem
	for _, server := range s.Tools {
		if slices.ContainsFunc(base, func(u Upstream) bool { return u.Server == server.Name }) {
			continue
		}
		var names []string
		for _, u := range base {
			names = append(names, u.Server)
		}
		hint := ""
		if near := nearest.Names(server.Name, names, 1, nearest.Close); len(near) > 0 {
			hint = "or did you mean " + strconv.Quote(near[0]) + "?"
		}
		problems = append(problems, Problem{
			At: server.At, Message: fmt.Sprintf("server %q is disabled or unknown", server.Name), Hint: hint, Warning: true,
		})
	}
	if slices.ContainsFunc(base, func(u Upstream) bool { return !u.Listed }) {
		return problems // the excluded tools may still be listed
	}
	for _, p := range s.Skills {
		names := func(t *tool.Tool) bool {
			return t.Def.ID.Kind == tool.KindSkill && excluded([]Pattern{p.Pattern}, t.Def.ID)
		}
		if !slices.ContainsFunc(base, func(u Upstream) bool { return slices.ContainsFunc(u.Tools, names) }) {
			problems = append(problems, Problem{At: p.At, Message: fmt.Sprintf("skills: nothing matches %q", p.Glob), Hint: `globs are over "server.uri"`, Warning: true})
		}
	}
	for _, p := range s.Exclude {
		excludes := func(t *tool.Tool) bool { return matches(p.Glob, t.Def.ID.String()) }
		if !slices.ContainsFunc(base, func(u Upstream) bool { return slices.ContainsFunc(u.Tools, excludes) }) {
			problems = append(problems, Problem{
				At: p.At, Message: fmt.Sprintf("exclude: nothing matches %q", p.Glob), Hint: `globs are over "server.tool"`, Warning: true,
			})
		}
	}
	return problems
}

// IsGlob reports whether the name of a tool under a server is a pattern.
func IsGlob(name string) bool { return strings.ContainsAny(name, `*?[\`) }

// matches reports whether the glob matches the whole name. An invalid glob matches nothing; the configuration refuses
// it.
func matches(glob, name string) bool {
	// "/" is replaced, because in path.Match "*" does not match it, but here it is no separator.
	ok, err := path.Match(strings.ReplaceAll(glob, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// didYouMean returns a hint that names valid words in place of word.
func didYouMean(word string, valid []string) string {
	const shown = 5
	near := nearest.Names(word, valid, 3, nearest.Close)
	switch {
	case len(near) > 0:
		return "did you mean " + orList(near) + "?"
	case len(valid) == 0:
		return "there is none"
	case len(valid) > shown:
		return fmt.Sprintf("there are %s and %d more", strings.Join(valid[:shown], ", "), len(valid)-shown)
	}
	return "known: " + strings.Join(valid, ", ")
}

// orList returns the words as "a", "b" or "c".
func orList(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = strconv.Quote(word)
	}
	last := len(quoted) - 1
	if last == 0 {
		return quoted[0]
	}
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}
