package document

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

// MaxDepth bounds the nesting of YAML: its parser recurses, and a program does not recover
// from an overflow of its stack.
const MaxDepth = 100

// parseYAML reads one document. Anchors, aliases and merge keys are resolved.
func parseYAML(data []byte) (*Node, []Problem) {
	file, bad := yamlFile(data)
	if bad != nil {
		return nil, []Problem{*bad}
	}
	b := &yamlBuilder{anchors: make(map[string]*Node)}
	var root *Node
	for _, doc := range file.Docs {
		if _, ok := doc.Body.(*ast.DirectiveNode); ok || doc.Body == nil { // %YAML 1.2
			continue
		}
		next := b.Node(doc.Body)
		if root != nil {
			b.problems = append(b.problems, Problem{next.Line, next.Column, "a second YAML document in one file", "remove the line ---"})
			break
		}
		root = next
	}
	if root == nil {
		return nil, []Problem{{1, 1, Empty, ""}}
	}
	return root, b.problems
}

// yamlFile runs the parser. A panic of the parser is reported as invalid YAML.
func yamlFile(data []byte) (file *ast.File, bad *Problem) {
	defer func() {
		if r := recover(); r != nil {
			file, bad = nil, &Problem{1, 1, "not valid YAML", ""}
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if tk := tooDeep(tokens); tk != nil {
		line, column := tokenPlace(tk)
		return nil, &Problem{line, column, fmt.Sprintf("nested deeper than %d levels", MaxDepth), ""}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, nil
	}
	bad = &Problem{1, 1, "not valid YAML", ""}
	if e, ok := errors.AsType[yaml.Error](err); ok {
		// The error's text quotes lines of the file, which may hold secrets.
		bad.Message += ": " + strings.TrimSpace(e.GetMessage())
		if tk := e.GetToken(); tk != nil {
			bad.Line, bad.Column = tokenPlace(tk)
		}
		bad.Hint = syntaxHint(data, bad.Line)
	}
	return nil, bad
}

// syntaxHint recognises the two most frequent mistakes.
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

// tooDeep returns the first token that is nested too deep, in brackets or by markers on
// one line.
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
		// Inside brackets markers do not nest: a long list may be one line.
		if brackets > MaxDepth || brackets == 0 && markers > MaxDepth {
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
	anchors  map[string]*Node // an alias finds only anchors above it
	problems []Problem
}

// hugeNumber is a number that the parser takes for text, because no type of Go holds it.
var hugeNumber = regexp.MustCompile(`^[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$`)

func (b *yamlBuilder) fail(at ast.Node, message, hint string) {
	line, column := tokenPlace(at.GetToken())
	b.problems = append(b.problems, Problem{line, column, message, hint})
}

// node converts a value and never returns nil. A value that it cannot convert is reported,
// and of kind Broken.
func (b *yamlBuilder) Node(from ast.Node) *Node {
	n := &Node{Kind: Null, Line: 1, Column: 1}
	if from == nil {
		return n
	}
	n.Line, n.Column = tokenPlace(from.GetToken())
	switch v := from.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		n.Kind, n.Text = Text, v.Value
		if v.GetToken().Type == token.StringType && hugeNumber.MatchString(v.Value) {
			n.Kind = Number
		}
	case *ast.LiteralNode:
		n.Kind, n.Text = Text, v.Value.Value
	case *ast.BoolNode:
		n.Kind, n.Text = Bool, strings.ToLower(v.Token.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.Kind, n.Text = Number, v.GetToken().Value
	case *ast.MappingNode:
		b.mapping(n, v)
		if !v.IsFlowStyle && len(n.Pairs) > 0 { // the token of a block mapping is its first colon
			n.Line, n.Column = tokenPlace(v.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		b.mapping(n, v)
		n.Line, n.Column = tokenPlace(v.Key.GetToken())
	case *ast.SequenceNode:
		n.Kind = List
		for _, item := range v.Values {
			n.Items = append(n.Items, b.Node(item))
		}
	case *ast.AnchorNode:
		n = b.Node(v.Value)
		b.anchors[v.Name.GetToken().Value] = n
	case *ast.AliasNode:
		if known := b.anchors[v.Value.GetToken().Value]; known != nil {
			return known
		}
		// The message has no name: an unquoted password may look like an alias.
		b.fail(from, "an alias without an anchor before it", "text that begins with * needs quotes")
		n.Kind = Broken
	case *ast.TagNode:
		return b.tagged(v)
	default:
		b.fail(from, "YAML that a configuration has no use for: "+from.Type().YAMLName(), "")
		n.Kind = Broken
	}
	return n
}

// tagged converts a value with a tag of YAML itself.
func (b *yamlBuilder) tagged(v *ast.TagNode) *Node {
	n := b.Node(v.Value)
	switch v.Start.Value {
	case "!!str", "!":
		if n.Kind == Number || n.Kind == Bool {
			n.Kind = Text
		}
	case "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
	default:
		b.fail(v, "an unknown tag", "text that begins with ! needs quotes")
	}
	return n
}

func (b *yamlBuilder) mapping(n *Node, m ast.MapNode) {
	n.Kind = Mapping
	var merged []Pair
	for i := m.MapRange(); i.Next(); {
		key, value := i.Key(), i.Value()
		if key.IsMergeKey() {
			merged = append(merged, b.merge(value)...)
			continue
		}
		if k := b.Key(key); k != nil {
			n.Pairs = append(n.Pairs, Pair{k, b.Node(value)})
		}
	}
	// Own pairs win over merged pairs, and earlier merges over later merges.
	seen := make(map[string]bool, len(n.Pairs)+len(merged))
	for _, p := range n.Pairs {
		seen[p.Key.Text] = true
	}
	for _, p := range merged {
		if !seen[p.Key.Text] {
			seen[p.Key.Text] = true
			n.Pairs = append(n.Pairs, p)
		}
	}
}

// merge returns the pairs of the value of <<: a mapping or a list of mappings.
func (b *yamlBuilder) merge(value ast.Node) []Pair {
	from := b.Node(value)
	switch from.Kind {
	case Broken:
		return nil
	case Mapping:
		return from.Pairs
	case List:
		var all []Pair
		for _, item := range from.Items {
			if item.Kind == Broken {
				continue
			}
			if item.Kind != Mapping {
				b.fail(value, "<< merges mappings, not "+string(item.Kind), "")
				continue
			}
			all = append(all, item.Pairs...)
		}
		return all
	}
	b.fail(value, "<< merges a mapping, not "+string(from.Kind), "")
	return nil
}

// key converts a key; a number or truth value becomes its text.
func (b *yamlBuilder) Key(from ast.Node) *Node {
	if k, ok := from.(*ast.MappingKeyNode); ok { // ? key
		from = k.Value
	}
	k := b.Node(from)
	switch k.Kind {
	case Broken:
		return nil
	case Text:
		return k
	case Number, Bool:
		return &Node{Kind: Text, Line: k.Line, Column: k.Column, Text: k.Text}
	}
	b.fail(from, "a key must be text, not "+string(k.Kind), "")
	return nil
}
