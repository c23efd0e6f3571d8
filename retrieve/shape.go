package retrieve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// Models write a call in other shapes than {"name": ..., "arguments": {...}}. The members that they use, folded:
var (
	nameKeys   = []string{"name", "toolname", "tool", "toolid", "function", "functionname", "uri", "action"}
	serverKeys = []string{"server", "servername", "serverid", "mcpserver"}
	// envelopes hold a whole call where no name stands beside them.
	envelopes = append([]string{"function", "tool", "call", "toolcall", "functioncall", "tooluse", "request"}, args.Wrappers...)
	callsKeys = []string{"calls", "toolcalls"}
	// marks are values of "type" that say that something is a call.
	marks = []string{"tooluse", "function", "functioncall", "toolcall", "call", "tool"}
)

// maxEnvelopes bounds the envelopes around a call.
const maxEnvelopes = 8

// member is a member of an object, in its order.
type member struct {
	key, folded string
	value       json.RawMessage
}

// membersOf returns the members of an object; of several with one name, the last.
func membersOf(object json.RawMessage) (all []member) {
	for key, value := range rawjson.Members(object) {
		all = slices.DeleteFunc(all, func(m member) bool { return m.key == key })
		all = append(all, member{key, nearest.Fold(key), value})
	}
	return all
}

// first returns the index of the first member with one of the keys, in their order, that is a value of some kind; -1
// for none.
func first(all []member, keys []string, is func(json.RawMessage) bool) int {
	for _, key := range keys {
		if i := slices.IndexFunc(all, func(m member) bool { return m.folded == key && is(m.value) }); i >= 0 {
			return i
		}
	}
	return -1
}

func isText(value json.RawMessage) bool { return value[0] == '"' && rawjson.Text(value) != "" }

// asked is a call that a model asks for.
type asked struct {
	key       string // the member that should have the name
	name      string
	tool      *tool.Tool // nil: no tool has the name
	arguments json.RawMessage
	mended    bool // it was written in another shape, or its name or a value in another spelling
}

// understand reads the call in the arguments of a meta-tool; key is the member that should have the name. If the
// shape leaves a choice, the tool's schema decides. The error is an *args.Error for a call that is not understood, or
// an *argumentsError.
func (c *caller) understand(ctx context.Context, key string, raw json.RawMessage) (asked, error) {
	name, arguments, literal := parseCall(key, raw)
	if literal == nil {
		if t, ok := c.catalog.find(name); !ok && c.plainly(name) {
			return asked{name: name, arguments: arguments}, nil
		} else if ok && known(t, arguments) {
			if violations, err := c.Misfits(ctx, t, arguments); err != nil || len(violations) == 0 {
				return asked{name: name, tool: t, arguments: arguments}, err
			}
		}
	}
	object := args.ObjectIn(raw)
	if object == nil || !json.Valid(raw) {
		return asked{}, literal
	}
	all, server := unfold(object)
	read, err := c.named(key, all, server)
	switch {
	case err != nil:
		return read.asked, err
	case read.name == "":
		return asked{name: name}, literal
	}
	as, err := c.read(ctx, key, read)
	as.key = key
	if literal == nil && as.name == name && bytes.Equal(as.arguments, arguments) {
		as.mended = read.mended
	}
	return as, err
}

// plainly reports whether a name that no tool has needs no other reading: a prompt's or a resource's.
func (c *caller) plainly(name string) bool {
	_, prompt := c.catalog.Prompt(name)
	return prompt || strings.Contains(name, "://")
}

