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
	unit := d.unit()
	at, indent := &d.root, ""
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
			remove(object, name, hujson.Extra(d.newline+indent))
			return d.pack(), nil
		}
		indent = indentOf(member.Name.BeforeExtra, indent+unit)
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

// remove takes the member with the name out of the object. The closing brace is
// put behind outer, a line break, where it needs one.
func remove(object *hujson.Object, name string, outer hujson.Extra) {
	i := len(object.Members) - 1
	for ; nameOf(object.Members[i]) != name; i-- {
	}
	gone := object.Members[i]
	last := i == len(object.Members)-1
	ends := last && gone.Value.AfterExtra == nil // without a comma
	object.Members = slices.Delete(object.Members, i, i+1)

	follow, place := &object.AfterExtra, outer
	if !last {
		follow, place = &object.Members[i].Name.BeforeExtra, lineStart(gone.Name.BeforeExtra, outer)
	}
	tail := *follow
	var next hujson.Extra // what is before the member's comma and not on its line
	if own := gone.Value.AfterExtra; len(splitLines(own)) > 1 {
		next = sameLine(own)
	} else {
		tail = sameLine(tail)
	}
	above := othersComments(gone.Name.BeforeExtra, i == 0)
	var before *hujson.Extra // what is between the previous value and its comma
	if i > 0 {
		before = &object.Members[i-1].Value.AfterExtra
	}
	switch {
	case before != nil && len(splitLines(*before)) > 1 && len(splitLines(gone.Name.BeforeExtra)) == 1:
		// Commas begin the lines: what else stands above a member is before its comma.
		line := lineStart(*before, outer)
		*before = othersComments(*before, false)
		if next == nil {
			next = line
		}
		if !ends {
			*before = append(*before, next...)
		}
	case isComment(next):
		tail = append(slices.Clone(next), tail...)
	case !last && len(splitLines(tail)) == 1 && !isComment(tail) && !isComment(above) && !isComment(gone.Name.BeforeExtra):
		tail = gone.Name.BeforeExtra // the next one takes its place
	}
	if ends && before != nil { // the previous one loses its comma
		if *before = bytes.TrimRight(*before, " \t\r\n"); len(above) > 0 {
			above = join(*before, above, outer)
		} else {
			above = *before
		}
		*before = nil
	} else if last && before != nil && *before == nil {
		*before = hujson.Extra("")
	}
	*follow = join(above, tail, place)
	if len(object.Members) == 0 && !isComment(object.AfterExtra) {
		object.AfterExtra = nil
	}
}

// join puts b behind a: on the next line, which begins with lineBreak, where it
// would become a part of a comment.
func join(a, b, lineBreak hujson.Extra) hujson.Extra {
	end, start := splitLines(a), splitLines(b)
	if bytes.Contains(end[len(end)-1], []byte("//")) && (len(start) == 1 || isComment(start[0])) {
		b = append(slices.Clone(lineBreak), bytes.TrimLeft(b, " \t")...)
	}
	return append(slices.Clone(a), b...)
}

// lineStart is the last line break of extra and the white space behind it;
// otherwise where there is none.
func lineStart(extra, otherwise hujson.Extra) hujson.Extra {
	i := bytes.LastIndexByte(extra, '\n')
	if i < 0 {
		return otherwise
	}
	end := len(extra) - len(bytes.TrimLeft(extra[i:], " \t\n"))
	if i > 0 && extra[i-1] == '\r' {
		i--
	}
	return extra[i:end]
}

// splitLines takes what stands between values apart behind each line break that
// is not within a comment.
func splitLines(extra hujson.Extra) [][]byte {
	var lines [][]byte
	start := 0
	for i := 0; i < len(extra); {
		rest, length := extra[i:], 1
		switch {
		case bytes.HasPrefix(rest, []byte("//")):
			length = max(bytes.IndexByte(rest, '\n'), 1)
		case bytes.HasPrefix(rest, []byte("/*")):
			length = max(bytes.Index(rest, []byte("*/")), 0) + 2
		}
		if i += length; rest[0] == '\n' {
			lines = append(lines, extra[start:i])
			start = i
		}
	}
	return append(lines, extra[start:])
}

// sameLine cuts from what follows a member the comment that ends its line.
func sameLine(extra hujson.Extra) hujson.Extra {
	lines := splitLines(extra)
	if len(lines) == 1 || !isComment(lines[0]) {
		return extra
	}
	i := len(lines[0]) - 1
	if extra[i-1] == '\r' {
		i--
	}
	return extra[i:]
}

// isComment reports whether there is more than white space between values.
func isComment(extra hujson.Extra) bool { return len(bytes.TrimSpace(extra)) > 0 }

// othersComments is what stands before a member without the comments directly
// above it: the comment on the line of what is before, and those that an empty
// line keeps apart. It ends without a line break.
func othersComments(extra hujson.Extra, first bool) hujson.Extra {
	lines := splitLines(extra)
	if len(lines) == 1 { // all on one line
		return nil
	}
	end := len(lines) - 1 // the last one holds the member itself
	for end > 1 && isComment(lines[end-1]) {
		end--
	}
	kept := bytes.Join(lines[:end], nil)
	if first && !isComment(kept) {
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
	if b, err := rest(after); err != nil || !bytes.Equal(a, b) {
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
