package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// shape is the part of a JSON schema that a command line needs.
type shape struct {
	types []string          // types of JSON Schema; nil for any
	enum  []json.RawMessage // nil for any value of the types
	items *shape            // shape of an array's elements; nil for any
}

// The types of JSON Schema. value tries them in this order, the narrowest first.
const (
	typeNull    = "null"
	typeBoolean = "boolean"
	typeInteger = "integer"
	typeNumber  = "number"
	typeArray   = "array"
	typeObject  = "object"
	typeString  = "string"
)

// shapeOf reads a schema within root. It ignores unknown keywords, because the server checks them.
func shapeOf(schema, root json.RawMessage) shape {
	r := reader{root: root, left: 1000}
	return r.shape(schema)
}

// reader reads a schema. left bounds the subschemas, because a schema may refer to itself.
type reader struct {
	root json.RawMessage
	left int
}

func (r *reader) shape(schema json.RawMessage) shape {
	if r.left == 0 {
		return shape{}
	}
	r.left--
	if ref := rawjson.Text(rawjson.Member(schema, "$ref")); ref != "" {
		return r.shape(pointedAt(r.root, ref))
	}
	var s shape
	kind := rawjson.Member(schema, "type")
	if one := rawjson.Text(kind); one != "" {
		s.types = []string{one}
	} else {
		_ = json.Unmarshal(kind, &s.types)
	}
	s.enum = slices.Collect(rawjson.Elements(rawjson.Member(schema, "enum")))
	if value := rawjson.Member(schema, "const"); value != nil {
		s.enum = []json.RawMessage{value}
	}
	if items := rawjson.Member(schema, "items"); items != nil {
		of := r.shape(items)
		s.items = &of
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if parts := slices.Collect(rawjson.Elements(rawjson.Member(schema, key))); len(parts) > 0 {
			s.unite(r, parts)
		}
	}
	switch {
	case s.types != nil:
	case s.enum != nil:
		s.types = typesOf(s.enum)
	case rawjson.Member(schema, "properties") != nil:
		s.types = []string{typeObject}
	case s.items != nil:
		s.types = []string{typeArray}
	}
	return s
}

// unite sets the members that s lacks to the union of parts.
func (s *shape) unite(r *reader, parts []json.RawMessage) {
	var types []string
	var enum []json.RawMessage
	anything, open := false, false
	for _, part := range parts {
		of := r.shape(part)
		anything = anything || of.types == nil
		types = append(types, of.types...)
		switch {
		case of.enum != nil:
			enum = append(enum, of.enum...)
		case len(of.types) == 1 && of.types[0] == typeNull:
			enum = append(enum, json.RawMessage(typeNull))
		default:
			open = true
		}
		s.items = cmp.Or(s.items, of.items)
	}
	if !anything && s.types == nil {
		s.types = unique(types)
	}
	if !open && s.enum == nil {
		s.enum = enum
	}
}

func unique(names []string) (once []string) {
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

// pointedAt resolves a local reference in root; nil for other references.
func pointedAt(root json.RawMessage, ref string) json.RawMessage {
	path, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil
	}
	for _, key := range strings.Split(path, "/") {
		root = rawjson.Member(root, strings.NewReplacer("~1", "/", "~0", "~").Replace(key))
	}
	return root
}

func typesOf(values []json.RawMessage) []string {
	byFirst := map[byte]string{'"': typeString, 't': typeBoolean, 'f': typeBoolean, 'n': typeNull, '{': typeObject, '[': typeArray}
	var types []string
	for _, value := range values {
		types = append(types, cmp.Or(byFirst[value[0]], typeNumber))
	}
	return unique(types)
}

func (s shape) has(t string) bool { return slices.Contains(s.types, t) }

// isOnly reports whether the value is of type t, or null.
func (s shape) isOnly(t string) bool {
	return s.has(t) && !slices.ContainsFunc(s.types, func(other string) bool { return other != t && other != typeNull })
}