// unfold returns the members of the innermost call, and the server that an envelope names.
func unfold(object json.RawMessage) (all []member, server string) {
	for range maxEnvelopes {
		all = membersOf(object)
		if i := first(all, serverKeys, isText); i >= 0 && server == "" {
			server = rawjson.Text(all[i].value)
		}
		method := first(all, []string{"method"}, isText)
		rpc := method >= 0 && rawjson.Text(all[method].value) == "tools/call"
		keys := envelopes
		if i := first(all, nameKeys, isText); i >= 0 && !rpc {
			if !Calls(bare(rawjson.Text(all[i].value))) {
				return all, server
			}
			keys = args.Wrappers
		}
		i := first(all, keys, func(value json.RawMessage) bool {
			inner := membersOf(args.ObjectIn(value))
			return first(inner, slices.Concat(nameKeys, envelopes), func(v json.RawMessage) bool { return isText(v) || args.ObjectIn(v) != nil }) >= 0
		})
		if i < 0 {
			return all, server
		}
		object = args.ObjectIn(all[i].value)
	}
	return all, server
}

// reading is a call whose name is known, and the members beside it.
type reading struct {
	asked
	all []member // without the name and what only marks a call
}

// named finds the member with the name. Its error is an *args.Error for a server that does not fit.
func (c *caller) named(key string, all []member, server string) (reading, error) {
	keys := append([]string{nearest.Fold(key)}, nameKeys...)
	at, found, exact := -1, (*tool.Tool)(nil), false
	for _, key := range keys {
		i := first(all, []string{key}, isText)
		if i < 0 {
			continue
		}
		if at < 0 {
			at = i
		}
		if t, as := c.of(rawjson.Text(all[i].value), server); t != nil {
			at, found, exact = i, t, as
			break
		}
	}
	if at < 0 { // {"server_tool": {...}}
		if len(all) == 1 && args.ObjectIn(all[0].value) != nil {
			if t, _ := c.resolve(all[0].key); t != nil {
				return reading{asked{name: t.Name, tool: t, mended: true}, []member{{"arguments", "arguments", all[0].value}}}, nil
			}
		}
		return reading{}, nil
	}
	r := reading{asked: asked{key: key, name: rawjson.Text(all[at].value), tool: found, mended: !exact && found != nil}}
	if _, inside, call := strings.Cut(r.name, "("); call && found == nil && strings.HasSuffix(inside, ")") {
		object := args.ObjectIn(json.RawMessage(strings.TrimSuffix(inside, ")")))
		if t, _ := c.of(strings.TrimSuffix(r.name, "("+inside), server); t != nil && object != nil && json.Valid(object) {
			r.tool, r.mended = t, true
			all = append(all, member{"arguments", "arguments", object})
		}
	}
	marked := first(all, []string{"type"}, func(v json.RawMessage) bool { return slices.Contains(marks, nearest.Fold(rawjson.Text(v))) })
	for i, m := range all {
		if i != at && r.tool != nil && slices.Contains(nameKeys, m.folded) && !hasProperty(r.tool, m.key) {
			switch other, is := c.catalog.find(rawjson.Text(m.value)); {
			case is && other != r.tool:
				return r, args.Refuse("two tools are named: send %s or %s", formOf(key, r.tool.Name, nil), formOf(key, other.Name, nil))
			case is:
				continue
			}
		}
		switch {
		case i == at, i == marked, m.folded == "jsonrpc", marked >= 0 && m.folded == "id", slices.Contains(callsKeys, m.folded) && unused(m.value):
		case slices.Contains(serverKeys, m.folded) && isText(m.value) && (r.tool == nil || nearest.Fold(rawjson.Text(m.value)) == nearest.Fold(r.tool.Def.ID.Server)):
		default:
			r.all = append(r.all, m)
		}
	}
	return r, nil
}

// of resolves a name beside the name of a server.
func (c *caller) of(name, server string) (t *tool.Tool, exact bool) {
	if server == "" {
		return c.resolve(name)
	}
	if t, _ = c.resolve(server + "." + bare(name)); t != nil {
		return t, false
	}
	return c.catalog.find(name)
}

// same reports whether a text is a name of the tool.
func (c *caller) same(name json.RawMessage, t *tool.Tool) bool {
	found, _ := c.resolve(rawjson.Text(name))
	return found == t
}

