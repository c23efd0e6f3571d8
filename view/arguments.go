package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// binding turns a client's arguments into arguments of the tool. A binding never changes.
type binding struct {
	visible map[string]string // clients' names of visible properties → the tool's names
	// closed are the tool's names of hidden and renamed properties. They are compared without case, because some servers
	// ignore case.
	closed   []string
	defaults []property // sent if the client sends no value
	values   []property // always sent
	room     int        // bytes that bind may add to the arguments
}

type property struct {
	name  string
	value []byte
}

// around binds the arguments of calls before next. If two members have the same name, only the last is sent, because the
// server might read the first. call.Params keeps the client's arguments: later handlers do not read them there.
func (b *binding) around(next tool.Handler) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		// Arguments from a client are valid JSON already.
		if call.Params == nil && len(call.Arguments) > 0 && !json.Valid(call.Arguments) {
			return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the arguments are not JSON"}
		}
		sent := bytes.TrimSpace(rawjson.Unique(call.Arguments))
		switch {
		case len(sent) == 0, string(sent) == "null":
			sent = []byte(`{}`)
		case sent[0] != '{': // no member can be bound
			return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the arguments must be an object"}
		}
		arguments, closed := b.bind(sent)
		if closed != "" { // a tool result, so that the model reads it and tries again
			return tool.ErrorResult(fmt.Sprintf("the tool takes no argument %q; it takes %s", rawjson.Clip(closed, maxTold), rawjson.Clip(b.takes(), maxTold))), nil
		}
		bound := *call
		bound.Arguments = arguments
		return next(ctx, &bound)
	}
}

// bind makes the tool's arguments from a client's object. closed is a member that the client must not send. Without it,
// the call would do something other than the client asked for.
func (b *binding) bind(sent []byte) (arguments json.RawMessage, closed string) {
	out := rawjson.NewObject(len(sent) + b.room)
	var given []string
	for name, value := range rawjson.Members(sent) {
		own, known := b.visible[name]
		switch {
		case known && len(b.defaults) > 0:
			given = append(given, own)
		case known:
		case slices.ContainsFunc(b.closed, func(closed string) bool { return strings.EqualFold(closed, name) }):
			return nil, name
		default: // the tool's schema decides
			own = name
		}
		out.Add(own, value)
	}
	for _, p := range b.defaults {
		if !slices.Contains(given, p.name) {
			out.Add(p.name, p.value)
		}
	}
	for _, p := range b.values {
		out.Add(p.name, p.value)
	}
	return out.JSON(), ""
}

const maxTold = 300 // bytes

func (b *binding) takes() string {
	if len(b.visible) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(b.visible)), ", ")
}

// bind applies parameters to the input schema of a tool, and returns the changed schema and the binding for arguments,
// nil if arguments do not change. hooked says that a hook may send hidden arguments.
//
// bind changes properties, required, dependentRequired, dependentSchemas and dependencies, at the root and in nested
// allOf, anyOf, oneOf, if, then and else, and every $ref to a property of the root. A removed property that a $ref names
// is kept under $defs. Lists of required properties lose hidden and supplied properties. Requirements that depend on a
// removed property are dropped.
//
// bind does not change not, propertyNames, patternProperties, minProperties, maxProperties, a $ref that replaces one of
// the schemas above, and a $ref to properties outside of the root. If a schema uses these, the upstream may refuse
// arguments that the changed schema allows.
func bind(def *tool.Def, parameters []Parameter, hooked bool) (json.RawMessage, *binding, []Problem) {
	if len(parameters) == 0 {
		return def.InputSchema, nil, nil
	}
	b, problems := newBinder(def, parameters, hooked)
	if len(problems) > 0 {
		return nil, nil, problems
	}
	return b.schema(def.InputSchema), b.binding(), nil
}

// binder has the properties of one tool and their changes.
type binder struct {
	names      []string             // names of the properties, in the order of the schema
	parameters map[string]Parameter // changes by property name
}

