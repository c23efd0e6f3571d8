package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"toolfinch/rawjson"
)

var bom = []byte("\ufeff")

// jsonDoc is JSON as people write it, with comments and trailing commas, that
// is edited where it stands.
type jsonDoc struct {
	root    hujson.Value
	bom     bool
	newline string
	ended   bool // with a line break of its own
	flat    bool // is on one line, and not empty
}

// parseJSON reads a document; an empty one is an empty object.
func parseJSON(data []byte) (*jsonDoc, error) {
	d := &jsonDoc{newline: "\n"}
	if rest, found := bytes.CutPrefix(data, bom); found {
		data, d.bom = rest, true
	}
	if bytes.Contains(data, []byte("\r\n")) {
		d.newline = "\r\n"
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}" + d.newline)
	}
	// The parser keeps pieces of what it is given, and wants a line break behind
	// the last comment.
	data = bytes.Clone(data)
	if d.ended = bytes.HasSuffix(data, []byte("\n")); !d.ended {
		data = append(data, '\n')
	}
	var err error
	if d.root, err = hujson.Parse(data); err != nil {
		return nil, fmt.Errorf("is not valid JSON: %s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	object, ok := d.root.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("is not a JSON object")
	}
	d.flat = len(object.Members) > 0 && !bytes.Contains(bytes.TrimSpace(data), []byte("\n"))
	return d, nil
}

func (d *jsonDoc) pack() []byte {
	data := d.root.Pack()
	if !d.ended {
		data = bytes.TrimSuffix(data, []byte("\n"))
	}
	if d.bom {
		data = append(slices.Clone(bom), data...)
	}
	return data
}

// standard is the document as plain JSON.
func (d *jsonDoc) standard() []byte {
	plain := d.root.Clone()
	plain.Standardize()
	return plain.Pack()
}

// SetJSON returns the document with the member at path being value, in its place
// or as the last one of its object; objects on the way are made. Comments, order
// and layout of everything else stay. data may be empty.
func SetJSON(data []byte, path []string, value json.RawMessage) ([]byte, error) {
	d, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	parsed, err := hujson.Parse(bytes.Clone(value))
	if err != nil {
		return nil, fmt.Errorf("value of %s: %w", path[len(path)-1], err)
	}
	unit := d.unit()
	at, indent := &d.root, ""
	for i, name := range path {
		object, err := asObject(at, path[:i])
		if err != nil {
			return nil, err
		}
		member := find(object, name)
		if member == nil {
			for j := len(path) - 1; j > i; j-- {
				parsed = hujson.Value{Value: &hujson.Object{Members: []hujson.ObjectMember{{
					Name: hujson.Value{Value: hujson.String(path[j])}, Value: parsed,
				}}}}
			}
			d.add(object, name, parsed, indent, unit)
			return d.pack(), nil
		}
		indent = indentOf(member.Name.BeforeExtra, indent+unit)
		at = &member.Value
	}
	if sameJSON(*at, parsed) {
		return data, nil
	}
	if d.flat {
		spread(&parsed)
	} else {
		lay(&parsed, indent, unit, d.newline)
	}
	at.Value = parsed.Value
	return d.pack(), nil
}

// RemoveJSON returns the document without the member at path, the comments that
// stand directly above it and the one behind it. Where there is no such member
// nothing changes.
func RemoveJSON(data []byte, path []string) ([]byte, error) {
	d, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	at := &d.root
	for i, name := range path {
		object, ok := at.Value.(*hujson.Object)
		if !ok {
			return data, nil
		}
		member := find(object, name)
		if member == nil {
			return data, nil
		}
		if i == len(path)-1 {
			remove(object, name)
			return d.pack(), nil
		}
		at = &member.Value
	}
	return data, nil
}

func sameJSON(a, b hujson.Value) bool {
	a, b = a.Clone(), b.Clone()
	a.Minimize()
	b.Minimize()
	return bytes.Equal(a.Pack(), b.Pack())
}

// asObject is the object that stands at a place of the path; null is an empty one.
func asObject(v *hujson.Value, path []string) (*hujson.Object, error) {
	if object, ok := v.Value.(*hujson.Object); ok {
		return object, nil
	}
	if v.Value.Kind() != 'n' {
		return nil, fmt.Errorf("%s is not an object", strings.Join(path, "."))
	}
	object := &hujson.Object{}
	v.Value = object
	return object, nil
}

// find returns the member with the name; of duplicates the last one, which is
// the one that readers take.
func find(object *hujson.Object, name string) *hujson.ObjectMember {
	for i := len(object.Members) - 1; i >= 0; i-- {
		if nameOf(object.Members[i]) == name {
			return &object.Members[i]
		}
	}
	return nil
}

func nameOf(m hujson.ObjectMember) string {
	name, _ := m.Name.Value.(hujson.Literal)
	return name.String()
}

