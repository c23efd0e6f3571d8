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

// hasVariables reports whether the text is another once variables are replaced.
func (n *node) hasVariables() bool { return strings.Contains(n.text, "${") && !n.outside() }

// find returns the value of the first pair with the key, or nil.
func (n *node) find(key string) *node {
	for _, p := range n.pairs {
		if p.key.text == key {
			return p.value
		}
	}
	return nil
}

// String describes the value for a message. An expansion is never shown: it may
// be a secret.
func (n *node) String() string {
	switch n.kind {
	case kindText:
		const most = 40
		s := n.text
		if utf8.RuneCountInString(s) > most {
			s = string([]rune(s)[:most]) + "..."
		}
		if n.hasVariables() {
			return "the value of " + s
		}
		return strconv.Quote(s)
	case kindNumber, kindBool:
		return n.text
	default:
		return string(n.kind)
	}
}

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
		return nil, &problem{1, 1, "the file is empty", emptyHint}
	}
	return data, nil
}

const emptyHint = "list servers under mcp_servers"

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
