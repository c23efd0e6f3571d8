package configs

import (
	"bytes"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// node is a value of the file with its place: what YAML and JSON have in common.
type node struct {
	kind   nodeKind
	line   int // from 1; 0 for a value from environment or flags
	column int // from 1, in characters
	text   string
	inFile string  // of a key that is another one in the file: that
	pairs  []pair  // of a mapping
	items  []*node // of a list
}

type pair struct {
	key   *node // of kind text
	value *node
}

type nodeKind string

const (
	kindNull    nodeKind = "nothing"
	kindBool    nodeKind = "true or false"
	kindNumber  nodeKind = "a number"
	kindText    nodeKind = "text"
	kindList    nodeKind = "a list"
	kindMapping nodeKind = "a mapping"
	kindBroken  nodeKind = "broken" // reported already, when the file was read
)

// outside reports whether the value comes from environment or flags, where all
// is text.
func (n *node) outside() bool { return n.line == 0 }

// find returns the value of the first pair with the key, or nil.
func (n *node) find(key string) *node {
	for _, p := range n.pairs {
		if p.key.text == key {
			return p.value
		}
	}
	return nil
}

// given returns the value of a key that is there and not left empty, else nil.
func (n *node) given(key string) *node {
	if v := n.find(key); v != nil && v.kind != kindNull {
		return v
	}
	return nil
}

// fits reports whether a value has no more values in it than are left.
func (n *node) fits(left *int) bool {
	*left--
	for _, item := range n.items {
		if *left < 0 || !item.fits(left) {
			return false
		}
	}
	for _, p := range n.pairs {
		if *left < 0 || !p.value.fits(left) {
			return false
		}
	}
	return *left >= 0
}

// textNode is a text of no file.
func textNode(s string) *node { return &node{kind: kindText, text: s} }

// boolNode is a truth value of no file.
func boolNode(v bool) *node { return &node{kind: kindBool, text: strconv.FormatBool(v)} }

// Empty is the message of the problem that a file has nothing in it.
const Empty = "the file is empty"

// problem is something wrong with the file before anybody asked what it means.
type problem struct {
	line, column  int
	message, hint string
}

// parse reads a file as JSON or YAML and says which. JSON goes by its name or
// its first character; a file that begins like JSON and is none may be YAML.
func parse(name string, data []byte) (root *node, isJSON bool, problems []problem) {
	data, bad := cleanText(data)
	if bad != nil {
		return nil, false, []problem{*bad}
	}
	ext := strings.ToLower(filepath.Ext(name))
	named := ext == ".json" || ext == ".jsonc"
	if begin := bytes.TrimSpace(data)[0]; named || begin == '{' || begin == '/' {
		root, bad := parseJSON(data)
		if bad == nil {
			return root, true, nil
		}
		if named {
			return nil, true, []problem{*bad}
		}
	}
	root, problems = parseYAML(data)
	return root, false, problems
}

// isBlank reports whether there is nothing but comments.
func isBlank(data []byte) bool {
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// cleanText returns the text without byte order mark and with \n for every line
// end, as both parsers count lines by it.
func cleanText(data []byte) ([]byte, *problem) {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return nil, &problem{1, 1, "the file is UTF-16", "save it as UTF-8"}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	at := newPlace(data)
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\t' {
			line, column := at.of(i)
			return nil, &problem{line, column, "not a text file: neither YAML nor JSON", "it must be UTF-8"}
		}
		i += size
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, &problem{1, 1, Empty, ""}
	}
	return data, nil
}

// place turns byte offsets, asked for in ascending order, into lines and
// columns. It walks the text once: a file may be one line of megabytes.
type place struct {
	data         []byte
	offset       int
	line, column int
}

func newPlace(data []byte) *place { return &place{data: data, line: 1, column: 1} }

func (p *place) of(offset int) (line, column int) {
	for p.offset < min(offset, len(p.data)) {
		r, size := utf8.DecodeRune(p.data[p.offset:])
		p.offset += size
		p.column++
		if r == '\n' {
			p.line, p.column = p.line+1, 1
		}
	}
	return p.line, p.column
}