var (
	integers = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numbers  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

// value converts a text of the command line to JSON. Numbers keep the typed digits.
func (s shape) value(text string) (json.RawMessage, error) {
	if s.enum != nil && !s.has(typeArray) {
		if i := slices.Index(s.choices(), text); i >= 0 {
			return s.enum[i], nil
		}
		return nil, fmt.Errorf("must be %s, not %q%s", s, text, s.nearest(text))
	}
	raw := []byte(strings.TrimSpace(text))
	if s.types == nil {
		if json.Valid(raw) {
			return raw, nil
		}
		return rawjson.Quote(text), nil
	}
	for _, try := range []struct {
		kind string
		fits bool
	}{
		{typeNull, string(raw) == "null" && !s.has(typeString)},
		{typeBoolean, string(raw) == "true" || string(raw) == "false"},
		{typeInteger, integers.Match(raw)},
		{typeNumber, numbers.Match(raw)},
		{typeArray, bytes.HasPrefix(raw, []byte("[")) && json.Valid(raw)},
		{typeObject, bytes.HasPrefix(raw, []byte("{")) && json.Valid(raw)},
	} {
		if try.fits && s.has(try.kind) {
			return raw, nil
		}
	}
	if s.has(typeString) {
		return rawjson.Quote(text), nil
	}
	if s.has(typeArray) {
		one, err := s.element().value(text)
		if err != nil {
			return nil, err
		}
		return slices.Concat([]byte("["), one, []byte("]")), nil
	}
	return nil, fmt.Errorf("must be %s, not %q", s, text)
}

// values converts the texts of a repeated flag to JSON: to an array of all texts if the type allows it, else the last
// text.
func (s shape) values(texts []string) (json.RawMessage, error) {
	if len(texts) == 1 || !s.has(typeArray) {
		return s.value(texts[len(texts)-1])
	}
	var all [][]byte
	for _, text := range texts {
		raw := []byte(strings.TrimSpace(text))
		if bytes.HasPrefix(raw, []byte("[")) && json.Valid(raw) {
			for one := range rawjson.Elements(raw) {
				all = append(all, one)
			}
			continue
		}
		one, err := s.element().value(text)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]")), nil
}

func (s shape) element() shape {
	if s.items == nil {
		return shape{}
	}
	return *s.items
}

// String describes the expected value: "an integer", "one of a, b".
func (s shape) String() string {
	if s.enum != nil {
		return "one of " + strings.Join(s.choices(), ", ")
	}
	var names []string
	for _, t := range s.types {
		switch t {
		case typeNull:
		case typeInteger, typeArray:
			names = append(names, "an "+t)
		case typeObject:
			names = append(names, "a JSON object")
		case typeBoolean:
			names = append(names, "true or false")
		default:
			names = append(names, "a "+t)
		}
	}
	return strings.Join(names, " or ")
}

// choices returns the values of an enum, as a user types them.
func (s shape) choices() []string {
	var out []string
	for _, one := range s.enum {
		if one[0] == '"' {
			out = append(out, rawjson.Text(one))
		} else {
			out = append(out, string(one))
		}
	}
	return out
}

func (s shape) nearest(text string) string {
	if near := nearest.Names(text, s.choices(), 1, nearest.Loose); len(near) > 0 {
		return "; did you mean " + near[0] + "?"
	}
	return ""
}

// kind names the type in a list of flags.
func (s shape) kind() string {
	switch {
	case s.enum != nil && !s.has(typeArray):
		return strings.Join(s.choices(), "|")
	case s.types == nil:
		return "JSON or text"
	case s.isOnly(typeArray) && s.element().has(typeArray):
		return "JSON array, repeatable"
	case s.isOnly(typeArray):
		return s.element().kind() + ", repeatable"
	}
	var names []string
	for _, t := range s.types {
		switch t {
		case typeNull:
		case typeArray, typeObject:
			names = append(names, "JSON "+t)
		default:
			names = append(names, t)
		}
	}
	return strings.Join(names, "|")
}

type toolFlag struct {
	argument string // the tool's name for the argument
	name     string // name of the flag, without dashes
	required bool
	fallback json.RawMessage // default; nil for none
	about    string
	shape    shape
}

// toolFlags returns the flags of a tool, in the order of its schema. ours reports names that the command's own flags
// have; the tool's flag then gets argPrefix.
func toolFlags(schema json.RawMessage, ours func(name string) bool) []toolFlag {
	required := map[string]bool{}
	for name := range rawjson.Elements(rawjson.Member(schema, "required")) {
		required[rawjson.Text(name)] = true
	}
	var flags []toolFlag
	add := func(argument string, property json.RawMessage) {
		f := toolFlag{
			argument: argument, name: argument, required: required[argument],
			fallback: rawjson.Member(property, "default"),
			about:    rawjson.Text(rawjson.Member(property, "description")),
			shape:    shapeOf(property, schema),
		}
		if ours(argument) {
			f.name = argPrefix + argument
		}
		flags = append(flags, f)
		delete(required, argument)
	}
	for argument, property := range rawjson.Members(rawjson.Member(schema, "properties")) {
		add(argument, property)
	}
	for name := range rawjson.Elements(rawjson.Member(schema, "required")) { // an argument without a property takes any value
		if argument := rawjson.Text(name); required[argument] {
			add(argument, nil)
		}
	}
	return flags
}

// argPrefix begins an alternative flag for each argument of the tool.
const argPrefix = "arg-"

// negated begins a boolean flag that means false.
const negated = "no-"

// findFlag finds the flag for a typed name. It ignores case and separators if the result is unique. off means that it
// was negated.
func findFlag(flags []toolFlag, typed string) (f *toolFlag, off bool) {
	asTyped := func(s string) string { return s }
	folded := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(s))
	}
	for _, as := range []func(string) string{asTyped, folded} {
		for _, off := range []bool{false, true} {
			var found []*toolFlag
			for i := range flags {
				f := &flags[i]
				spellings := []string{as(f.name), as(argPrefix + f.argument)}
				if off {
					spellings = []string{as(negated + f.name)}
				}
				if slices.Contains(spellings, as(typed)) && (!off || f.shape.has(typeBoolean)) {
					found = append(found, f)
				}
			}
			if len(found) == 1 {
				return found[0], off
			}
		}
	}
	return nil, false
}

