package retrieve

import (
	"slices"
	"strings"

	"toolfinch/tool"
)

// spelled returns the tools that a name may mean in another spelling: another case, other separators, the prefix of
// a client, without the server. A tool's name alone counts if no tool has it together with its server's. A name that
// may be a held definition's or an absent server's means no other tool.
func (c *Catalog) spelled(name string, absent func() []Absent) (meant []*tool.Tool) {
	plain := bare(name)
	if len(name) > maxSpelled || plain == "" {
		return nil
	}
	if found, ok := c.find(plain); ok {
		return []*tool.Tool{found}
	}
	if isReserved(plain) || strings.ContainsAny(plain, " \t\n") || c.held.because(plain) != "" {
		return nil
	}
	s := spellingOf(plain)
	var alone []*tool.Tool
	for _, one := range c.names {
		t := c.tools.get(one)
		switch whole, short := s.means(t.Def.ID, t.Name); {
		case whole:
			meant = append(meant, t)
		case short:
			alone = append(alone, t)
		}
	}
	starting := slices.ContainsFunc(absent(), func(a Absent) bool { return a.Starting > 0 && !a.Listed })
	if meant == nil && !starting {
		meant = alone
	}
	if c.held.spells(s, c.exact) {
		return nil
	}
	return slices.DeleteFunc(meant, func(t *tool.Tool) bool {
		return slices.ContainsFunc(absent(), func(a Absent) bool {
			return a.Held == 0 && a.Server != t.Def.ID.Server && (s.begins(a.Server) || s.begins(a.Prefix))
		})
	})
}

// resolve finds the tool that a name means, in its own or another spelling. exact is false for another spelling.
func (c *Catalog) resolve(name string, absent func() []Absent) (t *tool.Tool, exact bool) {
	if t, ok := c.find(name); ok {
		return t, true
	}
	if meant := c.spelled(name, absent); len(meant) == 1 {
		return meant[0], false
	}
	return nil, false
}

func (c *caller) resolve(name string) (t *tool.Tool, exact bool) {
	return c.catalog.resolve(name, c.absent)
}
