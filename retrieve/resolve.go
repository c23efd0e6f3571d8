package retrieve

import (
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/tool"
)

// spelled returns the tools that a name means in another spelling, among those that models are offered. A name that a
// view gave hides the tool's own. A name without its server's counts if no tool has it with its server's. A name that
// may be a meta-tool's, a held definition's or an absent server's means no other tool.
func (c *Catalog) spelled(name string, absent []Absent) (meant []*tool.Tool) {
	plain := bare(name)
	if len(name) > maxSpelled || strings.ContainsFunc(plain, func(c rune) bool { return c <= ' ' }) || c.held.because(plain) != "" ||
		slices.ContainsFunc(Reserved(), func(meta string) bool { return nearest.Fold(meta) == nearest.Fold(plain) }) {
		return nil
	}
	if t, ok := c.Lookup(plain); ok && c.offers(t) {
		return []*tool.Tool{t}
	}
	s := spellingOf(plain)
	var short []*tool.Tool
	for _, one := range c.names {
		t := c.tools.get(one)
		whole, alone := s.means(t.Def.ID)
		switch own := !c.given[one]; {
		case own && whole, slices.Contains(s.whole, nearest.Fold(one)):
			meant = append(meant, t)
		case own && alone:
			short = append(short, t)
		}
	}
	if meant == nil && !slices.ContainsFunc(absent, func(a Absent) bool { return a.Starting > 0 && !a.Listed }) {
		meant = short
	}
	if c.held != nil {
		for id := range c.held.why {
			if whole, alone := s.means(id); (whole || alone) && c.exact.get(id) == nil {
				return nil
			}
		}
	}
	return slices.DeleteFunc(meant, func(t *tool.Tool) bool {
		return slices.ContainsFunc(absent, func(a Absent) bool {
			return a.Held == 0 && a.Server != t.Def.ID.Server && (s.begins(a.Server) || s.begins(a.Prefix))
		})
	})
}

// resolve finds the tool that a name means, by find, else in another spelling; nil for none.
func (c *caller) resolve(name string) (t *tool.Tool, exact bool) {
	if t, ok := c.catalog.find(name); ok {
		return t, true
	}
	if meant := c.catalog.spelled(name, c.absent()); len(meant) == 1 {
		return meant[0], false
	}
	return nil, false
}
