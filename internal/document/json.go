package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// maxJSONDepth bounds the nesting of JSON, as MaxDepth that of YAML.
const maxJSONDepth = 10_000

// ParseJSON reads JSON with comments and trailing commas.
func ParseJSON(data []byte) (*Node, *Problem) {
	if bad := tooDeepJSON(data); bad != nil {
		return nil, bad
	}
	root, err := hujson.Parse(append(bytes.Clone(data), '\n')) // the parser wants a line break behind a comment
	switch {
	case err != nil && root.Value == nil && errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &Problem{1, 1, Empty, ""}
	case err != nil:
		return nil, jsonProblem(data, err)
	}
	return jsonTree(&root, newPlace(data)), nil
}

// tooDeepJSON reports nesting beyond maxJSONDepth.
func tooDeepJSON(data []byte) *Problem {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '/': // a comment; the parser goes no further at any other
			end := "\n"
			if bytes.HasPrefix(data[i:], []byte("/*")) {
				end = "*/"
			}
			i = min(i+2, len(data))
			_, rest, _ := bytes.Cut(data[i:], []byte(end))
			i = len(data) - len(rest) - 1
		}
		if depth > maxJSONDepth {
			line, column := newPlace(data).of(i)
			return &Problem{line, column, fmt.Sprintf("nested deeper than %d levels", maxJSONDepth), ""}
		}
	}
	return nil
}

// jsonProblem is an error of the parser with its column in characters. Quotes of the file
// are dropped: they may be secrets.
func jsonProblem(data []byte, err error) *Problem {
	p := &Problem{Line: 1, Column: 1}
	if _, scan := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &p.Line, &p.Column); scan == nil {
		lines := bytes.Split(data, []byte("\n"))
		line := lines[min(p.Line, len(lines))-1]
		p.Column = utf8.RuneCount(line[:min(p.Column-1, len(line))]) + 1
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		p.Line, p.Column = newPlace(data).of(len(data))
		p.Message = "not valid JSON: the file ends too early"
		return p
	}
	message, _, _ := strings.Cut(errors.Unwrap(err).Error(), ": ")
	p.Message = "not valid JSON: " + message
	return p
}

func jsonTree(v *hujson.Value, at *place) *Node {
	n := &Node{Kind: Null}
	n.Line, n.Column = at.of(v.StartOffset)
	switch value := v.Value.(type) {
	case *hujson.Object:
		n.Kind = Mapping
		for i := range value.Members {
			m := &value.Members[i]
			key := jsonTree(&m.Name, at)
			n.Pairs = append(n.Pairs, Pair{key, jsonTree(&m.Value, at)})
		}
	case *hujson.Array:
		n.Kind = List
		for i := range value.Elements {
			n.Items = append(n.Items, jsonTree(&value.Elements[i], at))
		}
	case hujson.Literal:
		switch value.Kind() {
		case '"':
			n.Kind, n.Text = Text, value.String()
		case '0':
			n.Kind, n.Text = Number, string(value)
		case 't', 'f':
			n.Kind, n.Text = Bool, string(value)
		}
	}
	return n
}
