package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"toolfinch/internal/rawjson"
)

// Official clients refuse a whole list for one definition that lacks the protocol's shape. The shapes below are the
// strictest of all these clients and revisions, so that each of them accepts a definition that fits.

// maxDefDepth bounds how deep the JSON of a definition may nest: clients read schemas recursively.
const maxDefDepth = 200

// maxIDBytes bounds the name of a tool or prompt, and the URI of a resource: an index of PostgreSQL takes 2,704
// bytes, and clients take less.
const maxIDBytes = 2000

// shape lists the members of an object that the protocol defines. Other members are not checked.
type shape []member

// member is a member that the protocol defines.
type member struct {
	name     string
	take     take
	required bool   // absent and null are errors
	absent   string // JSON to insert for absent and null; "" to leave the member out
}

// take checks the value of a member and returns it, or its replacement. at is the path of the member, for messages.
type take func(in *intake, at string, raw json.RawMessage) (json.RawMessage, error)

// intake checks one definition. mended has a text for each change.
type intake struct{ mended []string }

// maxMended bounds the texts about one definition.
const maxMended = 20

func (in *intake) mend(format string, args ...any) {
	if len(in.mended) < maxMended {
		in.mended = append(in.mended, fmt.Sprintf(format, args...))
	}
}

// shapes are the shapes of definitions.
var shapes = map[Kind]shape{
	KindTool: slices.Concat(named, common, shape{
		{name: "inputSchema", take: inputSchema, absent: `{"type":"object"}`},
		{name: "outputSchema", take: open(shape{{name: "$schema", take: text}})},
		{name: "annotations", take: object(shape{
			{name: "title", take: text}, {name: "readOnlyHint", take: boolean}, {name: "destructiveHint", take: boolean},
			{name: "idempotentHint", take: boolean}, {name: "openWorldHint", take: boolean},
		})},
		{name: "execution", take: object(shape{{name: "taskSupport", take: oneOf("required", "optional", "forbidden")}})},
	}),
	KindPrompt: slices.Concat(named, common, shape{
		{name: "arguments", take: list(object(shape{
			{name: "name", take: text, required: true}, {name: "title", take: text}, {name: "description", take: text}, {name: "required", take: boolean},
		}))},
	}),
	KindResource: slices.Concat(shape{{name: "name", take: text}}, common, annotated, shape{{name: "uri", take: text, required: true}, {name: "size", take: size}}),
	KindTemplate: slices.Concat(shape{{name: "name", take: text}}, common, annotated, shape{{name: "uriTemplate", take: text, required: true}}),
	KindSkill: {
		{name: "uri", take: text, required: true},
		{name: "frontmatter", take: open(shape{{name: "name", take: text, required: true}, {name: "description", take: text, required: true}}), required: true},
		{name: "resources", take: skillFiles, required: true},
	},
}

// common are members of all kinds, named adds a required name, annotated adds members of resources and templates.
var (
	named  = shape{{name: "name", take: text, required: true}}
	common = shape{
		{name: "title", take: text}, {name: "description", take: text},
		{name: "icons", take: list(object(shape{
			{name: "src", take: text, required: true}, {name: "mimeType", take: text},
			{name: "sizes", take: list(text)}, {name: "theme", take: oneOf("light", "dark")},
		}))},
		{name: "_meta", take: open(nil)},
	}
	annotated = shape{
		{name: "mimeType", take: text},
		{name: "annotations", take: object(shape{
			{name: "audience", take: list(oneOf("user", "assistant"))}, {name: "priority", take: priority}, {name: "lastModified", take: moment},
		})},
	}
	schemaShape = shape{
		{name: "$schema", take: text}, {name: "type", take: objectType, absent: `"object"`},
		{name: "properties", take: properties}, {name: "required", take: list(text)},
	}
)