// given is a flag of the tool with its typed values; a switch has "true" or "false".
type given struct {
	*toolFlag
	texts []string
}

// arguments makes the arguments object from the words after the tool. They override the members of base, which may be
// nil.
func arguments(flags []toolFlag, words []string, base json.RawMessage) (json.RawMessage, error) {
	sets, err := readFlags(flags, words)
	if err != nil {
		return nil, err
	}
	var problems []error
	values := make([]json.RawMessage, len(sets))
	for i, set := range sets {
		if values[i], err = set.shape.values(set.texts); err != nil {
			problems = append(problems, fmt.Errorf("--%s %w", set.name, err))
		}
	}
	out := base
	if out == nil {
		out = json.RawMessage("{}")
	}
	for i, set := range slices.Backward(sets) { // backward, because Set puts a new member first
		if values[i] == nil {
			continue
		}
		if out, err = rawjson.Set(out, set.argument, values[i]); err != nil {
			return nil, err
		}
	}
	var missing []string
	for i := range flags {
		f := &flags[i]
		was := slices.ContainsFunc(sets, func(g given) bool { return g.argument == f.argument })
		if f.required && f.fallback == nil && !was && rawjson.Member(base, f.argument) == nil {
			missing = append(missing, "--"+f.name)
		}
	}
	if len(missing) > 0 {
		problems = append(problems, fmt.Errorf("missing %s", strings.Join(missing, ", ")))
	}
	return out, errors.Join(problems...)
}

