package retrieve

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// relate gives each server of the catalog its related tools, those of the predecessor where its list is the same.
func (c *Catalog) relate(before *Catalog) {
	same := map[**tool.Tool]*related{}
	if before != nil {
		for _, r := range before.related {
			same[&r.tools[0]] = r
		}
	}
	c.related = make(map[string]*related, len(c.contents.Servers))
	for _, s := range c.contents.Servers {
		if len(s.Tools) == 0 || c.related[s.Name] != nil {
			continue
		}
		r := same[&s.Tools[0]]
		if r == nil || len(r.tools) != len(s.Tools) {
			r = &related{tools: s.Tools}
		}
		c.related[s.Name] = r
	}
}

// producersFor returns the producers for a tool.
func (c *Catalog) producersFor(t *tool.Tool) []producer {
	r := c.related[t.Def.ID.Server]
	if r == nil || t.Def.ID.Kind != tool.KindTool {
		return nil
	}
	found := r.found.Load()
	if found == nil {
		var defs []*tool.Def
		seen := map[tool.ID]bool{}
		for _, one := range r.tools {
			if id := one.Def.ID; id.Kind == tool.KindTool && !seen[id] { // several views may have it
				seen[id] = true
				defs = append(defs, one.Def)
			}
		}
		all := producersAmong(defs)
		found = &all
		r.found.Store(found)
	}
	all := (*found)[t.Def.ID]
	if len(all) == 0 {
		return nil
	}
	properties := rawjson.Member(t.Def.InputSchema, "properties") // another view may have bound it
	return slices.DeleteFunc(slices.Clone(all), func(p producer) bool { return rawjson.Member(properties, p.parameter) == nil })
}

// producerNamed returns a producer as the catalog offers it, in the view of the tool that needs it if it can; nil for none.
func (c *Catalog) producerNamed(id tool.ID, view string) *tool.Tool {
	t := c.exact.get(id)
	if t == nil {
		return nil
	}
	for _, other := range c.also[id] {
		if t.View != view && other.View == view {
			t = other
		}
	}
	if !c.offers(t) {
		return nil
	}
	return t
}

// Needed is a tool that gives hits of an answer what they require.
type Needed struct {
	*tool.Tool
	For []string // parameters of the hits
}

// Bounds of the producers that an answer names.
const (
	maxNeeded   = 2
	needyHits   = 5   // only these first hits of a need get producers
	otherChoice = 0.3 // what a second producer counts where the description of a parameter names both
)

// needed returns the producers that the hits of an answer lack, for the set of all hits. known reports whether the model
// has a tool already.
func (c *Catalog) needed(answers [][]Hit, known func(*tool.Tool) bool) (chosen []Needed) {
	type demand struct {
		producer
		weight float64
		met    *float64 // share of the parameter's demand that is left
		of     *tool.Tool
	}
	var demands []demand
	there := map[*tool.Tool]bool{}
	for _, hits := range answers {
		for _, hit := range hits {
			there[hit.Tool] = true
		}
	}
	for _, hits := range answers {
		for rank, hit := range hits[:min(len(hits), needyHits)] {
			left := map[string]*float64{}
			for _, p := range c.producersFor(hit.Tool) {
				of := c.producerNamed(p.id, hit.View)
				if of == nil {
					continue
				}
				if left[p.parameter] == nil {
					one := 1.0
					left[p.parameter] = &one
				}
				if there[of] || known(of) {
					*left[p.parameter] = 0
				}
				demands = append(demands, demand{p, (1 + p.evidence/10) / math.Log2(float64(rank+2)), left[p.parameter], of})
			}
		}
	}
	for len(chosen) < maxNeeded {
		value := map[*tool.Tool]float64{}
		var best *tool.Tool
		for _, d := range demands {
			value[d.of] += d.weight * *d.met
			if v := value[d.of]; v > 0 && (best == nil || v > value[best]) {
				best = d.of
			}
		}
		if best == nil {
			break
		}
		next := Needed{Tool: best}
		for _, d := range demands {
			if d.of != best || *d.met == 0 {
				continue
			}
			if !slices.Contains(next.For, d.parameter) {
				next.For = append(next.For, d.parameter)
			}
		}
		for i, d := range demands {
			if d.of == best {
				demands[i].weight = 0
				if *d.met *= otherChoice; d.evidence < namedByParameter-1 {
					*d.met = 0
				}
			}
		}
		chosen = append(chosen, next)
	}
	return chosen
}

// Related returns the producers that a tool needs, best first, and the names of the tools that it is a producer for.
func (c *Catalog) Related(t *tool.Tool) (needs []Needed, producesFor []string) {
	for _, p := range c.producersFor(t) {
		if of := c.producerNamed(p.id, t.View); of != nil {
			needs = append(needs, Needed{of, []string{p.parameter}})
		}
	}
	for _, name := range c.names {
		other := c.tools.get(name)
		if other.Def.ID.Server == t.Def.ID.Server && other.View == t.View &&
			slices.ContainsFunc(c.producersFor(other), func(p producer) bool { return p.id == t.Def.ID }) {
			producesFor = append(producesFor, name)
		}
	}
	return needs, producesFor
}

// Needed returns the producers that hits lack, as an answer names them.
func (c *Catalog) Needed(hits []Hit) []Needed {
	return c.needed([][]Hit{hits}, func(*tool.Tool) bool { return false })
}

// neededBy returns what the hits of an answer need and a session was not shown, and remembers what it is shown now.
func (c *Catalog) neededBy(session string, answers [][]Hit) []Needed {
	all := c.needed(answers, func(t *tool.Tool) bool { return slices.Contains(c.pinned, t) || c.told.has(session, shown(t)) })
	if session == "" {
		return all
	}
	for _, hits := range answers {
		for _, hit := range hits {
			c.told.first(session, shown(hit.Tool))
		}
	}
	for _, n := range all {
		c.told.first(session, shown(n.Tool))
	}
	return all
}

// shown is the remark that a session was shown a tool.
func shown(t *tool.Tool) string { return "tool " + t.Def.ID.String() }

// line describes a producer in an answer: what it is called with, and what it is needed for.
func (n Needed) line(detail Detail, listed bool) string {
	const most = 3 // parameters that are named
	text := "needs: " + exact(n.Name)
	if detail == DetailName {
		return text
	}
	if !listed {
		if required := requiredSignature(n.Def.InputSchema); len(required) <= maxParameter {
			text += required
		}
	}
	text += " for " + exact(strings.Join(n.For[:min(len(n.For), most)], ", "))
	if about := printable.Line(FirstSentence(n.Def.Description)); about != "" {
		text += ": " + clipWords(about, maxOptional)
	}
	return text
}

// requiredSignature is Signature with the required parameters alone.
func requiredSignature(schema json.RawMessage) string {
	required := texts(rawjson.Member(schema, "required"))
	properties := rawjson.NewObject(0)
	for name, property := range rawjson.Members(rawjson.Member(schema, "properties")) {
		if slices.Contains(required, name) {
			properties.Add(name, property)
		}
	}
	out := rawjson.NewObject(0)
	out.Add("required", rawjson.Of(required))
	out.Add("properties", properties.JSON())
	return Signature(out.JSON())
}