// TakeIn is ParseKind for a stranger's definition. Every official client accepts the resulting Def. Malformed
// members are mended if that certainly keeps their meaning, like a missing input schema or a superfluous null:
// mended has a text for each change. Else the error, which wraps ErrBadDef, names the wrong member. Members outside
// the protocol, and the inside of schemas, stay unchanged.
func TakeIn(kind Kind, server string, raw json.RawMessage) (def *Def, mended []string, err error) {
	if !json.Valid(raw) || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, nil, badDef{errors.New("it is not a JSON object")}
	}
	in := &intake{}
	if clean := wellFormed(raw); !bytes.Equal(clean, raw) {
		in.mend("what is not Unicode is replaced by U+FFFD")
		raw = clean
	}
	if rawjson.Depth(raw) > maxDefDepth {
		return nil, nil, badDef{fmt.Errorf("it nests deeper than %d", maxDefDepth)}
	}
	taken, err := in.object("", raw, shapes[kind])
	if err != nil {
		return nil, nil, badDef{err}
	}
	if kind == KindResource || kind == KindTemplate {
		taken = in.named(kind, taken)
	}
	if def, err = ParseKind(kind, server, taken); err != nil {
		return nil, nil, err
	}
	if n := len(def.ID.Name); n > maxIDBytes {
		return nil, nil, badDef{fmt.Errorf("%s has %d bytes, more than %d", kind.Key(), n, maxIDBytes)}
	}
	if kind == KindSkill {
		if err := SkillOf(def).check(); err != nil {
			return nil, nil, badDef{err}
		}
	}
	return def, in.mended, nil
}

// badDef makes an error like "inputSchema is text, not an object".
type badDef struct{ error }

func (badDef) Is(target error) bool { return target == ErrBadDef }

// named uses the URI as the name of a resource without one, as clients do.
func (in *intake) named(kind Kind, raw json.RawMessage) json.RawMessage {
	if rawjson.Member(raw, "name") != nil {
		return raw
	}
	in.mend("name is missing: it is served as the %s", kind.Key())
	with, err := rawjson.Set(raw, "name", rawjson.Member(raw, kind.Key()))
	if err != nil { // raw is an object
		return raw
	}
	return with
}

// object checks an object. The last of several members with the same name counts.
func (in *intake) object(at string, raw json.RawMessage, s shape) (json.RawMessage, error) {
	values := make([]json.RawMessage, len(s))
	changed := false
	for key, value := range rawjson.Members(raw) {
		if i := s.index(key); i >= 0 {
			if values[i] != nil {
				changed = true
				in.mend("%s%s is there twice: the last one counts", at, key)
			}
			values[i] = value
		}
	}
	for i, m := range s {
		value, err := in.member(at, m, values[i])
		if err != nil {
			return nil, err
		}
		changed = changed || !bytes.Equal(value, values[i])
		values[i] = value
	}
	if !changed {
		return raw, nil
	}
	return s.write(raw, values), nil
}

// member checks one member; value is nil if it is absent. It returns nil for a member to leave out.
func (in *intake) member(at string, m member, value json.RawMessage) (json.RawMessage, error) {
	at += m.name
	state := "missing"
	if value != nil {
		state = "null"
	}
	switch {
	case value != nil && string(value) != "null":
		return m.take(in, at, value)
	case m.required:
		return nil, fmt.Errorf("%s is %s", at, state)
	case m.absent != "":
		in.mend("%s is %s: it is served as %s", at, state, m.absent)
		return json.RawMessage(m.absent), nil
	case value != nil:
		in.mend("%s is null: it is left out", at)
	}
	return nil, nil
}

func (s shape) index(name string) int {
	return slices.IndexFunc(s, func(m member) bool { return m.name == name })
}

// write returns the object with new values for the members of the shape.
func (s shape) write(raw json.RawMessage, values []json.RawMessage) json.RawMessage {
	out := rawjson.NewObject(len(raw))
	for key, value := range rawjson.Members(raw) {
		if i := s.index(key); i >= 0 {
			value, values[i] = values[i], nil
		}
		if value != nil {
			out.Add(key, value)
		}
	}
	for i, value := range values {
		if value != nil {
			out.Add(s[i].name, value)
		}
	}
	return out.JSON()
}

