package document

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// setYAML sets the value at path in the document, or removes it if value is nil. It edits
// the text at the places of the parser's tokens, and returns nil if it cannot. The caller
// checks the result.
func setYAML(data []byte, path []string, value json.RawMessage) (edited []byte) {
	defer func() {
		if recover() != nil { // the parser may panic
			edited = nil
		}
	}()
	text, hasBOM := strings.CutPrefix(string(data), "\ufeff")
	hasCRLF := strings.Contains(text, "\r\n")
	if hasCRLF && strings.Count(text, "\r\n") != strings.Count(text, "\n") {
		return nil // an edit would change all line ends
	}
	if text = strings.ReplaceAll(text, "\r\n", "\n"); text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	tokens := lexer.Tokenize(text)
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil
	}
	ok := true
	switch root := yamlRoot(file); {
	case root != nil:
		y := newYAMLText(text, tokens, root)
		text, ok = y.change(root, path, value, true, y.end)
	case IsBlank(data) && value != nil:
		if text != "" {
			text = strings.TrimRight(text, "\n") + "\n\n"
		}
		text += block(path, value, "", "  ")
	default:
		return nil
	}
	if !ok {
		return nil
	}
	if hasCRLF {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if hasBOM {
		text = "\ufeff" + text
	}
	return []byte(text)
}

// yamlRoot returns the outermost mapping, nil when there is none.
func yamlRoot(file *ast.File) *ast.MappingNode {
	for _, doc := range file.Docs {
		if m := mappingOf(doc.Body); m != nil {
			return m
		}
	}
	return nil
}

func mappingOf(n ast.Node) *ast.MappingNode {
	switch v := n.(type) {
	case *ast.AnchorNode:
		return mappingOf(v.Value)
	case *ast.TagNode:
		return mappingOf(v.Value)
	case *ast.MappingNode:
		return v
	}
	return nil
}

// yamlText is a document with the places of its lines and comments. Lines and columns count
// from 1, columns in characters.
type yamlText struct {
	text     string
	starts   []int          // offsets of the lines; the last one is the length of the text
	comments []*token.Token // in the order of the text
	alone    map[int]int    // by line: the column of a comment that has the line to itself
	end      int            // the line behind the root mapping and the comments below it
	unit     string         // one step of indentation
}

func newYAMLText(text string, tokens token.Tokens, root *ast.MappingNode) *yamlText {
	y := &yamlText{text: text, starts: []int{0}, alone: map[int]int{}, unit: "  "}
	for line := range strings.Lines(text) {
		y.starts = append(y.starts, y.starts[len(y.starts)-1]+len(line))
	}
	y.end = len(y.starts)
	first := keyPlace(root.Values[0])
	for _, tk := range tokens {
		at := tk.Position
		switch tk.Type {
		case token.CommentType:
			y.comments = append(y.comments, tk)
			if strings.TrimSpace(y.text[y.starts[at.Line-1]:y.offset(at)]) == "" {
				y.alone[at.Line] = at.Column
			}
		case token.DocumentEndType, token.DocumentHeaderType:
			if at.Line > first.Line {
				y.end = min(y.end, at.Line)
			}
		}
	}
	for _, v := range root.Values {
		if below := mappingOf(v.Value); below != nil && !below.IsFlowStyle && len(below.Values) > 0 {
			if step := keyPlace(below.Values[0]).Column - keyPlace(v).Column; step > 0 {
				y.unit = strings.Repeat(" ", step)
				break
			}
		}
	}
	return y
}

func keyPlace(v *ast.MappingValueNode) *token.Position { return v.Key.GetToken().Position }

// offset returns the offset of a place in bytes.
func (y *yamlText) offset(at *token.Position) int {
	offset := y.starts[at.Line-1]
	for range at.Column - 1 {
		_, size := utf8.DecodeRuneInString(y.text[offset:])
		offset += size
	}
	return offset
}

func (y *yamlText) isBlank(line int) bool {
	return line > 0 && line < len(y.starts) && strings.TrimSpace(y.text[y.starts[line-1]:y.starts[line]]) == ""
}

// splice replaces the text between two offsets.
func (y *yamlText) splice(from, to int, text string) string {
	return y.text[:from] + text + y.text[to:]
}

// behind returns the line after an entry and after the comments below it that are indented
// by more than column. The entry ends before limit.
func (y *yamlText) behind(line, column, limit int) int {
	end := limit
	for end-1 > line && (y.isBlank(end-1) || y.alone[end-1] > 0) {
		end--
	}
	for next := end; next < limit && (y.isBlank(next) || y.alone[next] > column); next++ {
		if !y.isBlank(next) {
			end = next + 1
		}
	}
	return end
}

// lead returns the first line of an entry, with the comments directly above it.
func (y *yamlText) lead(v *ast.MappingValueNode) int {
	at := keyPlace(v)
	line := at.Line
	for y.alone[line-1] > 0 && y.alone[line-1] <= at.Column {
		line--
	}
	return line
}