// read finds the arguments among the members beside the name.
func (c *caller) read(ctx context.Context, key string, r reading) (asked, error) {
	given, rest := -1, []member(nil)
	for _, one := range args.Wrappers {
		if given < 0 {
			given = first(r.all, []string{one}, func(v json.RawMessage) bool { return !unused(v) })
		}
	}
	for i, m := range r.all {
		if i != given && (hasProperty(r.tool, m.key) || !unused(m.value)) {
			rest = append(rest, m)
		}
	}
	if given < 0 {
		flat, err := c.decide(ctx, r, []json.RawMessage{objectOf(rest)})
		if err == nil && r.tool != nil && !known(r.tool, flat.arguments) {
			err = c.unknownArgument(r.tool, flat.arguments, key)
		}
		return flat, err
	}
	m := r.all[given]
	var readings []json.RawMessage
	if object := args.ObjectIn(m.value); object != nil {
		merged := membersOf(object)
		for _, beside := range rest {
			switch {
			case r.tool != nil && !hasProperty(r.tool, beside.key):
				return r.asked, c.unknownArgument(r.tool, objectOf(rest), key)
			case slices.ContainsFunc(merged, func(m member) bool { return m.key == beside.key && !bytes.Equal(m.value, beside.value) }):
				return r.asked, args.Refuse("%s is given twice: send one of them in arguments: %s", rawjson.Clip(beside.key, 64), example(key))
			}
		}
		readings = append(readings, object)
		if rest != nil {
			readings[0] = objectOf(append(slices.DeleteFunc(merged, func(m member) bool {
				return slices.ContainsFunc(rest, func(beside member) bool { return beside.key == m.key })
			}), rest...))
		}
		if inner := c.inside(merged, r.tool); inner != nil && rest == nil && !known(r.tool, object) {
			readings = append(readings, inner)
		}
	}
	if r.tool != nil && (readings == nil || m.key != "arguments" && hasProperty(r.tool, m.key)) {
		as := m.key
		if !hasProperty(r.tool, as) {
			as = mainProperty(r.tool)
		}
		if as != "" {
			readings = append(readings, objectOf(append([]member{{key: as, value: m.value}}, rest...)))
		}
	}
	if readings == nil {
		return r.asked, args.Refuse(`arguments must be an object, not %s; the tool's own arguments go into "arguments": %s`, rawjson.Clip(string(m.value), 40), example(key))
	}
	return c.decide(ctx, r, readings)
}

// unknownArgument refuses arguments beside "arguments" that the tool's schema does not name.
func (c *caller) unknownArgument(t *tool.Tool, arguments json.RawMessage, key string) error {
	var names []string
	for name := range rawjson.Members(properties(t)) {
		names = append(names, name)
	}
	for name := range rawjson.Members(arguments) {
		if !slices.Contains(names, name) {
			return args.Refuse(`%v; the tool's own arguments go into "arguments": %s`, args.Unknown("argument of "+t.Name, name, names), example(key))
		}
	}
	return nil
}

// inside returns the arguments within arguments: of a whole call of the same tool, or under another name for them.
func (c *caller) inside(members []member, t *tool.Tool) (inner json.RawMessage) {
	for _, m := range members {
		switch {
		case t == nil || hasProperty(t, m.key) && !slices.Contains(nameKeys, m.folded):
			return nil
		case slices.Contains(args.Wrappers, m.folded) && args.ObjectIn(m.value) != nil && inner == nil:
			inner = args.ObjectIn(m.value)
		case slices.Contains(nameKeys, m.folded) && isText(m.value) && c.same(m.value, t):
		default:
			return nil
		}
	}
	return inner
}

// decide takes the one reading that fits the tool's schema: the first one if it has known arguments only.
func (c *caller) decide(ctx context.Context, r reading, readings []json.RawMessage) (asked, error) {
	r.mended = true
	r.arguments = readings[0]
	if r.tool == nil {
		return r.asked, nil
	}
	var fitting []json.RawMessage
	var misfit error
	for i, arguments := range readings {
		mended, err := c.fit(ctx, r.tool, arguments)
		switch {
		case err != nil && !errors.As(err, new(*argumentsError)):
			return r.asked, err
		case err != nil && i == 0:
			misfit = err
		case err == nil && i > 0 && known(r.tool, mended), err == nil && i == 0:
			fitting = append(fitting, mended)
		}
	}
	if len(fitting) > 1 && !known(r.tool, readings[0]) {
		fitting = fitting[1:]
	}
	switch len(fitting) {
	case 0:
		return r.asked, misfit
	case 1:
		r.arguments = fitting[0]
		return r.asked, nil
	}
	return r.asked, args.Refuse("the call has two meanings: send %s or %s", formOf(r.key, r.tool.Name, fitting[0]), formOf(r.key, r.tool.Name, fitting[1]))
}

