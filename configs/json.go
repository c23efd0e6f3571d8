package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"toolfinch/internal/rawjson"
)

// maxJSONDepth bounds nesting: the JSON parser recurses, and a stack that overflows
// cannot be recovered from.
const maxJSONDepth = 10_000

// parseJSON reads JSON as editors write it, with comments and trailing commas.
func parseJSON(data []byte) (*node, *problem) {
	depth := 0
	for i, c := range data { // brackets in texts are few
		if bytes.IndexByte([]byte("[{"), c) >= 0 {
			depth++
		} else if bytes.IndexByte([]byte("]}"), c) >= 0 {
			depth--
		}
		if depth > maxJSONDepth {
			line, column := newPlace(data).of(i)
			return nil, &problem{line, column, fmt.Sprintf("nested deeper than %d levels", maxJSONDepth), ""}
		}
	}
	root, err := hujson.Parse(append(bytes.Clone(data), '\n')) // which the parser wants behind a comment
	switch {
	case err != nil && root.Value == nil && errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &problem{1, 1, Empty, ""}
	case err != nil:
		return nil, jsonProblem(data, err)
	}
	return jsonTree(&root, newPlace(data)), nil
}

// jsonProblem takes the place out of an error of the parser, which counts bytes.
// What the parser quotes of the file is dropped: it may be a secret.
func jsonProblem(data []byte, err error) *problem {
	p := &problem{line: 1, column: 1}
	if _, scan := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &p.line, &p.column); scan == nil {
		lines := bytes.Split(data, []byte("\n"))
		line := lines[min(p.line, len(lines))-1]
		p.column = utf8.RuneCount(line[:min(p.column-1, len(line))]) + 1
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		p.line, p.column = newPlace(data).of(len(data))
		p.message = "not valid JSON: the file ends too early"
		return p
	}
	message, _, _ := strings.Cut(errors.Unwrap(err).Error(), ": ")
	p.message = "not valid JSON: " + message
	return p
}

func jsonTree(v *hujson.Value, at *place) *node {
	n := &node{kind: kindNull}
	n.line, n.column = at.of(v.StartOffset)
	switch value := v.Value.(type) {
	case *hujson.Object:
		n.kind = kindMapping
		for i := range value.Members {
			m := &value.Members[i]
			key := jsonTree(&m.Name, at)
			n.pairs = append(n.pairs, pair{key, jsonTree(&m.Value, at)})
		}
	case *hujson.Array:
		n.kind = kindList
		for i := range value.Elements {
			n.items = append(n.items, jsonTree(&value.Elements[i], at))
		}
	case hujson.Literal:
		switch value.Kind() {
		case '"':
			n.kind, n.text = kindText, value.String()
		case '0':
			n.kind, n.text = kindNumber, string(value)
		case 't', 'f':
			n.kind, n.text = kindBool, string(value)
		}
	}
	return n
}

// nodeJSON writes a value as JSON, numbers as they are written.
func nodeJSON(n *node) json.RawMessage {
	switch n.kind {
	case kindBool:
		return json.RawMessage(n.text)
	case kindNumber:
		if number, ok := jsonNumber(n.text); ok {
			return json.RawMessage(number)
		}
		return rawjson.Quote(n.text) // a duration
	case kindText:
		return rawjson.Quote(n.text)
	case kindList:
		items := make([]json.RawMessage, len(n.items))
		for i, item := range n.items {
			items[i] = nodeJSON(item)
		}
		return rawjson.Array(items)
	case kindMapping:
		var object rawjson.Object
		for _, p := range n.pairs {
			object.Add(p.key.text, nodeJSON(p.value))
		}
		return object.JSON()
	}
	return json.RawMessage("null")
}

var (
	jsonNumberForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	yamlInteger    = regexp.MustCompile(`^(0x[0-9a-fA-F]+|0o?[0-7]+|0b[01]+|[1-9][0-9]*)$`)
	yamlFloat      = regexp.MustCompile(`^([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]+)?$`)
)

// jsonNumber writes a number of YAML as JSON has it. What JSON has too stays as
// it is: 1.0 is no 1, and no digit is lost.
func jsonNumber(s string) (string, bool) {
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
		i, ok := new(big.Int).SetString(s, 0) // 017 and 0o17 are octal to it as well
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
	if whole == "" {
		whole = "0"
	}
	if fraction == "" && strings.Contains(s, ".") {
		fraction = "0"
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction + parts[3], true
}
