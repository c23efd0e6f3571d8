package configs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"toolfinch/internal/document"
)

// A kind reads, prints and describes the values of keys.
type kind[V any] interface {
	// read sets to from n and reports whether it did. It reports errors to d.
	read(d *decoder, n *document.Node, label string, to *V) bool
	// show returns the value that is read as v, with secrets masked; nil leaves the key out.
	show(s *secrets, v V) *document.Node
	schema() schema
}

// change is the cost of changing a key while toolfinch runs; "" for none.
type change string

const (
	reconnect change = "reconnect" // the server is connected again
	restart   change = "restart"   // takes effect after a restart
)

// key describes one key of a mapping, for every place that mentions the key.
type key struct {
	name    string
	value   value
	doc     string // for the documentation and the schema, in Markdown
	without string // the default in words; "" for the value's own
	env     string // variable of the environment that overrides the file
	empty   bool   // an empty variable is a value
	null    bool   // null is a value, not the default
	change  change
}

// value is the field of a key with its kind. Code is compiled once for each kind, not for
// each key.
type value struct {
	at func(in any) any // pointer to the field in a pointer to the mapping's struct
	untyped
}

// untyped is a kind with its default.
type untyped interface {
	readAt(d *decoder, n *document.Node, label string, to any) bool
	showAt(s *secrets, from any) *document.Node
	resetAt(to any) // to the default
	schema() schema
	usual() *document.Node // the default; nil for none
}

func (v value) read(d *decoder, n *document.Node, label string, in any) bool {
	return v.readAt(d, n, label, v.at(in))
}
func (v value) show(s *secrets, in any) *document.Node { return v.showAt(s, v.at(in)) }
func (v value) reset(in any)                           { v.resetAt(v.at(in)) }

type typed[V any] struct {
	kind     kind[V]
	fallback []V // one, or none for the zero V
}

func (t *typed[V]) readAt(d *decoder, n *document.Node, label string, to any) bool {
	return t.kind.read(d, n, label, to.(*V))
}
func (t *typed[V]) showAt(s *secrets, from any) *document.Node { return t.kind.show(s, *from.(*V)) }
func (t *typed[V]) schema() schema                             { return t.kind.schema() }

func (t *typed[V]) usual() *document.Node {
	var v V
	t.resetAt(&v)
	return t.kind.show(nil, v)
}

func (t *typed[V]) resetAt(to any) {
	for _, v := range t.fallback { // without one, the value of another key stays
		*to.(*V) = v
	}
}

// field returns a pointer to a field of a T.
type field[T, V any] func(*T) *V

// in begins the description of a value with its field.
func in[T, V any](at func(*T) *V) field[T, V] { return at }

// is adds the kind. Without a fallback the default is the zero V.
func (f field[T, V]) is(k kind[V], fallback ...V) value {
	return value{at: func(in any) any { return f(in.(*T)) }, untyped: &typed[V]{k, fallback}}
}

// all is the field of kinds that set several fields.
func all[T any](to *T) *T { return to }

// section describes a mapping with fixed keys that is read into a T.
type section[T any] struct {
	keys
	sep string // between mapping and key in messages; default "."
	// foreign reads an unknown key and reports whether it did.
	foreign func(d *decoder, p document.Pair, label string, to *T) bool
	// check looks for contradictions between keys.
	check func(d *decoder, n *document.Node, label string, to *T)
}

// fresh returns a T with all its defaults.
func (s section[T]) fresh() T {
	var to T
	for _, k := range s.keys {
		k.value.reset(&to)
	}
	return to
}

func (s section[T]) read(d *decoder, n *document.Node, label string, to *T) bool {
	foreign := func(document.Pair) bool { return false }
	if s.foreign != nil {
		foreign = func(p document.Pair) bool { return s.foreign(d, p, label, to) }
	}
	if !s.keys.read(d, n, label, cmp.Or(s.sep, "."), to, foreign) {
		return false
	}
	if s.check != nil {
		s.check(d, n, label, to)
	}
	return true
}

func (s section[T]) show(secrets *secrets, from T) *document.Node { return s.keys.show(secrets, &from) }

// keys are the fixed keys of a mapping.
type keys []key

func (all keys) names() []string {
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.name
	}
	return names
}

