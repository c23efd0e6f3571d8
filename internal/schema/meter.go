package schema

import (
	"context"
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of one check. A unit of work is about the library's cost of applying a schema without keywords
// to a value: half a microsecond and 200 bytes. Matching texts has its own budget, because it takes
// only time.
const (
	maxWork       = 200_000 // and workPerValue for each value
	workPerValue  = 4
	maxMatching   = 200_000 // and one for each bytesPerMatch of the value
	bytesPerMatch = 4
	maxInPlace    = 100    // schemas applied to one value, each by the previous one
	maxFrames     = 2_000  // nested schemas
	workPerLook   = 4096   // work between two looks at the context
	expensive     = 20_000 // work of a check that takes a slot
)

// meter follows the library through a schema and a value, and adds up the greatest cost of the check. A
// running library cannot be stopped: a few branching references cost it seconds and gigabytes.
type meter struct {
	ctx         context.Context
	left, look  int  // work left in all, and until the next look at the context
	matching    int  // work left for matching texts
	unevaluated bool // some schema has unevaluatedProperties or unevaluatedItems
}

// work is the greatest cost of checking a value with so many values and bytes, and whether it is within
// the bounds. It takes no longer than the check may.
func (s *Schema) work(ctx context.Context, value any, values, bytes int) (work int, affordable bool) {
	budget := maxWork + workPerValue*values
	m := &meter{ctx: ctx, left: budget, matching: maxMatching + bytes/bytesPerMatch, unevaluated: s.unevaluated}
	affordable = m.visit(s.compiled, value, 0, 0)
	return budget - m.left, affordable
}

func (m *meter) spend(n int) bool {
	m.left -= n
	if m.look -= n; m.look < 0 {
		m.look = workPerLook
		if m.ctx.Err() != nil {
			m.left = -1
		}
	}
	return m.left >= 0
}

// visit adds the cost of applying s to v. inPlace counts the schemas above for the same value, frames
// all schemas above. It reports whether work is left.
func (m *meter) visit(s *jsonschema.Schema, v any, inPlace, frames int) bool {
	if !m.spend(1+inPlace/4+frames/16) || inPlace > maxInPlace || frames > maxFrames {
		return false
	}
	if s.Bool != nil || s.Types != nil && !allows(*s.Types, v) {
		return true
	}
	if !m.spend(comparison(s, v)) {
		return false
	}
	self := func(to *jsonschema.Schema) bool { return to == nil || m.visit(to, v, inPlace+1, frames+1) }
	if !self(s.Ref) || !self(s.RecursiveRef) || s.DynamicRef != nil && !self(s.DynamicRef.Ref) {
		return false
	}
	if s.Ref != nil && s.DraftVersion < 2019 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		if !m.object(s, v, self, frames) {
			return false
		}
	case []any:
		if !m.array(s, v, frames) {
			return false
		}
	case string:
		if !m.spend(len(v)/256) || !m.match(s.Pattern, v) {
			return false
		}
	case json.Number:
		if !m.spend(1 + len(v)/16) {
			return false
		}
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, {s.Not, s.If, s.Then, s.Else}} {
		for _, to := range list {
			if !self(to) {
				return false
			}
		}
	}
	return true
}

