package configs

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxDepth bounds nesting: the YAML parser recurses, and a stack that overflows
// cannot be recovered from.
const maxDepth = 100

// parseYAML reads one document. Anchors, aliases and merge keys are resolved.
func parseYAML(data []byte) (*node, []problem) {
	file, bad := yamlFile(data)
	if bad != nil {
		return nil, []problem{*bad}
	}
	b := &yamlBuilder{anchors: make(map[string]*node)}
	var root *node
	for _, doc := range file.Docs {
		if _, ok := doc.Body.(*ast.DirectiveNode); ok || doc.Body == nil { // %YAML 1.2
			continue
		}
		next := b.node(doc.Body)
		if root != nil {
			b.problems = append(b.problems, problem{next.line, next.column, "a second YAML document in one file", "remove the line ---"})
			break
		}
		root = next
	}
	if root == nil {
		return nil, []problem{{1, 1, Empty, ""}}
	}
	return root, b.problems
}

// yamlFile runs the parser. It is another's code over any input at all: a panic
// in it is a file that cannot be read, not the end of the program.
func yamlFile(data []byte) (file *ast.File, bad *problem) {
	defer func() {
		if r := recover(); r != nil {
			file, bad = nil, &problem{1, 1, "not valid YAML", ""}
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if tk := tooDeep(tokens); tk != nil {
		line, column := tokenPlace(tk)
		return nil, &problem{line, column, fmt.Sprintf("nested deeper than %d levels", maxDepth), ""}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, nil
	}
	bad = &problem{1, 1, "not valid YAML", ""}
	if e, ok := errors.AsType[yaml.Error](err); ok {
		// Only the message: the whole text quotes the lines around, secrets and all.
		bad.message += ": " + strings.TrimSpace(e.GetMessage())
		if tk := e.GetToken(); tk != nil {
			bad.line, bad.column = tokenPlace(tk)
		}
		bad.hint = syntaxHint(data, bad.line)
	}
	return nil, bad
}

// syntaxHint knows the two mistakes that people make most.
func syntaxHint(data []byte, line int) string {
	lines := bytes.Split(data, []byte("\n"))
	if line > len(lines) {
		return ""
	}
	text := lines[line-1]
	switch {
	case bytes.HasPrefix(bytes.TrimLeft(text, " "), []byte("\t")):
		return "indent with spaces"
	case bytes.Contains(text, []byte("${")):
		return `inside [ ] and { } a variable needs quotes: "${NAME}"`
	}
	return ""
}

// tooDeep returns the first token nested too deep, by brackets or by markers
// that follow each other on one line.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, markers, line := 0, 0, 0
	for _, tk := range tokens {
		if tk.Position != nil && tk.Position.Line != line {
			line, markers = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType, token.MappingValueType:
			markers++
		}
		// Markers only nest outside brackets: a long flow list is one line.
		if brackets > maxDepth || brackets == 0 && markers > maxDepth {
			return tk
		}
	}
	return nil
}

func tokenPlace(tk *token.Token) (line, column int) {
	if tk == nil || tk.Position == nil {
		return 1, 1
	}
	return max(1, tk.Position.Line), max(1, tk.Position.Column)
}

type yamlBuilder struct {
	anchors  map[string]*node // defined so far: an alias sees only what stands before it
	problems []problem
}

// hugeNumber is a number without quotes that the parser takes for text, as no
// type of Go's holds it.
var hugeNumber = regexp.MustCompile(`^[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$`)

func (b *yamlBuilder) fail(at ast.Node, message, hint string) {
	line, column := tokenPlace(at.GetToken())
	b.problems = append(b.problems, problem{line, column, message, hint})
}

// node converts a value. It never returns nil; what cannot be converted is
// reported and is of kindBroken.
func (b *yamlBuilder) node(from ast.Node) *node {
	n := &node{kind: kindNull, line: 1, column: 1}
	if from == nil {
		return n
	}
	n.line, n.column = tokenPlace(from.GetToken())
	switch v := from.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		n.kind, n.text = kindText, v.Value
		if v.GetToken().Type == token.StringType && hugeNumber.MatchString(v.Value) {
			n.kind = kindNumber
		}
	case *ast.LiteralNode:
		n.kind, n.text = kindText, v.Value.Value
	case *ast.BoolNode:
		n.kind, n.text = kindBool, strings.ToLower(v.Token.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = kindNumber, v.GetToken().Value
	case *ast.MappingNode:
		b.mapping(n, v)
		if !v.IsFlowStyle && len(n.pairs) > 0 { // its own token is the first colon
			n.line, n.column = tokenPlace(v.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		b.mapping(n, v)
		n.line, n.column = tokenPlace(v.Key.GetToken())
	case *ast.SequenceNode:
		n.kind = kindList
		for _, item := range v.Values {
			n.items = append(n.items, b.node(item))
		}
	case *ast.AnchorNode:
		n = b.node(v.Value)
		b.anchors[v.Name.GetToken().Value] = n
	case *ast.AliasNode:
		if known := b.anchors[v.Value.GetToken().Value]; known != nil {
			return known
		}
		// Unnamed: it may be a password that nobody quoted.
		b.fail(from, "an alias without an anchor before it", "text that begins with * needs quotes")
		n.kind = kindBroken
	case *ast.TagNode:
		return b.tagged(v)
	default:
		b.fail(from, "YAML that a configuration has no use for: "+from.Type().YAMLName(), "")
		n.kind = kindBroken
	}
	return n
}

// tagged converts a value with a tag: only those of plain values are known.
func (b *yamlBuilder) tagged(v *ast.TagNode) *node {
	n := b.node(v.Value)
	switch v.Start.Value {
	case "!!str", "!":
		if n.kind == kindNumber || n.kind == kindBool {
			n.kind = kindText
		}
	case "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
	default:
		b.fail(v, "an unknown tag", "text that begins with ! needs quotes")
	}
	return n
}

func (b *yamlBuilder) mapping(n *node, m ast.MapNode) {
	n.kind = kindMapping
	var merged []pair
	for i := m.MapRange(); i.Next(); {
		key, value := i.Key(), i.Value()
		if key.IsMergeKey() {
			merged = append(merged, b.merge(value)...)
			continue
		}
		if k := b.key(key); k != nil {
			n.pairs = append(n.pairs, pair{k, b.node(value)})
		}
	}
	// What stands in the mapping itself wins, then what was merged first.
	seen := make(map[string]bool, len(n.pairs)+len(merged))
	for _, p := range n.pairs {
		seen[p.key.text] = true
	}
	for _, p := range merged {
		if !seen[p.key.text] {
			seen[p.key.text] = true
			n.pairs = append(n.pairs, p)
		}
	}
}

// merge returns the pairs of the value of <<: a mapping or a list of mappings.
func (b *yamlBuilder) merge(value ast.Node) []pair {
	from := b.node(value)
	switch from.kind {
	case kindBroken:
		return nil
	case kindMapping:
		return from.pairs
	case kindList:
		var all []pair
		for _, item := range from.items {
			if item.kind == kindBroken {
				continue
			}
			if item.kind != kindMapping {
				b.fail(value, "<< merges mappings, not "+string(item.kind), "")
				continue
			}
			all = append(all, item.pairs...)
		}
		return all
	}
	b.fail(value, "<< merges a mapping, not "+string(from.kind), "")
	return nil
}

// key converts a key: text, or a number or truth value taken as its text.
func (b *yamlBuilder) key(from ast.Node) *node {
	if k, ok := from.(*ast.MappingKeyNode); ok { // ? key
		from = k.Value
	}
	k := b.node(from)
	switch k.kind {
	case kindBroken:
		return nil
	case kindText:
		return k
	case kindNumber, kindBool:
		return &node{kind: kindText, line: k.line, column: k.column, text: k.text}
	}
	b.fail(from, "a key must be text, not "+string(k.kind), "")
	return nil
}
