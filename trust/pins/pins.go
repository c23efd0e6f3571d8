// Package pins decides what becomes of definitions that a server changes after they
// were approved, shows what changed, and warns of what is in them. It is pure: what is
// approved is kept by others.
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

// Mode is what becomes of definitions that change.
type Mode string

// The modes. What is not approved is held: nothing lists, finds or calls it.
const (
	// Review approves the first complete list of a server, its baseline. What is changed
	// or new after that waits for the owner. It is the default.
	Review Mode = "review"
	// Allow approves all that is listed.
	Allow Mode = "allow"
	// Additive is Review, but approves new optional parameters of tools.
	Additive Mode = "additive"
	// ApproveAllFirst is Review without a baseline: the first list waits, too.
	ApproveAllFirst Mode = "approve_all_first"
)

// Modes are all modes, the default first.
var Modes = []Mode{Review, Allow, Additive, ApproveAllFirst}

// First reports whether the first complete list of a server is approved.
func (m Mode) First() bool { return m != ApproveAllFirst }

// Approves reports whether what differs from what was approved is approved without the
// owner: the mode allows it, or it says the same in other bytes.
func (m Mode) Approves(h Held) bool {
	return m == Allow || h.same() || m == Additive && additive(h)
}

// Held is a definition, or the instructions of a server, that is not listed as it was
// approved.
type Held struct {
	ID   tool.ID
	Hash string          // tool.Def.Hash of what is listed
	Raw  json.RawMessage // what is listed; of instructions (tool.KindInstructions) their text
	// Approved is what was approved last, nil if nothing was.
	Approved json.RawMessage
	Rejected string // what the owner rejected: its Mark
}

// New reports whether nothing of that name was ever approved.
func (h Held) New() bool { return h.Approved == nil }

// Mark is the canonical hash of what is listed.
func (h Held) Mark() string { return Hash(h.ID.Kind, h.Raw) }

// WasRejected reports whether the owner rejected it as it is listed. It is held, and not
// reported again until it changes.
func (h Held) WasRejected() bool { return h.Rejected != "" && h.Rejected == h.Mark() }

// Why says why it is held, after its name.
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

// Canonical returns what counts of a definition, always in the same bytes: members are
// sorted, texts are escaped in one way, and so are lists whose order means nothing.
// Everything that a server says counts, _meta and unknown members too, but for icons,
// which models do not read, and lastModified of templates.
func Canonical(kind tool.Kind, raw json.RawMessage) []byte {
	if kind == tool.KindInstructions {
		return raw
	}
	return object(make([]byte, 0, len(raw)), raw, func(name string) bool { return name == "icons" }, kind == tool.KindTemplate)
}

// unordered are members whose list of texts means the same in any order, in schemas.
// Servers that make them of hash tables write them differently at each start.
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
		members[name] = value // the last one counts
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

// value appends a value.
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

// Bounds of what Additive approves: the text of new parameters is text for models.
const maxAdded = 1000 // bytes of all new parameters together, with their schemas

// additive reports whether a tool differs from what was approved by nothing but new
// members of inputSchema.properties that are not required, that are short, and of which
// nothing is to be warned.
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