// object adds the cost of keywords for objects.
func (m *meter) object(s *jsonschema.Schema, v map[string]any, self func(*jsonschema.Schema) bool, frames int) bool {
	each := 1 + len(s.PatternProperties)
	if m.unevaluated {
		each += 3
	}
	if !m.spend(len(v)*each/2 + len(s.Required)/2 + len(s.Dependencies) + len(s.DependentRequired) + len(s.DependentSchemas)) {
		return false
	}
	for name, value := range v {
		known := false
		to := func(child *jsonschema.Schema, value any) bool {
			return child == nil || m.visit(child, value, 0, frames+1)
		}
		if child := s.Properties[name]; child != nil {
			known = true
			if !to(child, value) {
				return false
			}
		}
		for pattern, child := range s.PatternProperties {
			if !m.match(pattern, name) {
				return false
			}
			if pattern.MatchString(name) {
				known = true
				if !to(child, value) {
					return false
				}
			}
		}
		additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
		if !known && !to(additional, value) || !to(s.UnevaluatedProperties, value) || !to(s.PropertyNames, name) {
			return false
		}
		dependency, _ := s.Dependencies[name].(*jsonschema.Schema)
		if !self(dependency) || !self(s.DependentSchemas[name]) {
			return false
		}
		if names, ok := s.Dependencies[name].([]string); ok && !m.spend(len(names)) || !m.spend(len(s.DependentRequired[name])) {
			return false
		}
	}
	return true
}

// array adds the cost of keywords for arrays.
func (m *meter) array(s *jsonschema.Schema, v []any, frames int) bool {
	cost := len(v) / 4
	if m.unevaluated {
		cost = 2 * len(v)
	}
	if s.UniqueItems { // up to 20 are compared each with each
		cost += 4 * count(v)
		if len(v) <= 20 {
			cost += 16 * count(v)
		}
	}
	if !m.spend(cost) {
		return false
	}
	all := []*jsonschema.Schema{s.Contains, s.UnevaluatedItems}
	first := s.PrefixItems
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		all = append(all, items)
	case []*jsonschema.Schema:
		first = items
	}
	rest := s.Items2020
	if additional, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
		rest = additional
	}
	for i, value := range v {
		own := rest
		if i < len(first) {
			own = first[i]
		}
		for _, to := range append(all, own) {
			if to != nil && !m.visit(to, value, 0, frames+1) {
				return false
			}
		}
	}
	return true
}

// comparison is the cost of const, enum, format and the type integer.
func comparison(s *jsonschema.Schema, v any) int {
	cost := 0
	switch v := v.(type) {
	case string:
		if s.Format != nil {
			cost = 1 + len(v)
		}
	case json.Number:
		cost = 1 + len(v)/16
	}
	if s.Const != nil {
		cost += count(*s.Const)
	}
	if s.Enum != nil {
		cost += len(s.Enum.Values)
		switch v.(type) {
		case map[string]any, []any:
			cost += count(s.Enum.Values)
		}
	}
	return cost
}

// match adds the greatest cost of matching a text with a regular expression.
func (m *meter) match(re jsonschema.Regexp, text string) bool {
	if p, ok := re.(pattern); ok {
		m.matching -= 1 + len(text)*p.instructions/64
	}
	return m.matching >= 0
}

// allows reports whether a list of types has the type of v. Numbers count as integers, too.
func allows(types jsonschema.Types, v any) bool {
	var of jsonschema.Types
	switch v.(type) {
	case nil:
		of.Add("null")
	case bool:
		of.Add("boolean")
	case string:
		of.Add("string")
	case json.Number:
		of.Add("number")
		of.Add("integer")
	case []any:
		of.Add("array")
	case map[string]any:
		of.Add("object")
	}
	return types.IsEmpty() || types&of != 0
}

// reach collects the schemas reachable from s.
func reach(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	for _, to := range []*jsonschema.Schema{
		s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	} {
		reach(to, seen)
	}
	if s.DynamicRef != nil {
		reach(s.DynamicRef.Ref, seen)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		for _, to := range list {
			reach(to, seen)
		}
	}
	for _, named := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, to := range named {
			reach(to, seen)
		}
	}
	for _, to := range s.PatternProperties {
		reach(to, seen)
	}
	for _, to := range s.Dependencies {
		reachAny(to, seen)
	}
	for _, to := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		reachAny(to, seen)
	}
}

func reachAny(to any, seen map[*jsonschema.Schema]bool) {
	switch to := to.(type) {
	case *jsonschema.Schema:
		reach(to, seen)
	case []*jsonschema.Schema:
		for _, one := range to {
			reach(one, seen)
		}
	}
}
