// Package pins decides about definitions that a server changes after their approval, shows the changes, and warns of
// suspicious definitions. It stores nothing: its callers store approvals.
package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Mode says what happens to changed definitions.
type Mode string

// The modes. Held definitions are neither listed, found nor called.
const (
	// Review approves the first complete list of a server, its baseline. Later changes and new
	// definitions wait for the owner. It is the default.
	Review Mode = "review"
	// Allow approves every definition.
	Allow Mode = "allow"
	// Additive is Review, but also approves new optional parameters of tools.
	Additive Mode = "additive"
	// ApproveAllFirst is Review without a baseline: the definitions of the first list wait, too.
	ApproveAllFirst Mode = "approve_all_first"
)

// Modes are all modes, the default first.
var Modes = []Mode{Review, Allow, Additive, ApproveAllFirst}

// First reports whether the first complete list of a server is approved.
func (m Mode) First() bool { return m != ApproveAllFirst }

// Approves reports whether a held definition needs no decision of the owner, by the mode or because its canonical
// form is unchanged.
func (m Mode) Approves(h Held) bool {
	return m == Allow || h.same() || m == Additive && additive(h)
}

// Held is a definition, or a server's instructions, that differs from the approved one.
type Held struct {
	ID   tool.ID
	Hash string          // tool.Def.Hash of the listed definition
	Raw  json.RawMessage // the listed definition; instructions (tool.KindInstructions) as text
	// Approved is the last approved definition, nil for none.
	Approved json.RawMessage
	Rejected string // the Mark of the rejected definition
}

// New reports whether no definition of this name was ever approved.
func (h Held) New() bool { return h.Approved == nil }

// Mark is the canonical hash of the listed definition.
func (h Held) Mark() string { return Hash(h.ID.Kind, h.Raw) }

// WasRejected reports whether the owner rejected the listed definition. It stays held, and is not reported again
// before its next change.
func (h Held) WasRejected() bool { return h.Rejected != "" && h.Rejected == h.Mark() }

// Why returns why the definition is held, in words that follow its name.
func (h Held) Why() string {
	switch {
	case h.WasRejected():
		return "was rejected by the owner of toolfinch"
	case h.New():
		return "is new since the owner of toolfinch approved what its server has"
	}
	return "was changed by its server after the owner of toolfinch approved it"
}

func (h Held) same() bool {
	return h.Approved != nil && string(Canonical(h.ID.Kind, h.Raw)) == string(Canonical(h.ID.Kind, h.Approved))
}

// Hash returns the canonical hash of a definition: the hex SHA-256 of Canonical.
func Hash(kind tool.Kind, raw json.RawMessage) string {
	sum := sha256.Sum256(Canonical(kind, raw))
	return hex.EncodeToString(sum[:])
}

// Canonical returns the relevant part of a definition in canonical bytes: sorted members, uniform escapes, and sorted
// lists if order has no meaning in them. Every member is relevant, even _meta and unknown members, except icons,
// which models do not read, and lastModified of templates.
func Canonical(kind tool.Kind, raw json.RawMessage) []byte {
	if kind == tool.KindInstructions {
		return raw
	}
	return object(make([]byte, 0, len(raw)), raw, func(name string) bool { return name == "icons" }, kind == tool.KindTemplate)
}

// unordered are the members of schemas whose lists have no order. Servers that make the lists from hash tables change
// their order at each start.
var unordered = []string{"required", "enum", "type"}

// object appends an object without the members that skip names.
func object(to []byte, raw json.RawMessage, skip func(string) bool, dated bool) []byte {
	members := map[string]json.RawMessage{}
	var names []string
	for name, value := range rawjson.Members(raw) {
		if skip != nil && skip(name) {
			continue
		}
		if members[name] == nil {
			names = append(names, name)
		}
		members[name] = value // the last duplicate counts
	}
	slices.Sort(names)
	to = append(to, '{')
	for i, name := range names {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(append(to, rawjson.Quote(name)...), ':')
		switch {
		case dated && name == "annotations" && rawjson.IsObject(members[name]):
			to = object(to, members[name], func(name string) bool { return name == "lastModified" }, false)
		default:
			to = value(to, members[name], slices.Contains(unordered, name))
		}
	}
	return append(to, '}')
}

func value(to []byte, raw json.RawMessage, anyOrder bool) []byte {
	switch raw[0] {
	case '{':
		return object(to, raw, nil, false)
	case '"':
		return append(to, rawjson.Quote(rawjson.Text(raw))...)
	case '[':
		var elements []string
		texts := true
		for element := range rawjson.Elements(raw) {
			texts = texts && element[0] == '"'
			elements = append(elements, string(value(nil, element, false)))
		}
		if anyOrder && texts {
			slices.Sort(elements)
		}
		return append(append(append(to, '['), strings.Join(elements, ",")...), ']')
	}
	return append(to, raw...)
}

// Bound of Additive, because models read the text of new parameters.
const maxAdded = 1000 // bytes of all new parameters

// additive reports whether a tool differs from the approved tool only in new members of inputSchema.properties that
// are optional, short and without a warning.
func additive(h Held) bool {
	if h.ID.Kind != tool.KindTool || h.Approved == nil {
		return false
	}
	parts := func(raw json.RawMessage) (rest, schema string, properties map[string]json.RawMessage, required json.RawMessage) {
		input := rawjson.Member(raw, "inputSchema")
		properties = map[string]json.RawMessage{}
		for name, property := range rawjson.Members(rawjson.Member(input, "properties")) {
			properties[name] = property
		}
		return string(Canonical(h.ID.Kind, rawjson.Without(raw, "inputSchema"))), string(value(nil, rawjson.Without(input, "properties"), false)), properties, rawjson.Member(input, "required")
	}
	if !rawjson.IsObject(rawjson.Member(h.Raw, "inputSchema")) || !rawjson.IsObject(rawjson.Member(h.Approved, "inputSchema")) {
		return false
	}
	rest, schema, now, required := parts(h.Raw)
	restBefore, schemaBefore, before, _ := parts(h.Approved)
	if rest != restBefore || schema != schemaBefore {
		return false
	}
	for name, property := range before {
		if now[name] == nil || string(value(nil, now[name], false)) != string(value(nil, property, false)) {
			return false
		}
	}
	size := 0
	for name, property := range now {
		if before[name] != nil {
			continue
		}
		for one := range rawjson.Elements(required) {
			if rawjson.Text(one) == name {
				return false
			}
		}
		size += len(name) + len(property)
		if size > maxAdded || len(textWarnings(name+" "+string(property))) > 0 {
			return false
		}
	}
	return true
}
