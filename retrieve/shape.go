package retrieve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
	"toolfinch/tool/args"
)

// synonyms are the names, folded, that models give the members of a call and the arguments of meta-tools, the best
// first.
var synonyms = map[string][]string{
	"name":      strings.Fields("name toolname tool toolid function functionname uri action"),
	"arguments": strings.Fields("arguments args params parameters input inputs toolinput toolargs toolarguments toolparameters functionarguments actioninput argument kwargs"),
	"tool_id":   strings.Fields("toolid tool id name toolname"),
	"server":    strings.Fields("server servername serverid mcpserver"),
	"calls":     strings.Fields("calls toolcalls"),
	// A call inside:
	"whole":   strings.Fields("function tool call toolcall functioncall tooluse request"), // a call inside
	"query":   strings.Fields("query q search searchquery searchterm text task intent need keywords prompt input question description goal"),
	"queries": strings.Fields("queries needs tasks searches"),
	"limit":   strings.Fields("limit k topk n max maxresults numresults count"),
}

// maxUnwrapped bounds the objects around a call, and the texts around an object; maxMembers the members of a call that
// is written otherwise.
const (
	maxUnwrapped = 8
	maxMembers   = 200
)

// member is a member of an object, in its order.
type member struct {
	key   string
	value json.RawMessage
}

// is reports whether a member has a name for what.
func (m member) is(what string) bool { return slices.Contains(synonyms[what], nearest.Fold(m.key)) }

// membersOf returns the members of an object, of several with one name one.
func membersOf(object json.RawMessage) (all []member) {
	for key, value := range rawjson.Members(rawjson.Unique(object)) {
		all = append(all, member{key, value})
	}
	return all
}

func objectOf(members []member) json.RawMessage {
	var out rawjson.Object
	for _, m := range members {
		out.Add(m.key, m.value)
	}
	return out.JSON()
}

// first returns the index of the best synonym whose value passes; -1 for none.
func first(all []member, what string, passes func(json.RawMessage) bool) int {
	for _, synonym := range synonyms[what] {
		if i := slices.IndexFunc(all, func(m member) bool { return nearest.Fold(m.key) == synonym && passes(m.value) }); i >= 0 {
			return i
		}
	}
	return -1
}

func isText(value json.RawMessage) bool { return value[0] == '"' && rawjson.Text(value) != "" }

// objectIn returns the object that a value is, or is the JSON text or a list of; nil for another value.
func objectIn(value json.RawMessage) json.RawMessage {
	for range maxUnwrapped {
		value = bytes.TrimSpace(value)
		switch elements := slices.Collect(rawjson.Elements(value)); {
		case rawjson.IsObject(value):
			return value
		case len(value) > 0 && value[0] == '"':
			value = schema.Inner(value)
		case len(elements) == 1:
			value = elements[0]
		default:
			return nil
		}
	}
	return nil
}

// unwrapped returns the members of the innermost call, and the server that an object around it names.
func unwrapped(object json.RawMessage) (all []member, server string) {
	for range maxUnwrapped {
		all = membersOf(object)
		if i := first(all, "server", isText); i >= 0 {
			server = rawjson.Text(all[i].value)
		}
		at := first(all, "name", isText)
		if at >= 0 && !Calls(bare(rawjson.Text(all[at].value))) {
			return all, server
		}
		holds := func(value json.RawMessage) bool {
			inner := membersOf(objectIn(value))
			return first(inner, "name", isText) >= 0 || first(inner, "whole", holdsObject) >= 0 || first(inner, "arguments", holdsObject) >= 0 ||
				slices.ContainsFunc(inner, func(m member) bool { return m.is("calls") })
		}
		i := first(all, "arguments", holds)
		if i < 0 && at < 0 {
			i = first(all, "whole", holds)
		}
		if i < 0 {
			return all, server
		}
		object = objectIn(all[i].value)
	}
	return all, server
}

func holdsObject(value json.RawMessage) bool { return objectIn(value) != nil }

// merge adds members beside an object. The error is an *args.Error for two values of one name.
func merge(object, beside []member) ([]member, error) {
	for _, b := range beside {
		i := slices.IndexFunc(object, func(m member) bool { return m.key == b.key })
		switch {
		case i < 0:
			object = append(object, b)
		case !bytes.Equal(object[i].value, b.value):
			return nil, args.Refuse("%s is given twice: send one of them in arguments: %s", rawjson.Clip(b.key, 64), example("name"))
		}
	}
	return object, nil
}

// shaped returns the arguments of a meta-tool that searches under their own names.
func shaped(arguments json.RawMessage, own ...string) json.RawMessage {
	object := objectIn(arguments)
	if all := membersOf(object); len(all) == 1 && all[0].is("arguments") && holdsObject(all[0].value) {
		object = objectIn(all[0].value)
	}
	if object == nil {
		return arguments
	}
	return args.Renamed(object, synonyms, own...)
}

func example(key string) string {
	return fmt.Sprintf(`send {%q: "server_tool", "arguments": {...}}`, key)
}

// parseCall reads {"name": ..., "arguments": {...}}; key is the member with the name. Its errors are *args.Errors.
func parseCall(key string, raw json.RawMessage) (name string, arguments json.RawMessage, err error) {
	arguments = json.RawMessage(`{}`)
	err = args.Read("this tool", raw, args.Text(key, &name), args.Object("arguments", &arguments),
		args.Hidden(args.Func("calls", func(value json.RawMessage) error {
			if unused(value) {
				return nil
			}
			return args.Refuse("one call has no calls of its own")
		})))
	switch {
	case err != nil:
		return "", nil, args.Refuse(`%v; the tool's own arguments go into "arguments": %s`, err, example(key))
	case name == "":
		return "", nil, args.Refuse("%s is missing: %s", key, example(key))
	}
	return name, arguments, nil
}

// unused reports whether an argument is empty: some models fill in every argument.
func unused(value json.RawMessage) bool {
	switch string(compact(value)) {
	case "", "null", `""`, "{}", "[]", `"{}"`, `"[]"`, `"null"`:
		return true
	}
	return false
}