// sort names the type of a value, for messages.
func sort(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "text"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return string(raw)
	case 'n':
		return "null"
	}
	return "a number"
}

func isNot(at string, raw json.RawMessage, wanted string) error {
	return fmt.Errorf("%s is %s, not %s", at, sort(raw), wanted)
}

func text(_ *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if raw[0] != '"' {
		return nil, isNot(at, raw, "text")
	}
	return raw, nil
}

func boolean(_ *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if raw[0] != 't' && raw[0] != 'f' {
		return nil, isNot(at, raw, "true or false")
	}
	return raw, nil
}

// oneOf accepts one of a few words.
func oneOf(words ...string) take {
	return func(_ *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
		if raw[0] != '"' || !slices.Contains(words, rawjson.Text(raw)) {
			return nil, fmt.Errorf("%s is %.60s, not one of %s", at, raw, strings.Join(words, ", "))
		}
		return raw, nil
	}
}

// object accepts an object of a shape, and an empty array, which PHP writes for an empty object.
func object(s shape) take {
	return func(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
		if raw[0] == '[' && !some(raw) {
			in.mend("%s is an empty list: it is served as {}", at)
			raw = json.RawMessage(`{}`)
		}
		if raw[0] != '{' {
			return nil, isNot(at, raw, "an object")
		}
		return in.object(at+".", raw, s)
	}
}

// open accepts an object of a shape with any further members. Clients read all of it, numbers as float64.
func open(s shape) take {
	return func(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
		if number := outOfRange(raw); number != nil {
			return nil, fmt.Errorf("%s has the number %.60s, which is out of range", at, number)
		}
		return object(s)(in, at, raw)
	}
}

// list accepts an array whose elements each accepts.
func list(each take) take {
	return func(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
		if raw[0] != '[' {
			return nil, isNot(at, raw, "a list")
		}
		var elements []json.RawMessage
		changed := false
		for element := range rawjson.Elements(raw) {
			taken, err := each(in, fmt.Sprintf("%s[%d]", at, len(elements)), element)
			if err != nil {
				return nil, err
			}
			elements = append(elements, taken)
			changed = changed || !bytes.Equal(taken, element)
		}
		if !changed {
			return raw, nil
		}
		return rawjson.Array(elements), nil
	}
}

// inputSchema accepts the schema of an object. The schema true becomes {}, which allows the same arguments, because
// arguments are always an object.
func inputSchema(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if string(raw) == "true" {
		in.mend(`%s is true: it is served as {"type":"object"}`, at)
		return json.RawMessage(`{"type":"object"}`), nil
	}
	return open(schemaShape)(in, at, raw)
}

// objectType accepts the type of an input schema: "object", or a list with "object", which allows the same
// arguments.
func objectType(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	object := json.RawMessage(`"object"`)
	if raw[0] == '"' && rawjson.Text(raw) == "object" {
		return object, nil
	}
	if raw[0] == '[' {
		for one := range rawjson.Elements(raw) {
			if rawjson.Text(one) == "object" {
				in.mend(`%s is a list of types: it is served as "object"`, at)
				return object, nil
			}
		}
	}
	return nil, fmt.Errorf(`%s is %.60s, not "object"`, at, raw)
}

// properties accepts an object of schemas. Clients want objects: true and false become objects with the same
// meaning.
func properties(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if raw[0] == '[' && !some(raw) {
		in.mend("%s is an empty list: it is served as {}", at)
		return json.RawMessage(`{}`), nil
	}
	if raw[0] != '{' {
		return nil, isNot(at, raw, "an object")
	}
	out := rawjson.NewObject(len(raw))
	changed := false
	for name, value := range rawjson.Members(raw) {
		called := fmt.Sprintf("%s.%.100s", at, name)
		as := value
		switch value[0] {
		case '{':
		case 't':
			as = json.RawMessage(`{}`)
		case 'f':
			as = json.RawMessage(`{"not":{}}`)
		default:
			return nil, isNot(called, value, "a schema")
		}
		if value[0] != '{' {
			in.mend("%s is %s: it is served as %s", called, value, as)
			changed = true
		}
		out.Add(name, as)
	}
	if !changed {
		return raw, nil
	}
	return out.JSON(), nil
}

