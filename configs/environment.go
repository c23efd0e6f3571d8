package configs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"toolfinch/internal/document"
)

// words is a mapping of names to texts, as env and headers are. Messages show no value,
// because values may be secrets.
type words struct {
	check   func(name string) (problem string)
	null    string // hint for a name without a value
	headers bool   // names ignore case
}

func (k words) read(d *decoder, n *document.Node, label string, to *map[string]string) bool {
	if !d.isMapping(n, label, "names to text", "") {
		return false
	}
	read, seen := make(map[string]string, len(n.Pairs)), make(map[string]string, len(n.Pairs))
	for _, p := range d.unique(n, "key") {
		name, item := p.Key.Text, label+" "+shorten(p.Key.Text)
		if problem := k.check(name); problem != "" {
			d.fail(p.Key, fmt.Sprintf("%s: %q %s", label, shorten(name), problem), "")
			continue
		}
		if p.Value.Kind == document.Null {
			d.fail(p.Key, item+" has no value", k.null)
			continue
		}
		var word string
		if (str{word: true}).read(d, p.Value, item, &word) {
			read[name] = word
		}
		if !k.headers {
			continue
		}
		lower := strings.ToLower(name)
		if first, ok := seen[lower]; ok {
			d.fail(p.Key, fmt.Sprintf("%s: %q and %q are one header", label, shorten(first), shorten(name)), "keep one")
		}
		seen[lower] = name
		if strings.ContainsFunc(word, isControl) {
			d.fail(p.Value, item+" has a line break or another control character", "")
		}
	}
	if len(read) > 0 {
		*to = read
	}
	return true
}

// show prints names in order and masks all values.
func (k words) show(_ *secrets, values map[string]string) *document.Node {
	if len(values) == 0 {
		return nil
	}
	n := &document.Node{Kind: document.Mapping}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		n.Pairs = append(n.Pairs, document.Pair{Key: document.NewText(name), Value: document.NewText(maskValue(values[name]))})
	}
	return n
}

func (words) schema() schema { return schema{"type": "object", "additionalProperties": anyWord} }

func checkVariableName(name string) string {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return "is no name of a variable"
	}
	return ""
}

// inherited is a word, or globs over names of variables.
type inherited struct{}

var inheritWords = choice[string]{words: []string{"minimal", "all"}}

func (inherited) read(d *decoder, n *document.Node, label string, to *[]string) bool {
	if n.Kind == document.List {
		return list[string]{item: str{check: glob}}.read(d, n, label, to)
	}
	var word string
	ok := inheritWords.read(d, n, label, &word)
	if *to = nil; word == "all" {
		*to = []string{"*"}
	}
	return ok
}

func (inherited) show(s *secrets, globs []string) *document.Node {
	if slices.Equal(globs, []string{"*"}) {
		return document.NewText("all")
	}
	return list[string]{item: str{}}.show(s, globs)
}

func (inherited) schema() schema {
	return anyOf(inheritWords.schema(), schema{"type": "array", "items": anyText})
}
