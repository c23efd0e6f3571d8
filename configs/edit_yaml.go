package configs

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"toolfinch/rawjson"
)

// editYAML sets the value at path in the tree of the document, or removes it when
// value is nil, and returns the documents that this may make, the best one first. The
// caller checks them: printing a tree does not always give back what was read.
func editYAML(data []byte, path []string, value json.RawMessage) (candidates [][]byte) {
	defer func() {
		if recover() != nil { // another's code, over any input at all
			candidates = nil
		}
	}()
	rest, hasBOM := strings.CutPrefix(string(data), "\ufeff")
	text := strings.ReplaceAll(rest, "\r\n", "\n")
	file, err := parser.ParseBytes([]byte(text), parser.ParseComments, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil
	}
	var out []string
	was := file.String()
	switch root := yamlRoot(file); {
	case root != nil:
		e := yamlEdit{lines: strings.Split(text, "\n"), unit: stepOf(root)}
		if !e.change(root, path, value, true) {
			return nil
		}
		out = rebased(text, was, file.String())
	case isBlank(data) && value != nil:
		if text != "" {
			text = strings.TrimRight(text, "\n") + "\n\n"
		}
		out = []string{text + strings.Join(yamlLines(path, value, "", "  "), "\n") + "\n"}
	}
	for _, text := range out {
		if strings.Contains(rest, "\r\n") {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		if hasBOM {
			text = "\ufeff" + text
		}
		candidates = append(candidates, []byte(text))
	}
	return candidates
}

// rebased applies the difference between two prints of a tree to the text that the
// tree was read from. If printing changed the number of lines, the change is before the
// edited place or behind it, so both are returned. The last candidate is the print
// itself, if it has all comments.
func rebased(text, was, is string) []string {
	body := strings.TrimRight(text, "\n")
	end := text[len(body):]
	old := strings.Split(body, "\n")
	a := strings.Split(strings.TrimRight(was, "\n"), "\n")
	b := strings.Split(strings.TrimRight(is, "\n"), "\n")
	from, to := 0, 0
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	for to < min(len(a), len(b))-from && a[len(a)-1-to] == b[len(b)-1-to] {
		to++
	}
	if end == "" {
		end = "\n"
	}
	var out []string
	for _, shift := range []int{0, len(old) - len(a)} {
		if begin, behind := from+shift, len(a)-to+shift; begin >= 0 && behind <= len(old) {
			lines := slices.Concat(old[:begin], b[from:len(b)-to], old[behind:])
			out = append(out, strings.Join(lines, "\n")+end)
		}
	}
	if strings.Count(was, "#") == strings.Count(text, "#") {
		out = append(out, strings.Join(b, "\n")+end)
	}
	return out
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

func columnOf(v *ast.MappingValueNode) int { return v.Key.GetToken().Position.Column }

// stepOf is one step of indentation: that of the first mapping below m.
func stepOf(m *ast.MappingNode) string {
	for _, v := range m.Values {
		if below := mappingOf(v.Value); below != nil && !below.IsFlowStyle && len(below.Values) > 0 && columnOf(below.Values[0]) > columnOf(v) {
			return strings.Repeat(" ", columnOf(below.Values[0])-columnOf(v))
		}
	}
	return "  "
}

// yamlEdit is one edit of a tree.
type yamlEdit struct {
	lines []string // of the document
	unit  string   // one step of indentation
}

// change sets or removes the value at path below m, and reports whether it could.
func (e yamlEdit) change(m *ast.MappingNode, path []string, value json.RawMessage, root bool) bool {
	i := slices.IndexFunc(m.Values, func(v *ast.MappingValueNode) bool { return yamlKey(v.Key) == path[0] })
	switch {
	case i < 0 && value == nil:
		return false // it is there only by << or an alias
	case i < 0:
		last := m.Values[len(m.Values)-1]
		apart := !m.IsFlowStyle && (root || last.FootComment != nil || len(m.Values) > 1 && e.isApart(last)) && (len(path) > 1 || value[0] == '{')
		added := e.parse(path, value, m.IsFlowStyle, apart, columnOf(last)-1)
		m.Values = append(m.Values, added...)
		return added != nil
	case len(path) == 1 && value == nil:
		return remove(m, i, root)
	}
	v := m.Values[i]
	below := mappingOf(v.Value)
	_, scalar := v.Value.(ast.ScalarNode)
	switch {
	case len(path) == 1 && !scalar:
		return false
	case len(path) == 1:
		comment := v.Value.GetComment()
		added := e.parse(path, value, true, false, 0)
		if added == nil || v.Replace(added[0].Value) != nil {
			return false
		}
		return comment == nil || v.Value.SetComment(comment) == nil
	case below != nil && len(below.Values) > 0:
		ok := e.change(below, path[1:], value, false)
		if len(below.Values) == 0 && !below.IsFlowStyle {
			key := v.Key.GetToken()
			v.Value = ast.Null(&token.Token{Type: token.ImplicitNullType, Position: key.Position, Prev: key})
		}
		return ok
	case below == nil && v.Value.Type() != ast.NullType:
		return false
	}
	// Nothing is there yet.
	added := e.parse(path[1:], value, m.IsFlowStyle, false, columnOf(v)-1+len(e.unit))
	if added == nil {
		return false
	}
	comment := v.Value.GetComment()
	filled := ast.Mapping(added[0].Start, m.IsFlowStyle, added...)
	v.Value = filled
	return comment == nil || v.Key.SetComment(comment) == nil
}

// remove removes an entry and the comments directly above it. Comments that an empty
// line separates from it, and those below it, stay, above the next entry or behind the last. It reports false where
// there is neither.
func remove(m *ast.MappingNode, i int, root bool) bool {
	gone := m.Values[i]
	m.Values = slices.Delete(m.Values, i, i+1)
	var kept []*ast.CommentNode
	if gone.Comment != nil {
		kept = gone.Comment.Comments
		for line := gone.Key.GetToken().Position.Line - 1; len(kept) > 0 && kept[len(kept)-1].Token.Position.Line == line; line-- {
			kept = kept[:len(kept)-1]
		}
	}
	if gone.FootComment != nil {
		for _, comment := range gone.FootComment.Comments {
			if comment.Token.Position.Column <= columnOf(gone) { // else it is within the entry
				kept = append(kept, comment)
			}
		}
	}
	group := func(more *ast.CommentGroupNode) *ast.CommentGroupNode {
		if len(kept) == 0 {
			return more
		}
		if more != nil {
			kept = slices.Concat(kept, more.Comments)
		}
		return &ast.CommentGroupNode{BaseNode: &ast.BaseNode{}, Comments: kept}
	}
	switch {
	case len(m.Values) == 0:
		return len(kept) == 0
	case i == len(m.Values):
		m.Values[i-1].FootComment = group(m.Values[i-1].FootComment)
	case i < len(m.Values):
		next := m.Values[i]
		next.Comment = group(next.Comment)
		if i == 0 && !root { // no empty line below the key
			first := next.Key.GetToken()
			if next.Comment != nil {
				first = next.Comment.Comments[0].Token
			}
			first.Prev = nil
		}
	}
	return true
}

// parse makes entries of a mapping, to stand behind so many columns.
func (e yamlEdit) parse(path []string, value json.RawMessage, flow, apart bool, columns int) []*ast.MappingValueNode {
	text := "{" + quotedYAML(path[0]) + ": " + flowYAML(nested(path[1:], value)) + "}"
	if !flow {
		// An empty line is kept between two entries.
		text = "before: 1\n" + strings.Join(yamlLines(path, value, "", e.unit), "\n")
		if apart {
			text = strings.Replace(text, "\n", "\n\n", 1)
		}
	}
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return nil
	}
	m := yamlRoot(file)
	if !flow {
		m.AddColumn(columns)
		return m.Values[1:]
	}
	return m.Values
}

// isApart reports whether an empty line stands before the entry.
func (e yamlEdit) isApart(v *ast.MappingValueNode) bool {
	line := v.Key.GetToken().Position.Line
	if v.Comment != nil {
		line = v.Comment.Comments[0].Token.Position.Line
	}
	return line > 1 && strings.TrimSpace(e.lines[line-2]) == ""
}

// yamlKey is the text of a key.
func yamlKey(key ast.MapKeyNode) string {
	if s, ok := key.(*ast.StringNode); ok {
		return s.Value
	}
	return key.GetToken().Value
}

// nested is value under the rest of a path.
func nested(path []string, value json.RawMessage) json.RawMessage {
	for _, key := range slices.Backward(path) {
		value = json.RawMessage("{" + quoted(key) + ":" + string(value) + "}")
	}
	return value
}

// yamlLines writes a value under a path: mappings over lines, all else on one.
func yamlLines(path []string, value json.RawMessage, indent, unit string) []string {
	value = nested(path[1:], value)
	begin := indent + quotedYAML(path[0]) + ":"
	if value[0] != '{' || string(value) == "{}" {
		return []string{begin + " " + flowYAML(value)}
	}
	lines := []string{begin}
	for name, v := range rawjson.Members(value) {
		lines = append(lines, yamlLines([]string{name}, v, indent+unit, unit)...)
	}
	return lines
}

// flowYAML is a value on one line.
func flowYAML(value json.RawMessage) string {
	var parts []string
	switch value[0] {
	case '"':
		return quotedYAML(rawjson.Text(value))
	case '[':
		for item := range rawjson.Elements(value) {
			parts = append(parts, flowYAML(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case '{':
		for name, v := range rawjson.Members(value) {
			parts = append(parts, quotedYAML(name)+": "+flowYAML(v))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return string(value)
}

// plainText is text that YAML takes as such without quotes, in and outside of
// brackets: words, sentences of words, durations. There is more of it than that.
var plainText = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./@+-]*[A-Za-z0-9_/]|[A-Za-z]|[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z][A-Za-z0-9_./-]*)+|[0-9]+(ms|[smh]))$`)

// notText are words that are something else without quotes, in some version of
// YAML.
var notText = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}

func quotedYAML(s string) string {
	if len(s) < 200 && plainText.MatchString(s) && !slices.Contains(notText, strings.ToLower(s)) {
		return s
	}
	return quoted(s)
}

// quoted is s in double quotes: as JSON has it, YAML has it too. What cannot be
// seen is written by number.
func quoted(s string) string {
	var out bytes.Buffer
	for _, r := range string(rawjson.Quote(s)) {
		if unicode.IsPrint(r) || r > 0xffff {
			out.WriteRune(r)
			continue
		}
		const hex = "0123456789abcdef"
		out.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			out.WriteByte(hex[r>>shift&15])
		}
	}
	return out.String()
}