// size accepts an integer. Some clients do not read 12.0.
func size(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return raw, nil
	}
	const exact = 1 << 53
	value, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || value != math.Trunc(value) || math.Abs(value) > exact {
		return nil, fmt.Errorf("%s is %.60s, not an integer", at, raw)
	}
	in.mend("%s is %.60s: it is served as %.0f", at, raw, value)
	return strconv.AppendInt(nil, int64(value), 10), nil
}

var isSkillDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// skillFiles accepts the files of a skill, or "dynamic".
func skillFiles(in *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if rawjson.Text(raw) == "dynamic" {
		return raw, nil
	}
	return list(object(shape{
		{name: "uri", take: text, required: true},
		{name: "digest", take: digest, required: true},
		{name: "size", take: fileSize},
	}))(in, at, raw)
}

func digest(_ *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if !isSkillDigest.MatchString(rawjson.Text(raw)) {
		return nil, fmt.Errorf("%s is %.100s, not sha256: and 64 hex digits", at, raw)
	}
	return raw, nil
}

func fileSize(_ *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err != nil || n < 0 || n > MaxSkillBytes {
		return nil, fmt.Errorf("%s is %.100s, not a number of bytes up to %d", at, raw, MaxSkillBytes)
	}
	return raw, nil
}

func priority(_ *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	value, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || value < 0 || value > 1 {
		return nil, fmt.Errorf("%s is %.60s, not a number from 0 to 1", at, raw)
	}
	return raw, nil
}

// isMoment matches the time format that clients check: RFC 3339 with a capital T and Z.
var isMoment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func moment(_ *intake, at string, raw json.RawMessage) (json.RawMessage, error) {
	value := rawjson.Text(raw)
	if !isMoment.MatchString(value) || !isDate(value[:len("2006-01-02")]) {
		return nil, fmt.Errorf("%s is %.60s, not a time like 2006-01-02T15:04:05Z", at, raw)
	}
	return raw, nil
}

func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

// outOfRange returns the first number that does not fit a float64; nil if all fit.
func outOfRange(raw json.RawMessage) []byte {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			i = rawjson.SkipString(raw, i) - 1
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(raw) && strings.IndexByte("0123456789+-.eE", raw[end]) >= 0 {
				end++
			}
			if _, err := strconv.ParseFloat(string(raw[i:end]), 64); err != nil {
				return raw[i:end]
			}
			i = end - 1
		}
	}
	return nil
}

// wellFormed replaces invalid Unicode in the texts of valid JSON: invalid UTF-8, and escapes of lone surrogates.
func wellFormed(raw json.RawMessage) json.RawMessage {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	out := raw
	for i := 0; i+6 <= len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		first := surrogate(raw[i:])
		switch {
		case first == 0:
			i++ // behind the escaped character
		case first == 'h' && surrogate(raw[i+6:]) == 'l':
			i += 11
		default:
			if &out[0] == &raw[0] {
				out = bytes.Clone(raw)
			}
			copy(out[i:], `\ufffd`)
			i += 5
		}
	}
	return out
}

// surrogate returns which half of a surrogate pair is escaped at the start of raw: 'h' for high, 'l' for low, 0 for
// none.
func surrogate(raw []byte) byte {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' || raw[2] != 'd' && raw[2] != 'D' {
		return 0
	}
	switch raw[3] {
	case '8', '9', 'a', 'b', 'A', 'B':
		return 'h'
	case 'c', 'd', 'e', 'f', 'C', 'D', 'E', 'F':
		return 'l'
	}
	return 0
}
