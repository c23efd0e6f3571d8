package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Bounds for reading a schema. Values beyond them are filled in as JSON.
const (
	maxDepth   = 6
	maxFields  = 1000
	maxOptions = 200
	maxCopied  = 16 << 20 // bytes copied for references
	maxHops    = 8        // references that lead to references
)

// fieldKind says how a value is filled in.
type fieldKind string

const (
	kindText   fieldKind = "text"
	kindNumber fieldKind = "number"
	kindBool   fieldKind = "boolean"
	kindChoice fieldKind = "choice" // one of Options
	kindChecks fieldKind = "checks" // several of Options
	kindObject fieldKind = "object" // has Fields
	kindList   fieldKind = "list"   // has Items
	kindJSON   fieldKind = "json"   // all others
)

// param is a value that a JSON Schema describes, as a form shows it and people fill it in. It has more than 30 methods:
// templates call a third of them.
type param struct {
	Path  string // JSON Pointer to the value, but with hidden characters as token writes them; "" for the root
	Where string // Path without escapes, as in errors of package schema
	Name  string // name of a member, or number of an item
	Depth int

	About    string
	Type     string // in words
	Kind     fieldKind
	Input    string // type of the HTML input; "textarea" for texts with several lines
	Required bool
	Nullable bool
	Default  string // JSON
	Bounds   string // in words
	Options  []choice
	Fields   []*param // members of an object
	prefix   string   // prefix of input IDs, if a page has several forms
	whole    bool     // the value must be an integer
	item     func(n int) *param

	form // filled-in values
}

// choice is a value that a field may have.
type choice struct {
	Value json.RawMessage
	Label string
	On    bool
}

type reader struct {
	root   json.RawMessage
	left   int // fields that may still be read
	copied int // bytes copied for references
}

// readSchema returns the value that a schema describes. It is never nil.
func readSchema(schema json.RawMessage) *param {
	r := &reader{root: schema, left: maxFields}
	f := r.read(schema, &param{Required: true})
	if f.Kind != kindObject { // arguments are always an object, even if the schema does not say so
		f.Kind, f.Type, f.Required = kindJSON, "object", false
		if member(schema, "properties") == nil && (schema == nil || closed(schema)) {
			f.Kind = kindObject
		}
	}
	return f
}

// closed reports whether the schema of an object without properties forbids all members.
func closed(schema json.RawMessage) bool {
	more := member(schema, "additionalProperties")
	return more == nil || string(more) == "false"
}

// member returns a member of a value, nil if the value is no object.
func member(value json.RawMessage, name string) json.RawMessage {
	if !rawjson.IsObject(value) {
		return nil
	}
	return rawjson.Member(value, name)
}

// promptSchema returns a schema for a prompt's arguments, which are all texts.
func promptSchema(def *tool.Def) json.RawMessage {
	var properties, schema rawjson.Object
	var required []json.RawMessage
	for argument := range rawjson.Elements(member(def.Raw, "arguments")) {
		name := rawjson.Text(member(argument, "name"))
		if name == "" {
			continue
		}
		var one rawjson.Object
		one.AddText("type", "string")
		one.AddText("description", rawjson.Text(member(argument, "description")))
		one.AddText("title", rawjson.Text(member(argument, "title")))
		properties.Add(name, one.JSON())
		if string(member(argument, "required")) == "true" {
			required = append(required, rawjson.Quote(name))
		}
	}
	schema.AddText("type", "object")
	schema.Add("properties", rawjson.Unique(properties.JSON()))
	schema.Add("required", rawjson.Array(required))
	return schema.JSON()
}

// resolve follows references within the schema. Members beside a reference have precedence.
func (r *reader) resolve(schema json.RawMessage) json.RawMessage {
	for range maxHops {
		ref := rawjson.Text(member(schema, "$ref"))
		all := slices.Collect(rawjson.Elements(list(member(schema, "allOf"))))
		var target json.RawMessage
		switch {
		case ref != "":
			if target = r.at(ref); target == nil {
				return schema
			}
		case len(all) == 1 && member(schema, "properties") == nil:
			target = all[0]
		default:
			return schema
		}
		if r.copied += len(target) + len(schema); !rawjson.IsObject(target) || r.copied > maxCopied {
			return schema
		}
		var merged rawjson.Object
		merged.AddAll(target)
		for name, value := range rawjson.Members(schema) {
			if name != "$ref" && name != "allOf" {
				merged.Add(name, value)
			}
		}
		schema = rawjson.Unique(merged.JSON())
	}
	return nil
}