func newBinder(def *tool.Def, parameters []Parameter, hooked bool) (*binder, []Problem) {
	b := &binder{parameters: make(map[string]Parameter, len(parameters))}
	known := map[string]bool{}
	for name := range rawjson.Members(rawjson.Member(def.InputSchema, "properties")) {
		if !known[name] {
			known[name] = true
			b.names = append(b.names, name)
		}
	}
	var problems []Problem
	wrong := func(p Parameter, hint, format string, args ...any) {
		message := fmt.Sprintf("tool %s: parameter %q: %s", def.ID, p.Name, fmt.Sprintf(format, args...))
		problems = append(problems, Problem{At: p.At, Message: message, Hint: hint})
	}
	for _, p := range parameters {
		switch {
		case !known[p.Name]:
			wrong(p, didYouMean(p.Name, b.names), "the tool has no such parameter")
		case p.Value != nil && !json.Valid(p.Value), p.Default != nil && !json.Valid(p.Default):
			wrong(p, "", "its value is not JSON")
		default:
			b.parameters[p.Name] = p
		}
	}
	var required []string
	for element := range rawjson.Elements(rawjson.Member(def.InputSchema, "required")) {
		required = append(required, rawjson.Text(element))
	}
	taken := map[string]string{}
	for _, name := range b.names {
		p := b.parameters[name]
		if b.gone(name) {
			if slices.Contains(required, name) && !b.supplied(name) && !hooked {
				wrong(p, "give it a default or a value", "it is hidden, but the tool requires it")
			}
			continue
		}
		seen := b.seen(name)
		other, clash := taken[seen]
		taken[seen] = name
		if !clash {
			continue
		}
		if p.Name == "" { // not renamed: the property that takes its name has the problem
			p = b.parameters[other]
			other = name
		}
		wrong(p, "choose another name", "clients would know it and %q by one name, %q", other, seen)
	}
	return b, problems
}

// gone reports whether a property is hidden from clients.
func (b *binder) gone(name string) bool {
	p := b.parameters[name]
	return p.Hidden || p.Value != nil
}

// supplied reports whether a property is sent without the client.
func (b *binder) supplied(name string) bool {
	p := b.parameters[name]
	return p.Value != nil || p.Default != nil
}

// seen returns the clients' name of a visible property.
func (b *binder) seen(name string) string { return cmp.Or(b.parameters[name].Rename, name) }

// binding returns the binding, nil if arguments do not change.
func (b *binder) binding() *binding {
	out := &binding{visible: make(map[string]string, len(b.names)), room: 64} // 64 bytes for longer names
	for _, name := range b.names {
		p := b.parameters[name]
		switch {
		case p.Value != nil:
			out.values = append(out.values, property{name, p.Value})
		case p.Default != nil && p.Hidden:
			out.values = append(out.values, property{name, p.Default})
		case p.Default != nil:
			out.defaults = append(out.defaults, property{name, p.Default})
		}
		if b.supplied(name) {
			out.room += len(name) + len(p.Value) + len(p.Default) + 4
		}
		if !b.gone(name) {
			out.visible[b.seen(name)] = name
		}
		if b.gone(name) || b.seen(name) != name {
			out.closed = append(out.closed, name)
		}
	}
	if len(out.closed)+len(out.defaults) == 0 {
		return nil
	}
	return out
}

// schema returns the input schema that clients see.
func (b *binder) schema(schema json.RawMessage) json.RawMessage {
	properties := rawjson.Member(schema, "properties")
	told := rewrite(properties, func(name string, value json.RawMessage) (string, json.RawMessage, bool) {
		if !b.gone(name) { // descriptions of hidden properties are not shown
			value = b.parameters[name].tell(value)
		}
		return name, value, true
	})
	if !bytes.Equal(told, properties) {
		schema = set(schema, "properties", told)
	}
	return b.refer(b.follow(schema, 0), told)
}

// tell returns a property's schema with the description and default of p.
func (p Parameter) tell(schema json.RawMessage) json.RawMessage {
	if string(schema) == "true" && (p.Description != nil || p.Default != nil) {
		schema = json.RawMessage(`{}`) // {} means the same as true
	}
	if p.Description != nil {
		said := rawjson.Text(rawjson.Member(schema, "description"))
		if text := strings.ReplaceAll(*p.Description, original, said); text != said {
			schema = set(schema, "description", rawjson.Quote(text))
		}
	}
	if p.Default != nil {
		schema = set(schema, "default", p.Default)
	}
	return schema
}

// deepest bounds how deep foreign schemas are changed, because each level reads all levels below again.
const deepest = 32