func (all keys) find(name string) *key {
	if i := slices.IndexFunc(all, func(k key) bool { return k.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// read reads n into the T behind to.
func (all keys) read(d *decoder, n *document.Node, label, sep string, to any, foreign func(document.Pair) bool) bool {
	if n.Kind != document.Mapping {
		d.fail(n, label+" must be a mapping, not "+string(n.Kind), "its keys: "+strings.Join(all.names(), ", "))
		return false
	}
	for _, p := range d.unique(n, "key") {
		name := p.Key.Text
		switch k := all.find(name); {
		case k != nil && p.Value.Kind == document.Null && !k.null: // left at its default
		case k != nil:
			k.value.read(d, p.Value, label+sep+cmp.Or(p.Key.WrittenAs, name), to)
		case !foreign(p):
			d.fail(p.Key, fmt.Sprintf("%s: unknown key %q", label, shorten(name)), didYouMean(name, all.names()))
		}
	}
	return true
}

func (all keys) show(secrets *secrets, from any) *document.Node {
	n := &document.Node{Kind: document.Mapping}
	for _, k := range all {
		if value := k.value.show(secrets, from); value != nil {
			n.Pairs = append(n.Pairs, document.Pair{Key: document.NewText(k.name), Value: value})
		}
	}
	return n
}

// schema describes the keys of a mapping.
func (all keys) schema() schema {
	properties := schema{}
	for _, k := range all {
		value := k.value.schema()
		if !k.null { // null is the default
			value = anyOf(value, null)
		}
		value["description"] = markdownLink.ReplaceAllString(k.doc, "$1")
		if usual := k.value.usual(); usual != nil && k.without == "" {
			value["default"] = json.RawMessage(usual.JSON())
		}
		properties[k.name] = value
	}
	return schema{"type": "object", "properties": properties, "additionalProperties": false}
}

// list is a list of Vs, separated by commas in environment and flags.
type list[V any] struct {
	item  kind[V]
	empty bool                           // printed also without items
	mask  func(s *secrets, list []V) []V // default: each item alone
}

func (k list[V]) read(d *decoder, n *document.Node, label string, to *[]V) bool {
	if n.Outside() && n.Kind == document.Text {
		words := n.Text
		n = &document.Node{Kind: document.List}
		for word := range strings.SplitSeq(words, ",") {
			n.Items = append(n.Items, document.NewText(strings.TrimSpace(word)))
		}
	}
	if n.Kind != document.List {
		hint := ""
		if n.Kind == document.Text {
			hint = "write a list: [...]"
		}
		d.fail(n, label+" must be a list, not "+string(n.Kind), hint)
		return false
	}
	*to = nil
	ok := true
	for i, item := range n.Items {
		var v V
		if k.item.read(d, item, fmt.Sprintf("%s[%d]", label, i), &v) {
			*to = append(*to, v)
		} else {
			ok = false
		}
	}
	return ok
}

func (k list[V]) show(s *secrets, list []V) *document.Node {
	if len(list) == 0 && !k.empty {
		return nil
	}
	if k.mask != nil {
		s, list = nil, k.mask(s, list)
	}
	n := &document.Node{Kind: document.List}
	for _, v := range list {
		n.Items = append(n.Items, k.item.show(s, v))
	}
	return n
}

func (k list[V]) schema() schema { return schema{"type": "array", "items": k.item.schema()} }

// named is a mapping of names to Vs, in the order of the file.
type named[V any] struct {
	noun  string // of a V
	of    string // names and Vs in messages
	hint  string // for a value that is no mapping
	item  kind[V]
	fresh func(p document.Pair) V                            // a V with its name, place and defaults
	name  func(v *V) string                                  // of a V
	check func(d *decoder, key *document.Node, label string) // of a name; nil for any
}

func (k named[V]) read(d *decoder, n *document.Node, label string, to *[]V) bool {
	if !d.isMapping(n, label, k.of, k.hint) {
		return false
	}
	for _, p := range d.unique(n, k.noun) {
		v, item := k.fresh(p), label+"."+shorten(p.Key.Text)
		if k.check != nil {
			k.check(d, p.Key, item)
		}
		if k.item.read(d, p.Value, item, &v) {
			*to = append(*to, v)
		}
	}
	return true
}

func (k named[V]) show(s *secrets, list []V) *document.Node {
	if len(list) == 0 {
		return nil
	}
	n := &document.Node{Kind: document.Mapping}
	for i := range list {
		n.Pairs = append(n.Pairs, document.Pair{Key: document.NewText(k.name(&list[i])), Value: k.item.show(s, list[i])})
	}
	return n
}

func (k named[V]) schema() schema {
	return schema{"type": "object", "additionalProperties": k.item.schema()}
}

// onOff is true, false (nil), or a mapping.
type onOff[T any] struct {
	section section[T]
	empty   bool // printed also when off
}

func (k onOff[T]) read(d *decoder, n *document.Node, label string, to **T) bool {
	on := false
	switch n.Kind {
	case document.Mapping:
		v := k.section.fresh()
		*to = &v
		return k.section.read(d, n, label, &v)
	case document.List, document.Number:
		d.mustBe(n, label, "true, false or a mapping", "its keys: "+strings.Join(k.section.names(), ", "))
		return false
	}
	if !(boolean{}).read(d, n, label, &on) {
		return false
	}
	*to = nil
	if on {
		v := k.section.fresh()
		*to = &v
	}
	return true
}

func (k onOff[T]) show(s *secrets, v *T) *document.Node {
	switch {
	case v != nil:
		return k.section.show(s, *v)
	case k.empty:
		return document.NewBool(false)
	}
	return nil
}

func (k onOff[T]) schema() schema { return anyOf(boolean{}.schema(), k.section.schema()) }

var markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// allowed is a list whose empty value allows nothing, while nil allows everything.
type allowed[V any] struct{ item kind[V] }

func (k allowed[V]) read(d *decoder, n *document.Node, label string, to *[]V) bool {
	ok := list[V]{item: k.item}.read(d, n, label, to)
	if ok && *to == nil {
		*to = []V{}
	}
	return ok
}

func (k allowed[V]) show(s *secrets, values []V) *document.Node {
	if values == nil {
		return nil
	}
	return list[V]{item: k.item, empty: true}.show(s, values)
}

func (k allowed[V]) schema() schema { return list[V]{item: k.item}.schema() }