// at returns the schema that a reference names, nil if it is outside of this schema.
func (r *reader) at(ref string) json.RawMessage {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil
	}
	value := r.root
	if pointer == "" {
		return value
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		value = member(value, unescaped.Replace(token))
	}
	return value
}

var (
	unescaped = strings.NewReplacer("~1", "/", "~0", "~")
	escaped   = strings.NewReplacer("~", "~0", "/", "~1")
)

// token escapes a name for a path. Paths are names and IDs of inputs. Hidden characters and blanks are escaped, too:
// browsers change line breaks, revealed changes hidden characters, and blanks separate the IDs in a list.
func token(name string) string {
	if name = escaped.Replace(name); !strings.ContainsFunc(name, unfit) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if unfit(r) {
			fmt.Fprintf(&b, "~u%x;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unfit(r rune) bool { return hides(r) || unicode.IsControl(r) || unicode.IsSpace(r) }

// list returns a value that is a JSON array, else nil.
func list(value json.RawMessage) json.RawMessage {
	if value = bytes.TrimSpace(value); len(value) == 0 || value[0] != '[' {
		return nil
	}
	return value
}

// read sets the fields of f from its schema.
func (r *reader) read(schema json.RawMessage, f *param) *param {
	r.left--
	f.Kind, f.Type = kindJSON, "any"
	if r.left < 0 || f.Depth > maxDepth {
		f.About = rawjson.Text(member(schema, "description"))
		return f
	}
	if resolved := r.resolve(schema); resolved != nil {
		schema = resolved
	} else {
		return f
	}
	if one := r.nullable(schema); one != nil {
		schema, f.Nullable = one, true
	}
	f.About = rawjson.Text(member(schema, "description"))
	if value := member(schema, "default"); value != nil && string(value) != "null" {
		f.Default = string(compact(value))
	}
	f.Bounds = boundsOf(schema)
	typ, several := typeOf(schema)
	if slices.Contains(several, "null") {
		f.Nullable = true
		several = slices.DeleteFunc(several, func(s string) bool { return s == "null" })
		if len(several) == 1 {
			typ, several = several[0], nil
		}
	}
	if options := optionsOf(schema); options != nil {
		f.Kind, f.Options = kindChoice, options
		f.Type = "one of " + strconv.Itoa(len(options))
		if len(options) == 1 {
			f.Type = "constant"
		}
		return f
	}
	if typ == "" && several == nil && member(schema, "properties") != nil {
		typ = "object"
	}
	if typ == "" {
		switch {
		case several != nil:
			f.Type = strings.Join(several, " or ")
		case member(schema, "anyOf") != nil, member(schema, "oneOf") != nil:
			f.Type = r.alternatives(schema)
		}
		return f
	}
	f.Type = typ
	r.byType(schema, typ, f)
	return f
}

// byType sets the fields of f that depend on the type.
func (r *reader) byType(schema json.RawMessage, typ string, f *param) {
	switch typ {
	case "string":
		format := rawjson.Text(member(schema, "format"))
		f.Kind, f.Input = kindText, inputOf(format)
		if most, ok := rawjson.Int(member(schema, "maxLength")); f.Input == "" && member(schema, "pattern") == nil && !(ok && most <= 100) && format == "" {
			f.Input = "textarea"
		}
		f.Input = cmp.Or(f.Input, "text")
		if format != "" {
			f.Type = "string, " + rawjson.Clip(format, 40)
		}
	case "integer", "number":
		f.Kind, f.Input, f.whole = kindNumber, "text", typ == "integer"
	case "boolean":
		f.Kind = kindBool
	case "array":
		r.array(schema, f)
	case "object":
		r.object(schema, f)
	}
}

func inputOf(format string) string {
	return map[string]string{"date": "date", "date-time": "datetime-local", "email": "email", "idn-email": "email", "uri": "url", "url": "url", "iri": "url", "password": "password"}[format]
}

func (r *reader) array(schema json.RawMessage, f *param) {
	items := member(schema, "items")
	if !rawjson.IsObject(items) || member(schema, "prefixItems") != nil {
		return
	}
	f.item = func(n int) *param {
		name := strconv.Itoa(n)
		return r.read(items, &param{Path: f.Path + "/" + name, Where: f.Where + "/" + name, Name: name, Depth: f.Depth + 1, Required: true})
	}
	element := f.item(0)
	f.Type = "array of " + element.Type
	if element.Kind == kindChoice && len(element.Options) > 1 && len(element.Options) <= 30 {
		f.Kind, f.Options, f.item = kindChecks, element.Options, nil
		f.Type = "some of " + strconv.Itoa(len(element.Options))
		return
	}
	f.Kind = kindList
}

func (r *reader) object(schema json.RawMessage, f *param) {
	properties := member(schema, "properties")
	if !rawjson.IsObject(properties) || rawjson.IsEmpty(properties) {
		if closed(schema) && properties != nil {
			f.Kind = kindObject
		}
		return
	}
	required := map[string]bool{}
	for name := range rawjson.Elements(list(member(schema, "required"))) {
		required[rawjson.Text(name)] = true
	}
	f.Kind = kindObject
	for name, property := range rawjson.Members(rawjson.Unique(properties)) {
		f.Fields = append(f.Fields, r.read(property, &param{
			Path: f.Path + "/" + token(name), Where: f.Where + "/" + name, Name: name, Depth: f.Depth + 1, Required: required[name],
		}))
	}
}

// nullable returns the schema that anyOf or oneOf allows besides null, nil if null is not one of two choices.
func (r *reader) nullable(schema json.RawMessage) json.RawMessage {
	for _, key := range []string{"anyOf", "oneOf"} {
		all := slices.Collect(rawjson.Elements(list(member(schema, key))))
		if len(all) != 2 {
			continue
		}
		for i, one := range all {
			if rawjson.Text(member(one, "type")) != "null" {
				continue
			}
			other := r.resolve(all[1-i])
			if !rawjson.IsObject(other) {
				return nil
			}
			var merged rawjson.Object
			merged.AddAll(other)
			for name, value := range rawjson.Members(schema) {
				if name != key {
					merged.Add(name, value)
				}
			}
			return rawjson.Unique(merged.JSON())
		}
	}
	return nil
}

// alternatives returns the types that anyOf or oneOf allows, in words.
func (r *reader) alternatives(schema json.RawMessage) string {
	var types []string
	for _, key := range []string{"anyOf", "oneOf"} {
		for one := range rawjson.Elements(list(member(schema, key))) {
			typ, _ := typeOf(r.resolve(one))
			typ = cmp.Or(typ, "any")
			if !slices.Contains(types, typ) {
				types = append(types, typ)
			}
		}
	}
	return strings.Join(types, " or ")
}

// typeOf returns the type of a schema, or its types if it has several.
func typeOf(schema json.RawMessage) (one string, several []string) {
	value := member(schema, "type")
	if list(value) == nil {
		return rawjson.Clip(rawjson.Text(value), 40), nil
	}
	for typ := range rawjson.Elements(value) {
		if len(several) < 8 {
			several = append(several, rawjson.Clip(rawjson.Text(typ), 40))
		}
	}
	if len(several) == 1 {
		return several[0], nil
	}
	return "", several
}

// optionsOf returns the values that a schema lists, nil if it lists none or too many.
func optionsOf(schema json.RawMessage) (all []choice) {
	if value := member(schema, "const"); value != nil {
		return []choice{{Value: value, Label: labelOf(value)}}
	}
	if values := list(member(schema, "enum")); values != nil {
		titles := slices.Collect(rawjson.Elements(list(member(schema, "enumNames"))))
		for value := range rawjson.Elements(values) {
			one := choice{Value: value, Label: labelOf(value)}
			if len(all) < len(titles) {
				one.Label = titled(rawjson.Text(titles[len(all)]), one.Label)
			}
			if all = append(all, one); len(all) > maxOptions {
				return nil
			}
		}
		return all
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		for one := range rawjson.Elements(list(member(schema, key))) {
			value := member(one, "const")
			if value == nil || len(all) >= maxOptions {
				return nil
			}
			all = append(all, choice{Value: value, Label: titled(rawjson.Text(member(one, "title")), labelOf(value))})
		}
	}
	return all
}

func titled(title, label string) string {
	if title == "" || title == label {
		return label
	}
	return title + " (" + label + ")"
}

func labelOf(value json.RawMessage) string {
	if text := rawjson.Text(value); text != "" {
		return text
	}
	return string(compact(value))
}

func compact(value json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return value
	}
	return b.Bytes()
}

// Bounds for indented JSON, which nesting makes much longer.
const (
	maxNesting     = 200
	maxIndentation = 8 << 20 // bytes
)

// indented returns indented JSON. Texts that are no JSON or exceed the bounds are returned unchanged.
func indented(value json.RawMessage) string {
	var b bytes.Buffer
	if !indents(value) || json.Indent(&b, value, "", "  ") != nil {
		return string(value)
	}
	return b.String()
}

// indents reports whether a value, when indented, is within the bounds.
func indents(value json.RawMessage) bool {
	depth, added, quoted := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
			added += 2 * depth
		case c == ',':
			added += 2 * depth
		case c == '}', c == ']':
			depth--
			added += 2 * depth
		}
		if depth > maxNesting || added > maxIndentation {
			return false
		}
	}
	return true
}

