package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
)

// maxRounds bounds the checks of one value: each may find violations inside what the one before mended. Values above
// maxMended bytes, and more than maxPlaces violations, are not mended.
const (
	maxRounds = 5
	maxMended = 1 << 20
	maxPlaces = 100
)

// Mend returns a value that fits the schema, if another spelling of the value surely is meant: JSON as text, a number
// as text, text as a number, null or an empty text for an optional member, another case of a choice or of a member's
// name. Otherwise it returns the value and its violations. Its errors are those of Check.
func (c *Cache) Mend(ctx context.Context, key string, raw, value json.RawMessage) (mended json.RawMessage, violations []string, err error) {
	schema, err := c.Compile(ctx, key, raw)
	if err != nil {
		return value, nil, err
	}
	violations, err = schema.check(ctx, value, c.slots)
	mended = value
	for range maxRounds {
		if len(violations) == 0 || err != nil || len(value) > maxMended {
			break
		}
		invalid, err := schema.validate(ctx, mended, c.slots)
		if err != nil {
			return value, violations, ctx.Err()
		}
		if invalid == nil {
			return mended, nil, nil
		}
		next := schema.repaired(mended, invalid)
		if next == nil || bytes.Equal(next, mended) {
			break
		}
		mended = next
	}
	return value, violations, err
}

// wanted is what the violations at one place of a value want there.
type wanted struct {
	at      []string
	types   []string
	choices []any
	none    bool     // an empty text does not fit
	missing []string // members
	unknown []string // members
}

// repaired mends the places with violations; nil if there is one that cannot be mended.
func (s *Schema) repaired(value json.RawMessage, invalid *jsonschema.ValidationError) json.RawMessage {
	var all []*wanted
	of := func(at []string) *wanted {
		i := slices.IndexFunc(all, func(w *wanted) bool { return slices.Equal(w.at, at) })
		if i < 0 {
			i, all = len(all), append(all, &wanted{at: at})
		}
		return all[i]
	}
	var collect func(*jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			collect(cause)
		}
		if len(e.Causes) > 0 || len(all) > maxPlaces {
			return
		}
		w := of(e.InstanceLocation)
		switch k := e.ErrorKind.(type) {
		case *kind.Type:
			w.types = append(w.types, k.Want...)
		case *kind.Enum:
			w.choices = append(w.choices, k.Want...)
		case *kind.Const:
			w.choices = append(w.choices, k.Want)
		case *kind.Format, *kind.MinLength, *kind.Pattern:
			w.none = true
		case *kind.Required:
			w.missing = append(w.missing, k.Missing...)
		case *kind.AdditionalProperties:
			w.unknown = append(w.unknown, k.Properties...)
		}
	}
	collect(invalid)
	for _, w := range all {
		if len(w.unknown) > 0 && len(w.at) == 0 { // the root's members are known
			for name := range s.compiled.Properties {
				w.missing = append(w.missing, name)
			}
		}
		value = edit(value, w.at, w.repair)
	}
	return value
}

// edit returns value with the part at a place replaced; a part that becomes nil is left out of its object.
func edit(value json.RawMessage, at []string, with func(json.RawMessage) json.RawMessage) json.RawMessage {
	if len(at) == 0 {
		return with(value)
	}
	if rawjson.IsObject(value) {
		part := rawjson.Member(value, at[0])
		if part == nil {
			return value
		}
		if part = edit(part, at[1:], with); part == nil {
			return rawjson.Without(value, at[0])
		}
		value, _ = rawjson.Set(value, at[0], part)
		return value
	}
	elements := slices.Collect(rawjson.Elements(value))
	i, err := strconv.Atoi(at[0])
	if err != nil || i < 0 || i >= len(elements) {
		return value
	}
	if part := edit(elements[i], at[1:], with); part != nil {
		elements[i] = part
	}
	return rawjson.Array(elements)
}

// repair returns the part that a part surely means; nil for none at all, and the part itself if it is not sure.
func (w *wanted) repair(part json.RawMessage) json.RawMessage {
	text := rawjson.Text(part)
	inner := Inner(part)
	switch {
	case rawjson.IsObject(part) && w.missing != nil:
		return w.renamed(part)
	case inner != nil && (slices.Contains(w.types, typeOf(inner)) || typeOf(inner) == "number" && slices.Contains(w.types, "integer")):
		return inner
	case slices.Contains(w.types, "string") && (typeOf(part) == "number" || typeOf(part) == "boolean"):
		return rawjson.Quote(string(part))
	case typeOf(part) == "null" || part[0] == '"' && (text == "" || string(inner) == "null"):
		return nil
	}
	var meant []json.RawMessage
	for _, choice := range w.choices {
		raw := rawjson.Of(choice)
		if named, is := choice.(string); is && nearest.Fold(named) == nearest.Fold(text) && nearest.Fold(text) != "" || inner != nil && bytes.Equal(raw, inner) {
			meant = append(meant, raw)
		}
	}
	if len(meant) == 1 {
		return meant[0]
	}
	return part
}

// renamed gives members the missing names that they spell otherwise.
func (w *wanted) renamed(object json.RawMessage) json.RawMessage {
	meant := map[string]string{} // by folded name; "" for several
	for _, name := range w.missing {
		folded := nearest.Fold(name)
		if other, several := meant[folded]; several && other != name {
			name = ""
		}
		meant[folded] = name
	}
	out := rawjson.NewObject(len(object))
	for name, value := range rawjson.Members(object) {
		if as := meant[nearest.Fold(name)]; as != "" && rawjson.Member(object, as) == nil {
			name = as
		}
		out.Add(name, value)
	}
	return rawjson.Unique(out.JSON())
}

// Inner returns the JSON that a JSON text contains, also in a code fence or in another case (True); nil if it
// contains none.
func Inner(value json.RawMessage) json.RawMessage {
	text := strings.TrimSpace(rawjson.Text(value))
	if inside, fenced := strings.CutPrefix(text, "```"); fenced {
		text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(inside, "json"), "```"))
	}
	switch lower := strings.ToLower(text); lower {
	case "true", "false", "null":
		text = lower
	case "none":
		text = "null"
	}
	if text == "" || !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}

func typeOf(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}