// readFlags reads the words after the tool. It returns each flag once, in the order of first use.
func readFlags(flags []toolFlag, words []string) ([]given, error) {
	var sets []given
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		typed, isFlag := strings.CutPrefix(word, "--")
		if !isFlag || typed == "" {
			return nil, fmt.Errorf("%q belongs to no flag: write --NAME VALUE; --NAME=false for a boolean; --json OBJECT for all of them", word)
		}
		typed, text, hasText := strings.Cut(typed, "=")
		f, off := findFlag(flags, typed)
		if f == nil {
			return nil, unknownFlag(flags, typed)
		}
		follows := len(words) > 0 && !strings.HasPrefix(words[0], "--")
		switch {
		case off && hasText:
			return nil, fmt.Errorf("--%s takes no value", typed)
		case off:
			text = "false"
		case hasText:
		case f.shape.isOnly(typeBoolean), f.shape.has(typeBoolean) && !follows:
			text = "true"
		case !follows:
			return nil, fmt.Errorf("--%s needs a value; write --%s=VALUE for one that begins with --", typed, typed)
		default:
			text, words = words[0], words[1:]
		}
		i := slices.IndexFunc(sets, func(g given) bool { return g.toolFlag == f })
		if i < 0 {
			i = len(sets)
			sets = append(sets, given{toolFlag: f})
		}
		sets[i].texts = append(sets[i].texts, text)
	}
	return sets, nil
}

func unknownFlag(flags []toolFlag, typed string) error {
	var names []string
	for _, f := range flags {
		names = append(names, f.name)
	}
	hint := ""
	if near := nearest.Names(typed, names, 1, nearest.Loose); len(near) > 0 {
		hint = "; did you mean --" + near[0] + "?"
	}
	return fmt.Errorf("unknown flag --%s%s", typed, hint)
}

func printFlags(w io.Writer, t *tool.Tool, flags []toolFlag) error {
	if len(flags) == 0 {
		_, err := fmt.Fprintf(w, "%s takes no arguments.\n", t.Def.ID)
		return err
	}
	if _, err := fmt.Fprintf(w, "Flags of %s (* required):\n", t.Def.ID); err != nil {
		return err
	}
	lines := &table{indent: "  "}
	for _, f := range flags {
		name, about := "--"+f.name, f.about
		if f.required && f.fallback == nil {
			name += "*"
		}
		if f.fallback != nil && string(f.fallback) != "null" {
			about = strings.TrimSpace(about + " (default " + string(f.fallback) + ")")
		}
		lines.add(name, f.shape.kind(), about)
	}
	return lines.print(w)
}

// callLine is the divided command line of call.
type callLine struct {
	ours []string // flags of the command itself, with their values
	tool string   // "" without a tool
	rest []string // the words for the tool's arguments
}

// splitCall separates the command's flags from the tool's flags, which are unknown before the configuration is read.
// So every word that begins with -- is a flag; such a value must follow a =. takesValue is called for the command's
// flags only.
func splitCall(words []string, ours, takesValue func(name string) bool) (callLine, error) {
	var line callLine
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		switch word {
		case "-h":
			word = "--help"
		case "-c":
			word = "--config"
		}
		if value, ok := strings.CutPrefix(word, "-c="); ok {
			word = "--config=" + value
		}
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, hasValue := strings.Cut(name, "=")
		switch {
		case isFlag && ours(name):
			line.ours = append(line.ours, word)
			if !takesValue(name) || hasValue {
				continue
			}
			if len(words) == 0 {
				return line, fmt.Errorf("--%s needs a value", name)
			}
			line.ours, words = append(line.ours, words[0]), words[1:]
		case isFlag && line.tool == "":
			return line, fmt.Errorf("unknown flag %s: flags of the tool come after it, as in toolfinch call SERVER.TOOL %s", strconv.Quote(word), word)
		case line.tool == "" && !strings.HasPrefix(word, "-"):
			line.tool = word
		default:
			line.rest = append(line.rest, word)
		}
	}
	return line, nil
}
