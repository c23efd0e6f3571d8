package retrieve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// asked is a call that a model asks for.
type asked struct {
	name      string
	tool      *tool.Tool // nil: no tool has the name
	arguments json.RawMessage
	mended    bool // its shape, its name or a value is written otherwise than it should be
}

// understand reads the call in the arguments of call_tool. What passes literally stays unchanged; the tool's schema
// decides between the readings of another shape. The error is an *args.Error or *argumentsError, or ctx's.
func (c *caller) understand(ctx context.Context, raw json.RawMessage) (asked, error) {
	name, arguments, literal := parseCall("name", raw)
	if literal == nil {
		if t, ok := c.catalog.find(name); ok {
			violations, err := c.Misfits(ctx, t, arguments)
			if err != nil || len(violations) == 0 && (unnamed(t, arguments) == "" || c.inside(membersOf(arguments), t) == nil) {
				return asked{name: name, tool: t, arguments: arguments}, err
			}
		} else if _, prompt := c.catalog.Prompt(name); prompt || strings.Contains(name, "://") {
			return asked{name: name, arguments: arguments}, nil
		}
	}
	object := objectIn(raw)
	if object == nil || !json.Valid(raw) {
		return asked{}, literal
	}
	all, server := unwrapped(object)
	if len(all) > maxMembers {
		return asked{}, cmp.Or(literal, args.Refuse("the call has more than %d members: %s", maxMembers, example("name")))
	}
	a, rest := c.named(all, server)
	switch {
	case a.name == "":
		return a, cmp.Or(literal, args.Refuse("name is missing: %s", example("name")))
	case a.tool == nil: // perhaps a prompt
		if i := first(rest, "arguments", holdsObject); i >= 0 {
			a.arguments = objectIn(rest[i].value)
		}
		return a, nil
	}
	a, err := c.read(ctx, a, rest, literal)
	a.mended = a.mended || literal != nil || !bytes.Equal(a.arguments, arguments)
	return a, err
}

// named finds the tool, and returns the members that are neither its name nor marks of a call.
func (c *caller) named(all []member, server string) (a asked, rest []member) {
	at, tools := -1, make([]*tool.Tool, len(all))
	for _, synonym := range synonyms["name"] {
		i := slices.IndexFunc(all, func(m member) bool { return nearest.Fold(m.key) == synonym && isText(m.value) })
		if i < 0 {
			continue
		}
		name := rawjson.Text(all[i].value)
		t, exact := c.resolve(name)
		if server != "" {
			if beside, _ := c.resolve(server + "." + bare(name)); beside != nil {
				t, exact = beside, false
			} else if !exact { // of another server
				t = nil
			}
		}
		if tools[i] = t; at < 0 || a.tool == nil && t != nil {
			at, a = i, asked{name: name, tool: t, arguments: json.RawMessage(`{}`), mended: !exact}
		}
	}
	if at < 0 && len(all) == 1 && holdsObject(all[0].value) { // {"server_tool": {...}}
		if t, _ := c.resolve(all[0].key); t != nil {
			return asked{name: t.Name, tool: t}, []member{{"arguments", all[0].value}}
		}
	}
	marked := slices.ContainsFunc(all, func(m member) bool { return m.key == "type" && member{key: rawjson.Text(m.value)}.is("whole") })
	for i, m := range all {
		switch {
		case i == at, marked && (m.key == "type" || m.key == "id"):
		case hasProperty(a.tool, m.key):
			rest = append(rest, m)
		case unused(m.value), tools[i] != nil && tools[i] == a.tool:
		case m.is("server") && (a.tool == nil || nearest.Fold(rawjson.Text(m.value)) == nearest.Fold(a.tool.Def.ID.Server)):
		default:
			rest = append(rest, m)
		}
	}
	return a, rest
}

// read finds the arguments of a.tool among the members beside its name: the one reading that fits its schema.
func (c *caller) read(ctx context.Context, a asked, rest []member, literal error) (asked, error) {
	flat := objectOf(rest)
	readings := []json.RawMessage{flat}
	given := first(rest, "arguments", func(v json.RawMessage) bool { return !unused(v) })
	if given >= 0 {
		object := objectIn(rest[given].value)
		if object == nil {
			object = only(a.tool, rest[given].value)
		}
		merged, err := merge(membersOf(object), slices.Delete(slices.Clone(rest), given, given+1))
		if err != nil {
			return a, err
		}
		if object != nil {
			readings = []json.RawMessage{objectOf(merged), flat, c.inside(merged, a.tool)}
		}
	}
	var fitting []json.RawMessage
	var loose json.RawMessage // has an argument that the schema does not name
	var misfit error
	for i, reading := range readings {
		if reading == nil {
			continue
		}
		mended, err := c.fit(ctx, a.tool, reading)
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case err != nil && i == 0:
			misfit = err
		case err == nil && unnamed(a.tool, mended) == "":
			if !slices.ContainsFunc(fitting, func(f json.RawMessage) bool { return bytes.Equal(f, mended) }) {
				fitting = append(fitting, mended)
			}
		case err == nil && i == 0 && len(readings) > 1 && len(rest) == 1:
			loose = mended
		}
	}
	switch {
	case len(fitting) > 1:
		return a, args.Refuse("the call has two meanings: send %s or %s", formOf(a.tool.Name, fitting[0]), formOf(a.tool.Name, fitting[1]))
	case len(fitting) == 1:
		a.arguments = fitting[0]
	case loose != nil: // the server decides
		a.arguments = loose
	case given >= 0 && len(readings) == 1: // arguments that are no object
		return a, cmp.Or(literal, misfit)
	case misfit != nil:
		return a, misfit
	default:
		var names []string
		for _, m := range membersOf(properties(a.tool)) {
			names = append(names, m.key)
		}
		return a, args.Refuse(`%v; the tool's own arguments go into "arguments": %s`, args.Unknown("argument of "+a.tool.Name, unnamed(a.tool, readings[0]), names), example("name"))
	}
	return a, nil
}

// inside returns the arguments inside arguments: of a whole call of the same tool, or under another name for them.
func (c *caller) inside(members []member, t *tool.Tool) json.RawMessage {
	at := first(members, "arguments", holdsObject)
	if at < 0 || len(members) > 2 {
		return nil
	}
	for i, m := range members {
		if i == at {
			continue
		}
		if found, _ := c.resolve(rawjson.Text(m.value)); !m.is("name") || found != t {
			return nil
		}
	}
	return objectIn(members[at].value)
}

// properties returns the schemas of a tool's arguments; nil if its schema names none.
func properties(t *tool.Tool) json.RawMessage { return rawjson.Member(t.Def.InputSchema, "properties") }

func hasProperty(t *tool.Tool, name string) bool {
	return t != nil && rawjson.Member(properties(t), name) != nil
}

// unnamed returns the first argument that the tool's schema does not name; "" for none.
func unnamed(t *tool.Tool, arguments json.RawMessage) string {
	of := properties(t)
	for name := range rawjson.Members(arguments) {
		if rawjson.Member(of, name) == nil {
			return rawjson.Clip(name, 64)
		}
	}
	return ""
}

// only returns a value as the only argument that a tool has; nil if it has several or none.
func only(t *tool.Tool, value json.RawMessage) json.RawMessage {
	if of := membersOf(properties(t)); len(of) == 1 {
		return objectOf([]member{{of[0].key, value}})
	}
	return nil
}
