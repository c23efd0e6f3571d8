package document

import (
	"cmp"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/rawjson"
)

// JSON writes the value as JSON, and its numbers as they are written.
func (n *Node) JSON() json.RawMessage {
	switch n.Kind {
	case Bool:
		return json.RawMessage(n.Text)
	case Number:
		if number, ok := JSONNumber(n.Text); ok {
			return json.RawMessage(number)
		}
		return rawjson.Quote(n.Text) // such as a duration
	case Text:
		return rawjson.Quote(n.Text)
	case List:
		items := make([]json.RawMessage, len(n.Items))
		for i, item := range n.Items {
			items[i] = item.JSON()
		}
		return rawjson.Array(items)
	case Mapping:
		var object rawjson.Object
		for _, p := range n.Pairs {
			object.Add(p.Key.Text, p.Value.JSON())
		}
		return object.JSON()
	}
	return json.RawMessage("null")
}

// YAML writes an object as YAML: mappings over lines, other values on one line.
func YAML(object json.RawMessage) string {
	var text strings.Builder
	for name, value := range rawjson.Members(object) {
		text.WriteString(block([]string{name}, value, "", "  "))
	}
	return text.String()
}

// nested wraps a value in objects, one for each key of a path.
func nested(path []string, value json.RawMessage) json.RawMessage {
	for _, key := range slices.Backward(path) {
		value = json.RawMessage("{" + string(rawjson.Quote(key)) + ":" + string(value) + "}")
	}
	return value
}

// block writes a value under a path of YAML.
func block(path []string, value json.RawMessage, indent, unit string) string {
	value = nested(path[1:], value)
	begin := indent + quotedYAML(path[0]) + ":"
	if value[0] != '{' || string(value) == "{}" {
		return begin + " " + flowYAML(value) + "\n"
	}
	text := begin + "\n"
	for name, v := range rawjson.Members(value) {
		text += block([]string{name}, v, indent+unit, unit)
	}
	return text
}

// flowYAML writes a value on one line.
func flowYAML(value json.RawMessage) string {
	var parts []string
	switch value[0] {
	case '"':
		return quotedYAML(rawjson.Text(value))
	case '[':
		for item := range rawjson.Elements(value) {
			parts = append(parts, flowYAML(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case '{':
		for name, v := range rawjson.Members(value) {
			parts = append(parts, quotedYAML(name)+": "+flowYAML(v))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return string(value)
}

// plainText matches texts that need no quotes in YAML: words, sentences, durations. It need
// not match all of them.
var plainText = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./@+-]*[A-Za-z0-9_/]|[A-Za-z]|[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z][A-Za-z0-9_./-]*)+|[0-9]+(ms|[smh]))$`)

// notText are words that some version of YAML reads as another kind without quotes.
var notText = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}

// IsAmbiguous reports whether some reader of YAML takes a word without quotes for another kind.
func IsAmbiguous(word string) bool { return slices.Contains(notText, strings.ToLower(word)) }

func quotedYAML(s string) string {
	if len(s) < 200 && plainText.MatchString(s) && !IsAmbiguous(s) {
		return s
	}
	return strconv.Quote(s) // YAML reads all escapes of Go
}

var (
	jsonNumberForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	yamlInteger    = regexp.MustCompile(`^(0x[0-9a-fA-F]+|0o?[0-7]+|0b[01]+|[1-9][0-9]*)$`)
	yamlFloat      = regexp.MustCompile(`^([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]+)?$`)
)

// JSONNumber writes a number of YAML as JSON. A number that is legal in JSON stays as it
// is written: 1.0 does not become 1, and no digit is lost.
func JSONNumber(s string) (string, bool) {
	if jsonNumberForm.MatchString(s) {
		return s, true
	}
	s = strings.ReplaceAll(strings.TrimPrefix(s, "+"), "_", "")
	s, negative := strings.CutPrefix(s, "-")
	sign := ""
	if negative {
		sign = "-"
	}
	if yamlInteger.MatchString(s) {
		i, ok := new(big.Int).SetString(s, 0) // it reads 017 and 0o17 as octal, too
		if !ok {
			return "", false
		}
		return sign + i.String(), true
	}
	parts := yamlFloat.FindStringSubmatch(s)
	if parts == nil || parts[1]+parts[2] == "" {
		return "", false
	}
	whole, fraction := strings.TrimLeft(parts[1], "0"), parts[2]
	whole = cmp.Or(whole, "0")
	if fraction == "" && strings.Contains(s, ".") {
		fraction = "0"
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction + parts[3], true
}
