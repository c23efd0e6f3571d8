package configs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

func text(s string) *node { return &node{kind: kindText, text: s} }

func (n *node) add(key string, value *node) {
	n.pairs = append(n.pairs, pair{text(key), value})
}

func (n *node) addText(key, s string) {
	if s != "" {
		n.add(key, text(s))
	}
}

func texts(words []string) *node {
	n := &node{kind: kindList}
	for _, word := range words {
		n.items = append(n.items, text(word))
	}
	return n
}

func (n *node) addTexts(key string, words map[string]string) {
	if len(words) == 0 {
		return
	}
	m := &node{kind: kindMapping}
	for _, name := range slices.Sorted(maps.Keys(words)) {
		m.add(name, text(words[name]))
	}
	n.add(key, m)
}

func (s Server) node() *node {
	n := &node{kind: kindMapping}
	n.addText("command", s.Command)
	if len(s.Args) > 0 {
		n.add("args", texts(s.Args))
	}
	n.addTexts("env", s.Env)
	n.addText("cwd", s.Cwd)
	n.addText("url", s.URL)
	n.addTexts("headers", s.Headers)
	n.addText("transport", s.Transport)
	n.addText("description", s.Description)
	if s.Disabled {
		n.add("enabled", &node{kind: kindBool, text: "false"})
	}
	return n
}

// view makes the tree of a view; its servers are those of the file.
func (f *edit) view(v NewView) (*node, error) {
	n := &node{kind: kindMapping}
	n.addText("description", v.Description)
	n.addText("exposure_mode", v.Exposure)
	if v.IncludeAll {
		n.add("include_all", &node{kind: kindBool, text: "true"})
	}
	if len(v.Exclude) > 0 {
		n.add("exclude", texts(v.Exclude))
	}
	tools := &node{kind: kindMapping}
	for _, pattern := range v.Tools {
		server, glob, err := f.splitTool(pattern)
		if err != nil {
			return nil, err
		}
		under := tools.find(server)
		if under == nil {
			under = &node{kind: kindMapping}
			tools.add(server, under)
		}
		if under.find(glob) == nil {
			under.add(glob, &node{kind: kindMapping})
		}
	}
	if len(tools.pairs) > 0 {
		n.add("tools", tools)
	}
	return n, nil
}

// splitTool parts server.glob. Names of servers may have dots: the longest that
// fits is meant.
func (f *edit) splitTool(pattern string) (server, glob string, err error) {
	names := f.serverNames()
	for _, name := range names {
		if strings.HasPrefix(pattern, name+".") && len(name) > len(server) && len(pattern) > len(name)+1 {
			server = name
		}
	}
	if server == "" {
		name, _, _ := strings.Cut(pattern, ".")
		return "", "", f.unknown("server", name, names)
	}
	return server, pattern[len(server)+1:], nil
}

func (n *node) isUTF8() bool {
	for _, p := range n.pairs {
		if !p.key.isUTF8() || !p.value.isUTF8() {
			return false
		}
	}
	return utf8.ValidString(n.text) && !slices.ContainsFunc(n.items, func(item *node) bool { return !item.isUTF8() })
}

// json is the value as JSON.
func (n *node) json() json.RawMessage {
	var b bytes.Buffer
	switch n.kind {
	case kindText:
		b.WriteString(quoted(n.text))
	case kindList:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(item.json())
		}
		b.WriteByte(']')
	case kindMapping:
		b.WriteByte('{')
		for i, p := range n.pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quoted(p.key.text) + ":")
			b.Write(p.value.json())
		}
		b.WriteByte('}')
	default:
		b.WriteString(cmp.Or(n.text, "null"))
	}
	return b.Bytes()
}

// same reports whether two values are equal, wherever they stand.
func same(a, b *node) bool {
	if a.kind != b.kind || a.text != b.text || len(a.pairs) != len(b.pairs) || len(a.items) != len(b.items) {
		return false
	}
	for i := range a.pairs {
		if a.pairs[i].key.text != b.pairs[i].key.text || !same(a.pairs[i].value, b.pairs[i].value) {
			return false
		}
	}
	for i := range a.items {
		if !same(a.items[i], b.items[i]) {
			return false
		}
	}
	return true
}

// without is the tree without the value at path, nor the mappings that hold
// nothing else.
func without(n *node, path []string) *node {
	if n == nil || n.kind != kindMapping {
		return n
	}
	out := &node{kind: kindMapping}
	done := false
	for _, p := range n.pairs {
		if p.key.text != path[0] || done {
			out.pairs = append(out.pairs, p)
			continue
		}
		done = true
		if len(path) == 1 {
			continue
		}
		if rest := without(p.value, path[1:]); rest.kind != kindNull && (rest.kind != kindMapping || len(rest.pairs) > 0) {
			out.pairs = append(out.pairs, pair{p.key, rest})
		}
	}
	return out
}