// follow renames and removes properties in a schema and in subschemas that describe the same object.
func (b *binder) follow(schema json.RawMessage, depth int) json.RawMessage {
	if depth > deepest {
		return schema
	}
	below := func(schema json.RawMessage) json.RawMessage { return b.follow(schema, depth+1) }
	keyed := func(object json.RawMessage, change func(json.RawMessage) json.RawMessage) json.RawMessage {
		return rewrite(object, func(name string, value json.RawMessage) (string, json.RawMessage, bool) {
			return b.seen(name), change(value), !b.gone(name)
		})
	}
	return rewrite(schema, func(keyword string, value json.RawMessage) (string, json.RawMessage, bool) {
		switch keyword {
		case "required":
			left := b.required(value)
			return keyword, left, string(left) != "[]" || bytes.Equal(left, value) // draft 4 forbids an empty list
		case "properties":
			value = keyed(value, func(schema json.RawMessage) json.RawMessage { return schema })
		case "dependentRequired":
			value = keyed(value, b.required)
		case "dependentSchemas":
			value = keyed(value, below)
		case "dependencies":
			value = keyed(value, func(value json.RawMessage) json.RawMessage {
				if value[0] == '[' {
					return b.required(value)
				}
				return below(value)
			})
		case "allOf", "anyOf", "oneOf":
			value = elements(value, func(schema json.RawMessage) (json.RawMessage, bool) { return below(schema), true })
		case "if", "then", "else":
			value = below(value)
		}
		return keyword, value, true
	})
}

// required renames properties in a list, and removes supplied and hidden properties.
func (b *binder) required(list json.RawMessage) json.RawMessage {
	return elements(list, func(element json.RawMessage) (json.RawMessage, bool) {
		name := rawjson.Text(element)
		if seen := b.seen(name); seen != name {
			element = rawjson.Quote(seen)
		}
		return element, !b.gone(name) && !b.supplied(name)
	})
}

// elements is rewrite for arrays.
func elements(array json.RawMessage, change func(json.RawMessage) (json.RawMessage, bool)) json.RawMessage {
	var out []json.RawMessage
	changed := false
	for element := range rawjson.Elements(array) {
		next, stays := change(element)
		changed = changed || !stays || !bytes.Equal(next, element)
		if stays {
			out = append(out, next)
		}
	}
	if !changed {
		return array
	}
	return rawjson.Array(out)
}

// refer changes references to properties of the root: to the new name or, for a removed property, into $defs. properties
// are the root's before the change.
func (b *binder) refer(schema, properties json.RawMessage) json.RawMessage {
	if !bytes.Contains(properties, []byte(`"$ref"`)) && !bytes.Contains(schema, []byte(`"$ref"`)) {
		return schema
	}
	kept := map[string]string{} // removed property → its name in $defs
	var next []string           // kept properties that are not in $defs yet
	change := func(pointer string) string {
		step, below, deeper := strings.Cut(strings.TrimPrefix(pointer, "#/properties/"), "/")
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if !strings.HasPrefix(pointer, "#/properties/") || !slices.Contains(b.names, name) {
			return pointer
		}
		to := pointerTo("properties", b.seen(name))
		if b.gone(name) {
			if kept[name] == "" {
				free := name
				for rawjson.Member(rawjson.Member(schema, "$defs"), free) != nil || slices.Contains(slices.Collect(maps.Values(kept)), free) {
					free += "_"
				}
				kept[name], next = free, append(next, name)
			}
			to = pointerTo("$defs", kept[name])
		}
		if deeper {
			to += "/" + below
		}
		return to
	}
	schema = repoint(schema, change, 0)
	for ; len(next) > 0; next = next[1:] { // kept properties may refer to further removed properties
		defs := rawjson.Member(schema, "$defs")
		if defs == nil {
			defs = json.RawMessage(`{}`)
		}
		definition := repoint(rawjson.Member(properties, next[0]), change, 0)
		schema = set(schema, "$defs", set(defs, kept[next[0]], definition))
	}
	return schema
}

// repoint changes every reference in a schema.
func repoint(schema json.RawMessage, change func(string) string, depth int) json.RawMessage {
	if depth > deepest || len(schema) == 0 {
		return schema
	}
	switch schema[0] {
	case '{':
		return rewrite(schema, func(name string, value json.RawMessage) (string, json.RawMessage, bool) {
			if name != "$ref" || value[0] != '"' {
				return name, repoint(value, change, depth+1), true
			}
			ref := rawjson.Text(value)
			if to := change(ref); to != ref {
				value = rawjson.Quote(to)
			}
			return name, value, true
		})
	case '[':
		return elements(schema, func(element json.RawMessage) (json.RawMessage, bool) {
			return repoint(element, change, depth+1), true
		})
	}
	return schema
}

// pointerTo returns the reference to the member name of the root's member keyword.
func pointerTo(keyword, name string) string {
	return "#/" + keyword + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