// boundsOf says in words which values a schema allows.
func boundsOf(schema json.RawMessage) string {
	var words []string
	value := func(name string) string {
		v := member(schema, name)
		if v == nil || list(v) != nil || rawjson.IsObject(v) {
			return ""
		}
		return rawjson.Clip(string(v), 40)
	}
	between := func(least, most, unit string) {
		low, high := value(least), value(most)
		switch {
		case low != "" && high != "":
			words = append(words, low+" to "+high+unit)
		case low != "":
			words = append(words, "at least "+low+unit)
		case high != "":
			words = append(words, "at most "+high+unit)
		}
	}
	between("minimum", "maximum", "")
	if v := value("exclusiveMinimum"); v != "" {
		words = append(words, "more than "+v)
	}
	if v := value("exclusiveMaximum"); v != "" {
		words = append(words, "less than "+v)
	}
	if v := value("multipleOf"); v != "" {
		words = append(words, "a multiple of "+v)
	}
	between("minLength", "maxLength", " characters")
	between("minItems", "maxItems", " items")
	if value("uniqueItems") == "true" {
		words = append(words, "each once")
	}
	if v := rawjson.Text(member(schema, "pattern")); v != "" {
		words = append(words, "matches "+rawjson.Clip(v, 120))
	}
	return strings.Join(words, ", ")
}

func (f *param) ID() string { return f.prefix + "a" + f.Path }

// CountName is the name of the hidden input with the number of a list's items.
func (f *param) CountName() string { return f.prefix + "n" + f.Path }

// each gives all inputs of f a prefix for their IDs.
func (f *param) each(prefix string) {
	f.prefix = prefix
	if of := f.item; of != nil {
		f.item = func(n int) *param {
			one := of(n)
			one.each(prefix)
			return one
		}
	}
	for _, one := range slices.Concat(f.Fields, f.Items) {
		one.each(prefix)
	}
}

// Hint describes type, bounds and default of a value.
func (f *param) Hint() string {
	words := []string{f.Type}
	if f.Bounds != "" {
		words = append(words, f.Bounds)
	}
	if f.Nullable {
		words = append(words, "or null")
	}
	if f.Default != "" && f.Kind != kindObject {
		words = append(words, fmt.Sprintf("default %s", rawjson.Clip(f.Default, 80)))
	}
	return strings.Join(words, ", ")
}