// unit is one step of indentation in the document.
func (d *jsonDoc) unit() string {
	object := d.root.Value.(*hujson.Object)
	for _, m := range object.Members {
		if indent := indentOf(m.Name.BeforeExtra, ""); indent != "" {
			return indent
		}
	}
	return "  "
}

// indentOf is what stands between the last line break of extra and what
// follows; otherwise where there is no line break.
func indentOf(extra hujson.Extra, otherwise string) string {
	i := bytes.LastIndexByte(extra, '\n')
	if i < 0 || len(bytes.Trim(extra[i:], " \t\n")) > 0 {
		return otherwise
	}
	return string(extra[i+1:])
}

// add appends a member. An object on one line stays on it, unless it is empty.
func (d *jsonDoc) add(object *hujson.Object, name string, value hujson.Value, indent, unit string) {
	inner := indent + unit
	oneLine := d.flat
	if n := len(object.Members); n > 0 {
		first := object.Members[0].Name.BeforeExtra
		oneLine = oneLine || !bytes.Contains(first, []byte("\n")) && !bytes.Contains(object.AfterExtra, []byte("\n"))
		inner = indentOf(object.Members[n-1].Name.BeforeExtra, inner)
	}
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(name)}, Value: value}
	if oneLine {
		if len(object.Members) > 0 {
			m.Name.BeforeExtra = hujson.Extra(" ")
		}
		m.Value.BeforeExtra = hujson.Extra(" ")
		spread(&m.Value)
	} else {
		// What stands before the closing brace are comments of what is there already.
		kept := bytes.TrimRight(object.AfterExtra, " \t\r\n")
		if bytes.Contains(kept, []byte("\n")) { // not of what is added
			kept = append(bytes.Clone(kept), d.newline...)
		}
		m.Name.BeforeExtra = hujson.Extra(string(kept) + d.newline + inner)
		m.Value.BeforeExtra = hujson.Extra(" ")
		lay(&m.Value, inner, unit, d.newline)
		object.AfterExtra = hujson.Extra(d.newline + indent)
	}
	trailing := false
	if n := len(object.Members); n > 0 {
		trailing = object.Members[n-1].Value.AfterExtra != nil
	}
	object.Members = append(object.Members, m)
	if trailing {
		object.Members[len(object.Members)-1].Value.AfterExtra = hujson.Extra("")
	}
}

// lay puts the members of a value's objects on lines of their own; lists stay on
// one.
func lay(v *hujson.Value, indent, unit, newline string) {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		spread(v)
		return
	}
	for i := range object.Members {
		m := &object.Members[i]
		m.Name.BeforeExtra = hujson.Extra(newline + indent + unit)
		m.Value.BeforeExtra = hujson.Extra(" ")
		lay(&m.Value, indent+unit, unit, newline)
	}
	if len(object.Members) > 0 {
		object.AfterExtra = hujson.Extra(newline + indent)
	}
}

// spread puts a space behind each colon and comma of a value on one line.
func spread(v *hujson.Value) {
	space := hujson.Extra(" ")
	if object, ok := v.Value.(*hujson.Object); ok {
		for i := range object.Members {
			m := &object.Members[i]
			if i > 0 {
				m.Name.BeforeExtra = space
			}
			spread(&m.Value)
			m.Value.BeforeExtra = space
		}
	}
	if list, ok := v.Value.(*hujson.Array); ok {
		for i := range list.Elements {
			spread(&list.Elements[i])
			if i > 0 {
				list.Elements[i].BeforeExtra = space
			}
		}
	}
}

func remove(object *hujson.Object, name string) {
	i := len(object.Members) - 1
	for ; nameOf(object.Members[i]) != name; i-- {
	}
	kept := othersComments(object.Members[i].Name.BeforeExtra, i == 0)
	trailing := object.Members[len(object.Members)-1].Value.AfterExtra != nil
	last := i == len(object.Members)-1
	object.Members = slices.Delete(object.Members, i, i+1)
	follow := &object.AfterExtra
	if !last {
		follow = &object.Members[i].Name.BeforeExtra
	}
	*follow = append(slices.Clone(kept), sameLine(*follow)...)
	if n := len(object.Members); last && n > 0 {
		object.Members[n-1].Value.AfterExtra = nil
		if trailing {
			object.Members[n-1].Value.AfterExtra = hujson.Extra("")
		}
	}
	if len(object.Members) == 0 && len(bytes.TrimSpace(object.AfterExtra)) == 0 {
		object.AfterExtra = nil
	}
}

// sameLine cuts from what follows a member the comment that ends its line.
func sameLine(extra hujson.Extra) hujson.Extra {
	i := bytes.IndexByte(extra, '\n')
	if i < 0 || !isComment(extra[:i]) {
		return extra
	}
	if i > 0 && extra[i-1] == '\r' {
		i--
	}
	return extra[i:]
}

func isComment(line []byte) bool {
	line = bytes.TrimSpace(line)
	return bytes.HasPrefix(line, []byte("//")) || bytes.HasPrefix(line, []byte("/*")) && bytes.HasSuffix(line, []byte("*/"))
}

