package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"toolfinch/internal/rawjson"
)

var bom = []byte("\ufeff")

// jsonText is JSON with comments and trailing commas.
type jsonText struct {
	root  hujson.Value
	bom   bool
	crlf  bool
	ended bool   // ends with a line break
	flat  bool   // not empty, on one line
	unit  string // one step of indentation
}

// newJSONText reads a document; an empty one is an empty object.
func newJSONText(data []byte) (*jsonText, error) {
	d := &jsonText{unit: "  "}
	data, d.bom = bytes.CutPrefix(data, bom)
	if ends := bytes.Count(data, []byte("\r\n")); ends > 0 && ends == bytes.Count(data, []byte("\n")) {
		d.crlf, data = true, bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}\n")
	}
	// The parser keeps parts of data, and wants a line break after the last comment.
	data = bytes.Clone(data)
	if d.ended = bytes.HasSuffix(data, []byte("\n")); !d.ended {
		data = append(data, '\n')
	}
	if bad := tooDeepJSON(data); bad != nil {
		return nil, errors.New(bad.Message)
	}
	var err error
	if d.root, err = hujson.Parse(data); err != nil {
		return nil, jsonProblem(data, err)
	}
	object, ok := d.root.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("is not a JSON object")
	}
	for _, m := range slices.Backward(object.Members) {
		if indent := indentOf(m.Name.BeforeExtra, ""); indent != "" {
			d.unit = indent
		}
	}
	d.flat = len(object.Members) > 0 && !bytes.Contains(bytes.TrimSpace(data), []byte("\n"))
	return d, nil
}

func (d *jsonText) pack() []byte {
	data := d.root.Pack()
	if !d.ended {
		data = bytes.TrimSuffix(data, []byte("\n"))
	}
	if d.crlf {
		data = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
	}
	if d.bom {
		data = slices.Concat(bom, data)
	}
	return data
}

// PlainJSON returns an object with comments and trailing commas as plain JSON; an
// empty document is an empty object.
func PlainJSON(data []byte) (json.RawMessage, error) {
	d, err := newJSONText(data)
	if err != nil {
		return nil, err
	}
	d.root.Standardize()
	return d.root.Pack(), nil
}

// SetJSON sets the member at path, or appends it and makes the objects around it. Comments,
// order and layout of everything else stay. data may be empty.
func SetJSON(data []byte, path []string, value json.RawMessage) ([]byte, error) {
	d, err := newJSONText(data)
	if err != nil {
		return nil, err
	}
	at, indent := &d.root, ""
	for i, name := range path {
		if at.Value.Kind() == 'n' {
			at.Value = &hujson.Object{}
		}
		in, ok := at.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is not an object", strings.Join(path[:i], "."))
		}
		j := indexOf(in, name)
		if j < 0 {
			if err := d.add(in, name, nested(path[i+1:], value), indent); err != nil {
				return nil, err
			}
			return d.checked(data, path)
		}
		indent = indentOf(in.Members[j].Name.BeforeExtra, indent+d.unit)
		at = &in.Members[j].Value
	}
	line := "\n" + indent
	if d.flat {
		line = ""
	}
	parsed, err := hujson.Parse([]byte(layout(value, line, d.unit)))
	if err != nil {
		return nil, err
	}
	was := at.Clone()
	was.Standardize()
	if Same(was.Pack(), value) {
		return data, nil
	}
	at.Value = parsed.Value
	return d.checked(data, path)
}

