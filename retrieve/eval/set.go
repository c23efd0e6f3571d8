package eval

import (
	"slices"

	"toolfinch/retrieve"
	"toolfinch/tool"
)

// Set is a catalogue and its queries.
type Set struct {
	Name    string
	Defs    []*tool.Def
	About   map[string]string // descriptions of servers by name; may be nil
	Names   map[string]string // labels of tools by exposed names
	Queries []Query
}

// Query is a query and its relevant tools. A label is "server:name", with the tool's own name; Resolve accepts
// other names.
type Query struct {
	ID       string
	Text     string
	Kind     string   // "" for none
	Relevant []string // labels, at least one, each once
	Place    string   // "file:line", for messages
}

// Unknown counts the relevant labels without a tool in the set, and returns the place and label of the first. They
// count as missed.
func (s *Set) Unknown() (count int, first string) {
	known := make(map[string]bool, len(s.Defs))
	for _, def := range s.Defs {
		known[label(def)] = true
	}
	for _, q := range s.Queries {
		for _, relevant := range q.Relevant {
			if known[relevant] {
				continue
			}
			if count == 0 {
				first = q.Place + ": " + relevant
			}
			count++
		}
	}
	return count, first
}

// Resolve replaces IDs ("server.name") and exposed names of relevant tools by labels, and returns how many relevant
// tools are in the set. Unknown and ambiguous names stay.
func (s *Set) Resolve() (known int) {
	find := retrieve.Finder(serversOf(s))
	for i, q := range s.Queries {
		relevant := make([]string, len(q.Relevant))
		for j, name := range q.Relevant {
			relevant[j] = name
			found, ok := find(name)
			if !ok {
				found, ok = find(s.Names[name])
			}
			if ok {
				relevant[j] = label(found.Def)
				known++
			}
		}
		s.Queries[i].Relevant = unique(relevant)
	}
	return known
}

// Labels returns the labels of the tools, in order.
func (s *Set) Labels() []string {
	labels := make([]string, len(s.Defs))
	for i, def := range s.Defs {
		labels[i] = label(def)
	}
	return labels
}

func label(def *tool.Def) string { return def.ID.Server + ":" + def.ID.Name }

func unique(labels []string) []string {
	var out []string
	for _, l := range labels {
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}