// othersComments is what stands before a member without the comments directly
// above it: the comment on the line of what is before, and those that an empty
// line keeps apart. It ends without a line break.
func othersComments(extra hujson.Extra, first bool) hujson.Extra {
	lines := bytes.SplitAfter(extra, []byte("\n"))
	if len(lines) == 1 { // all on one line
		return nil
	}
	end := len(lines) - 1 // the last one holds the member itself
	for end > 1 && isComment(lines[end-1]) {
		end--
	}
	kept := bytes.Join(lines[:end], nil)
	if first && len(bytes.TrimSpace(kept)) == 0 {
		return nil
	}
	return bytes.TrimRight(kept, " \t\r\n")
}

func jsonSet(data []byte, path []string, value json.RawMessage) ([]byte, error) {
	after, err := SetJSON(data, path, value)
	if err != nil {
		return nil, err
	}
	return after, sameBut(data, after, path)
}

func jsonRemove(data []byte, path []string) ([]byte, error) {
	after, err := RemoveJSON(data, path)
	if err != nil {
		return nil, err
	}
	return after, sameBut(data, after, path)
}

var errOthers = errors.New("cannot be edited without changing something else; edit it by hand")

// sameBut checks that two documents differ at path only. Objects on the way may
// be missing where they are empty.
func sameBut(before, after []byte, path []string) error {
	rest := func(data []byte) ([]byte, error) {
		d, err := parseJSON(data)
		if err != nil {
			return nil, err
		}
		d.root.Minimize()
		plain := d.root.Pack()
		for n := len(path); n > 0; n-- {
			if plain, err = RemoveJSON(plain, path[:n]); err != nil {
				return nil, err
			}
			parent := json.RawMessage(plain)
			for _, name := range path[:n-1] {
				parent = rawjson.Member(parent, name)
			}
			if len(parent) > 0 && string(parent) != "{}" && string(parent) != "null" {
				break
			}
		}
		return plain, nil
	}
	a, err := rest(before)
	if err != nil {
		return err
	}
	b, err := rest(after)
	if err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return errOthers
	}
	return nil
}

// jsonServers returns the servers at the path of the document, in their order.
func jsonServers(data []byte, path []string) ([]Server, error) {
	d, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	block := json.RawMessage(d.standard())
	for _, name := range path {
		block = rawjson.Member(block, name)
	}
	if block = bytes.TrimSpace(block); len(block) > 0 && block[0] != '{' && string(block) != "null" {
		return nil, fmt.Errorf("%s is not an object", path[len(path)-1])
	}
	var servers []Server
	for name, value := range rawjson.Members(block) {
		servers = append(servers, jsonServer(name, value))
	}
	return servers, nil
}

// jsonServer reads one server. Clients differ in a few keys, and no two of them
// mean different things by one.
func jsonServer(name string, value json.RawMessage) Server {
	s := Server{Name: name}
	for key, raw := range rawjson.Members(value) {
		switch key {
		case "command":
			switch raw[0] {
			case '[': // opencode
				words := list(raw)
				if len(words) > 0 {
					s.Command, s.Args = words[0], append(words[1:], s.Args...)
				}
			case '{': // Zed, once
				s.Command = word(rawjson.Member(raw, "path"))
				s.Args, s.Env = list(rawjson.Member(raw, "args")), words(rawjson.Member(raw, "env"))
			default:
				s.Command = word(raw)
			}
		case "args":
			s.Args = append(s.Args, list(raw)...)
		case "env", "environment":
			s.Env = words(raw)
		case "cwd":
			s.Cwd = word(raw)
		case "url", "serverUrl":
			s.URL = word(raw)
		case "httpUrl":
			s.URL, s.Transport = word(raw), "streamable-http"
		case "headers":
			s.Headers = words(raw)
		case "type", "transport":
			switch strings.ToLower(word(raw)) {
			case "sse":
				s.Transport = "sse"
			case "http", "streamable-http", "streamablehttp", "streamable_http":
				s.Transport = "streamable-http"
			}
		case "disabled":
			s.Disabled = s.Disabled || string(raw) == "true"
		case "enabled":
			s.Disabled = s.Disabled || string(raw) == "false"
		}
	}
	s.check()
	return s
}

func (s *Server) check() {
	switch {
	case s.Command == "" && s.URL == "":
		s.Problem = "it has neither a command nor a URL"
	case s.Command != "" && s.URL != "":
		s.Problem = "it has both a command and a URL"
	}
	if s.Command != "" {
		s.Transport = ""
	}
}

// word is a text, or a number or truth value as it is written.
func word(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' {
		return rawjson.Text(raw)
	}
	return string(raw)
}

func list(raw json.RawMessage) []string {
	var words []string
	for item := range rawjson.Elements(raw) {
		words = append(words, word(item))
	}
	return words
}

func words(raw json.RawMessage) map[string]string {
	var texts map[string]string
	for name, value := range rawjson.Members(raw) {
		set(&texts, name, word(value))
	}
	return texts
}