// RemoveJSON removes the member at path with the comments directly above it and the comment
// after it. Without such a member nothing changes.
func RemoveJSON(data []byte, path []string) ([]byte, error) {
	d, err := newJSONText(data)
	if err != nil {
		return nil, err
	}
	pointer, indent := "", ""
	var object *hujson.Object
	var i int
	at := &d.root
	for _, name := range path {
		if object != nil {
			indent = indentOf(object.Members[i].Name.BeforeExtra, indent+d.unit)
		}
		var ok bool
		if object, ok = at.Value.(*hujson.Object); !ok {
			return data, nil
		}
		if i = indexOf(object, name); i < 0 {
			return data, nil
		}
		at = &object.Members[i].Value
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	gone, last := object.Members[i], i == len(object.Members)-1
	over := bytes.Contains(slices.Concat(gone.Name.BeforeExtra, object.AfterExtra), []byte("\n"))
	// Two comments belong to other members: a comment that ends the line before this
	// member, and a comment on a line of its own before this member's comma.
	others, rest := cutLine(gone.Name.BeforeExtra)
	object.Members[i].Name.BeforeExtra = rest
	if !isComment(others) {
		others = nil
	}
	if _, below := cutLine(gone.Value.AfterExtra); isComment(below) {
		others = slices.Concat(others, below)
	}
	if err := d.root.Patch([]byte(`[{"op": "remove", "path": ` + string(rawjson.Quote(pointer)) + `}]`)); err != nil {
		return nil, err
	}
	follow := &object.AfterExtra
	if !last {
		follow = &object.Members[i].Name.BeforeExtra
	}
	switch {
	case !last && !isComment(slices.Concat(*follow, gone.Name.BeforeExtra)):
		*follow = gone.Name.BeforeExtra // the next member takes its place
	case last && i > 0 && gone.Value.AfterExtra != nil:
		before := &object.Members[i-1].Value.AfterExtra
		*before = append(hujson.Extra{}, *before...) // a trailing comma stays
	case last && i > 0:
		before := &object.Members[i-1].Value.AfterExtra
		others, *before = slices.Concat(*before, others), nil
	}
	if isComment(others) && !bytes.HasPrefix(*follow, []byte("\n")) {
		others = append(bytes.TrimRight(others, " \t\n"), "\n"+indent+d.unit...)
		*follow = bytes.TrimLeft(*follow, " \t")
	}
	*follow = slices.Concat(others, *follow)
	if last && over && (i > 0 || isComment(*follow)) {
		*follow = append(bytes.TrimRight(*follow, " \t\n"), "\n"+indent...)
	} else if last && i == 0 && !isComment(*follow) {
		*follow = nil
	}
	return d.checked(data, path)
}

// checked returns the bytes of the document if it differs from before only at path.
func (d *jsonText) checked(before []byte, path []string) ([]byte, error) {
	after := d.pack()
	was, err := PlainJSON(before)
	if err != nil {
		return nil, err
	}
	if is, err := PlainJSON(after); err != nil || !Same(was, is, path...) {
		return nil, ErrByHand
	}
	return after, nil
}

// indexOf returns the index of a member, -1 for none. The last duplicate wins, as it does
// for readers.
func indexOf(object *hujson.Object, name string) int {
	for i, m := range slices.Backward(object.Members) {
		if literal, _ := m.Name.Value.(hujson.Literal); literal.String() == name {
			return i
		}
	}
	return -1
}

// indentOf returns the indentation after the last line break of extra, or otherwise without
// a line break.
func indentOf(extra hujson.Extra, otherwise string) string {
	i := bytes.LastIndexByte(extra, '\n')
	if i < 0 || isComment(extra[i:]) {
		return otherwise
	}
	return string(extra[i+1:])
}

// cutLine splits the text between values at its first line break outside of comments.
// Without a line break everything is rest.
func cutLine(extra hujson.Extra) (line, rest hujson.Extra) {
	for i := 0; i < len(extra); {
		length := 1
		switch {
		case bytes.HasPrefix(extra[i:], []byte("//")):
			length = bytes.IndexByte(extra[i:], '\n') + 1
		case bytes.HasPrefix(extra[i:], []byte("/*")):
			length = bytes.Index(extra[i:], []byte("*/")) + 2
		}
		if i += length; extra[i-1] == '\n' {
			return extra[: i-1 : i-1], extra[i-1:]
		}
	}
	return nil, extra
}

// isComment reports whether the text between values is more than white space.
func isComment(extra hujson.Extra) bool { return len(bytes.TrimSpace(extra)) > 0 }

// add appends a member. An object on one line stays on one line, unless it is empty.
func (d *jsonText) add(object *hujson.Object, name string, value json.RawMessage, indent string) error {
	line, trailing := "\n"+indent+d.unit, false
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(name)}}
	if n := len(object.Members); n > 0 {
		line = "\n" + indentOf(object.Members[n-1].Name.BeforeExtra, indent+d.unit)
		if !bytes.Contains(slices.Concat(object.Members[0].Name.BeforeExtra, object.AfterExtra), []byte("\n")) {
			line = ""
		}
		trailing = object.Members[n-1].Value.AfterExtra != nil
		m.Name.BeforeExtra = hujson.Extra(" ")
	}
	if d.flat {
		line = ""
	}
	if line != "" {
		// Comments before the closing brace belong to the members above. An empty line
		// separates the new member from comments below the last member's line.
		kept := bytes.TrimRight(object.AfterExtra, " \t\n")
		if bytes.Contains(kept, []byte("\n")) {
			kept = append(bytes.Clone(kept), '\n')
		}
		m.Name.BeforeExtra = hujson.Extra(string(kept) + line)
		object.AfterExtra = hujson.Extra("\n" + indent)
	}
	var err error
	if m.Value, err = hujson.Parse([]byte(layout(value, line, d.unit))); err != nil {
		return err
	}
	m.Value.BeforeExtra = hujson.Extra(" ")
	if trailing {
		m.Value.AfterExtra = hujson.Extra("")
	}
	object.Members = append(object.Members, m)
	return nil
}

// layout writes a value: objects over lines that begin with line, lists on one line. If
// line is "", everything is on one line.
func layout(value json.RawMessage, line, unit string) string {
	var parts []string
	open, separator, end := line+unit, ","+line+unit, line
	if line == "" {
		open, separator = "", ", "
	}
	switch value[0] {
	case '{':
		below := line
		if line != "" {
			below += unit
		}
		for name, v := range rawjson.Members(value) {
			parts = append(parts, string(rawjson.Quote(name))+": "+layout(v, below, unit))
		}
		if len(parts) == 0 {
			return "{}"
		}
		return "{" + open + strings.Join(parts, separator) + end + "}"
	case '[':
		for v := range rawjson.Elements(value) {
			parts = append(parts, layout(v, "", unit))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return string(value)
}