// change sets or removes the value at path below m, whose lines end before limit.
func (y *yamlText) change(m *ast.MappingNode, path []string, value json.RawMessage, isRoot bool, limit int) (string, bool) {
	i := slices.IndexFunc(m.Values, func(v *ast.MappingValueNode) bool { return yamlKey(v.Key) == path[0] })
	switch {
	case i < 0 && value == nil:
		return "", false // only << or an alias has it
	case i < 0 && m.IsFlowStyle:
		return y.addInBraces(m, path, value), true
	case i < 0:
		return y.add(m, path, value, isRoot, limit), true
	case len(path) == 1 && value == nil && m.IsFlowStyle:
		return y.removeFromBraces(m, i)
	}
	if i+1 < len(m.Values) {
		limit = keyPlace(m.Values[i+1]).Line
	}
	v := m.Values[i]
	below := mappingOf(v.Value)
	switch {
	case len(path) == 1 && value == nil:
		return y.remove(m, i, limit), true
	case len(path) == 1:
		return y.replace(v.Value, value)
	case below != nil && len(below.Values) > 0:
		return y.change(below, path[1:], value, false, limit)
	case below != nil && m.IsFlowStyle:
		return y.addInBraces(below, path[1:], value), true
	case below != nil && y.hasComment(y.offset(below.Start.Position), y.offset(below.End.Position)):
		return "", false // the comment would go with the braces
	case below != nil || v.Value.Type() == ast.NullType && !m.IsFlowStyle:
		return y.fill(v, path[1:], value, limit), true
	}
	return "", false
}

// add writes an entry after the last entry of m. An empty line comes before it at the root,
// after a comment that would look like its own, and if the last entry has one.
func (y *yamlText) add(m *ast.MappingNode, path []string, value json.RawMessage, isRoot bool, limit int) string {
	last := m.Values[len(m.Values)-1]
	at := keyPlace(last)
	line := y.behind(at.Line, at.Column-1, limit)
	text := block(path, value, strings.Repeat(" ", at.Column-1), y.unit)
	isApart := isRoot || y.alone[line-1] == at.Column || len(m.Values) > 1 && y.isBlank(y.lead(last)-1)
	if isApart && (len(path) > 1 || value[0] == '{') {
		text = "\n" + text
	}
	return y.splice(y.starts[line-1], y.starts[line-1], text)
}

// addInBraces writes an entry before the closing brace of m.
func (y *yamlText) addInBraces(m *ast.MappingNode, path []string, value json.RawMessage) string {
	text := quotedYAML(path[0]) + ": " + flowYAML(nested(path[1:], value))
	end := y.offset(m.End.Position)
	last := len(strings.TrimRight(y.text[:end], " \n"))
	if y.hasComment(last-1, end) {
		last = end
	}
	switch y.text[last-1] {
	case '{':
	case ',':
		text = " " + text
	default:
		text = ", " + text
	}
	return y.splice(last, last, text)
}

// hasComment reports whether a comment overlaps two offsets.
func (y *yamlText) hasComment(from, to int) bool {
	return slices.ContainsFunc(y.comments, func(tk *token.Token) bool {
		return y.offset(tk.Position) < to && y.starts[tk.Position.Line] > from
	})
}

// remove removes an entry with the comments directly above it and one empty line beside it.
func (y *yamlText) remove(m *ast.MappingNode, i, limit int) string {
	v := m.Values[i]
	at := keyPlace(v)
	from, to := y.lead(v), y.behind(at.Line, at.Column, limit)
	switch isFirst := i == 0 && len(m.Values) > 1 && !y.isBlank(from-1); {
	case y.isBlank(to) && (isFirst || y.isBlank(from-1)):
		to++
	case to == len(y.starts) && y.isBlank(from-1):
		from--
	}
	return y.splice(y.starts[from-1], y.starts[to-1], "")
}

// removeFromBraces removes an entry with its comma, unless a comment stands beside it.
func (y *yamlText) removeFromBraces(m *ast.MappingNode, i int) (string, bool) {
	from, to := y.offset(keyPlace(m.Values[i])), y.offset(m.End.Position)
	switch {
	case i+1 < len(m.Values):
		to = y.offset(keyPlace(m.Values[i+1]))
	case i == 0:
		from = y.offset(m.Start.Position) + 1
	default:
		from = strings.LastIndexByte(y.text[:from], ',')
		to = len(strings.TrimRight(y.text[:to], " \n"))
	}
	if from < 0 || y.hasComment(from, to) {
		return "", false
	}
	return y.splice(from, to, ""), true
}

// replace replaces a plain or quoted value on one line.
func (y *yamlText) replace(was ast.Node, value json.RawMessage) (string, bool) {
	tk := was.GetToken()
	text := strings.TrimSpace(tk.Origin)
	from := y.offset(tk.Position)
	if _, isScalar := was.(ast.ScalarNode); !isScalar || text == "" || !strings.HasPrefix(y.text[from:], text) {
		return "", false
	}
	return y.splice(from, from+len(text), flowYAML(value)), true
}

// fill writes the first entry under a key with no value or empty braces.
func (y *yamlText) fill(v *ast.MappingValueNode, path []string, value json.RawMessage, limit int) string {
	at := keyPlace(v)
	line := y.behind(at.Line, at.Column, limit)
	begin := y.starts[line-1]
	text := block(path, value, strings.Repeat(" ", at.Column-1)+y.unit, y.unit)
	from, to := begin, begin
	if below := mappingOf(v.Value); below != nil {
		from, to = y.offset(below.Start.Position), y.offset(below.End.Position)+1
	} else if tk := v.Value.GetToken(); tk.Type == token.NullType {
		from = y.offset(tk.Position)
		to = from + len(strings.TrimSpace(tk.Origin))
	}
	before, between := y.text[:from], y.text[to:begin]
	if from < begin {
		before = strings.TrimRight(before, " ")
	}
	return before + between + text + y.text[begin:]
}

// yamlKey returns the text of a key.
func yamlKey(key ast.MapKeyNode) string {
	if s, ok := key.(*ast.StringNode); ok {
		return s.Value
	}
	return key.GetToken().Value
}