// fit returns arguments in the types of the tool's schema. The error is an *argumentsError or ctx's. Without a
// usable schema the arguments stay unchanged.
func (c *caller) fit(ctx context.Context, t *tool.Tool, arguments json.RawMessage) (json.RawMessage, error) {
	violations, err := c.Misfits(ctx, t, arguments)
	if err != nil || len(violations) == 0 && known(t, arguments) {
		return arguments, err
	}
	mended := args.Mend(t.Def.InputSchema, arguments)
	if bytes.Equal(mended, arguments) {
		if len(violations) > 0 {
			err = &argumentsError{t, violations}
		}
		return arguments, err
	}
	if violations, err = c.Misfits(ctx, t, mended); len(violations) > 0 {
		err = &argumentsError{t, violations}
	}
	return mended, err
}

// properties returns the schemas of a tool's arguments; nil if its schema names none.
func properties(t *tool.Tool) json.RawMessage { return rawjson.Member(t.Def.InputSchema, "properties") }

func hasProperty(t *tool.Tool, name string) bool {
	return t != nil && rawjson.Member(properties(t), name) != nil
}

// known reports whether a tool's schema names all arguments, or none at all.
func known(t *tool.Tool, arguments json.RawMessage) bool {
	of := properties(t)
	for name := range rawjson.Members(arguments) {
		if of != nil && rawjson.Member(of, name) == nil {
			return false
		}
	}
	return true
}

// mainProperty returns the only argument, or the only required one, of a tool; "" if there are several.
func mainProperty(t *tool.Tool) string {
	var names []string
	for name := range rawjson.Elements(rawjson.Member(t.Def.InputSchema, "required")) {
		names = append(names, rawjson.Text(name))
	}
	if len(names) == 0 {
		for name := range rawjson.Members(properties(t)) {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		return ""
	}
	return names[0]
}

func objectOf(members []member) json.RawMessage {
	var out rawjson.Object
	for _, m := range members {
		out.Add(m.key, m.value)
	}
	return out.JSON()
}

// parseCall reads {"name": ..., "arguments": {...}}; key is the member with the name. Its errors are *args.Errors.
func parseCall(key string, raw json.RawMessage) (name string, arguments json.RawMessage, err error) {
	arguments = json.RawMessage(`{}`)
	err = args.Read("this tool", raw, args.Text(key, &name), args.Raw("arguments", &arguments),
		args.Hidden(args.Func("calls", func(value json.RawMessage) error {
			if unused(value) {
				return nil
			}
			return args.Refuse("one call has no calls of its own")
		})))
	switch {
	case err == nil && name == "":
		return "", nil, args.Refuse("%s is missing: %s", key, example(key))
	case err == nil && !rawjson.IsObject(arguments):
		err = args.Refuse("arguments must be an object, not %s", rawjson.Clip(string(arguments), 40))
	}
	if err != nil {
		return name, nil, args.Refuse(`%v; the tool's own arguments go into "arguments": %s`, err, example(key))
	}
	return name, arguments, nil
}

func example(key string) string {
	return fmt.Sprintf(`send {%q: "server_tool", "arguments": {...}}`, key)
}

// unused reports whether an argument is empty: some models fill in every argument.
func unused(value json.RawMessage) bool {
	switch string(compact(value)) {
	case "", "null", `""`, "{}", "[]", `"{}"`, `"[]"`, `"null"`, `"None"`, "[{}]":
		return true
	}
	return false
}
