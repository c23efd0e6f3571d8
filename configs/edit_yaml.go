package configs

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// yamlText is a YAML document as lines, to be edited at the places that the
// parser knows. What comes out is checked by the caller: the parser's places are
// another's code.
type yamlText struct {
	lines   []string // with their line ends
	newline string
	unit    int // columns of one step of indentation
}

// editYAML sets the value at path, or removes it when value is nil. Only
// mappings on the way that stand there plainly are touched.
func editYAML(data []byte, path []string, value *node) ([]byte, error) {
	t := &yamlText{newline: "\n", unit: 2}
	bom := []byte("\ufeff")
	rest, hasBOM := bytes.CutPrefix(data, bom)
	for line := range bytes.Lines(rest) {
		t.lines = append(t.lines, string(line))
	}
	ends := bytes.Count(rest, []byte("\r\n"))
	if ends > 0 {
		t.newline = "\r\n"
	}
	if bytes.Count(rest, []byte("\r")) > ends { // the parser sees more lines than there are here
		return nil, errByHand
	}
	if err := t.edit(rest, path, value); err != nil {
		return nil, err
	}
	out := []byte(strings.Join(t.lines, ""))
	if hasBOM {
		out = append(slices.Clone(bom), out...)
	}
	return out, nil
}

func (t *yamlText) edit(data []byte, path []string, value *node) error {
	if isBlank(data) {
		t.insert(len(t.lines), t.block(path[0], wrap(value, path[1:]), 0), len(t.lines) > 0)
		return nil
	}
	clean, bad := cleanText(data)
	if bad == nil {
		var m *yamlMapping
		if m, bad = yamlRoot(clean, len(t.lines)); bad == nil && m != nil {
			t.unit = m.unit()
			return t.walk(m, path, value)
		}
	}
	return errByHand
}

// walk goes down the path as far as it leads.
func (t *yamlText) walk(m *yamlMapping, path []string, value *node) error {
	i := slices.IndexFunc(m.entries, func(e yamlEntry) bool { return e.key == path[0] })
	switch {
	case i < 0 && value == nil:
		return errByHand // it is there only by << or an alias
	case i < 0:
		return t.put(m, path[0], wrap(value, path[1:]))
	case !m.flow && !t.isAt(m.entries[i]):
		return errByHand
	case len(path) == 1 && value == nil && m.flow:
		return t.removeFlow(m, i)
	case len(path) == 1 && value == nil:
		t.removeBlock(m, i)
		return nil
	case len(path) == 1:
		return t.replace(m.entries[i].value, value)
	}
	e := m.entries[i]
	if null, ok := e.value.(*ast.NullNode); ok {
		return t.fill(m, e, null, wrap(value, path[1:]))
	}
	below := newYAMLMapping(e.value, m.limitOf(i))
	if below == nil {
		return errByHand
	}
	if below.flow && len(below.entries) == 0 && !m.flow && t.cutEmpty(e, below) {
		t.under(e, wrap(value, path[1:]))
		return nil
	}
	return t.walk(below, path[1:], value)
}

// wrap is value under the rest of a path.
func wrap(value *node, path []string) *node {
	for _, key := range slices.Backward(path) {
		m := &node{kind: kindMapping}
		m.add(key, value)
		value = m
	}
	return value
}

// yamlMapping is a mapping as it stands in the text.
type yamlMapping struct {
	flow       bool
	start, end *token.Token // its braces, when flow
	entries    []yamlEntry
	limit      int // first line behind it, counted from 1; comments and empty lines before that may be another's
}

type yamlEntry struct {
	key          string
	token        *token.Token
	line, column int // of the key, from 1
	value        ast.Node
}

// yamlRoot returns the outermost mapping; nil when there is none.
func yamlRoot(clean []byte, lines int) (*yamlMapping, *problem) {
	file, bad := yamlFile(clean)
	if bad != nil {
		return nil, bad
	}
	for _, doc := range file.Docs {
		if _, ok := doc.Body.(*ast.DirectiveNode); ok || doc.Body == nil {
			continue
		}
		limit := lines + 1
		if doc.End != nil {
			limit, _ = tokenPlace(doc.End)
		}
		return newYAMLMapping(doc.Body, limit), nil
	}
	return nil, nil
}

// newYAMLMapping returns nil for what is no mapping.
func newYAMLMapping(from ast.Node, limit int) *yamlMapping {
	m := &yamlMapping{limit: limit}
	var values []*ast.MappingValueNode
	switch v := from.(type) {
	case *ast.AnchorNode:
		return newYAMLMapping(v.Value, limit)
	case *ast.TagNode:
		return newYAMLMapping(v.Value, limit)
	case *ast.MappingNode:
		m.flow, m.start, m.end, values = v.IsFlowStyle, v.Start, v.End, v.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{v}
	default:
		return nil
	}
	b := &yamlBuilder{anchors: map[string]*node{}}
	for _, v := range values {
		if v.Key.IsMergeKey() {
			m.entries = append(m.entries, newYAMLEntry("", v))
			continue
		}
		if k := b.key(v.Key); k != nil {
			m.entries = append(m.entries, newYAMLEntry(k.text, v))
		}
	}
	return m
}

func newYAMLEntry(key string, v *ast.MappingValueNode) yamlEntry {
	e := yamlEntry{key: key, token: v.Key.GetToken(), value: v.Value}
	e.line, e.column = tokenPlace(e.token)
	return e
}

// limitOf is the first line behind the entry.
func (m *yamlMapping) limitOf(i int) int {
	if i+1 < len(m.entries) {
		return m.entries[i+1].line
	}
	return m.limit
}

// unit is one step of indentation: that of the first mapping in this one.
func (m *yamlMapping) unit() int {
	for _, e := range m.entries {
		if below := newYAMLMapping(e.value, 0); below != nil && !below.flow && len(below.entries) > 0 && below.entries[0].column > e.column {
			return below.entries[0].column - e.column
		}
	}
	return 2
}

// isAt reports whether the entry begins its line: it is what all else here
// counts on.
func (t *yamlText) isAt(e yamlEntry) bool {
	return e.line <= len(t.lines) && len(t.lines[e.line-1]) >= e.column && strings.Trim(t.lines[e.line-1][:e.column-1], " ") == ""
}

// insert puts lines before the line with the index, after an empty one if asked.
func (t *yamlText) insert(at int, lines []string, apart bool) {
	if at > 0 && !strings.HasSuffix(t.lines[at-1], "\n") {
		t.lines[at-1] += t.newline
	}
	if apart && at > 0 && strings.TrimSpace(t.lines[at-1]) != "" {
		lines = append([]string{t.newline}, lines...)
	}
	t.lines = slices.Insert(t.lines, at, lines...)
}

// put adds an entry to a mapping.
func (t *yamlText) put(m *yamlMapping, key string, value *node) error {
	if m.flow {
		return t.putFlow(m, key, value)
	}
	last := m.entries[len(m.entries)-1]
	if !t.isAt(last) {
		return errByHand
	}
	indent := last.column - 1
	end, comment := t.contentEnd(last.line-1, m.limit-1, indent)
	apart := indent == 0 || comment || len(m.entries) > 1 && t.isApart(last)
	t.insert(end, t.block(key, value, indent), apart && len(value.pairs) > 0)
	return nil
}

// contentEnd returns the index of the line behind what belongs to the mapping
// whose entries are indented so, of which the last begins on line first: its
// content, and comments behind that as far as they are indented as much. comment
// reports that it ends with a comment that is none of the last entry's.
func (t *yamlText) contentEnd(first, limit, indent int) (end int, comment bool) {
	limit = min(limit, len(t.lines))
	end = limit
	for end > first+1 && isBlankOrComment(t.lines[end-1]) {
		end--
	}
	for i := end; i < limit; i++ {
		if strings.TrimSpace(t.lines[i]) == "" {
			continue
		}
		depth := indentation(t.lines[i])
		if depth < indent {
			break
		}
		end, comment = i+1, depth == indent
	}
	return end, comment
}

func isBlankOrComment(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

func isComment(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") }

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// head is the index of the first line of the entry, which is that of the first
// comment directly above it.
func (t *yamlText) head(e yamlEntry) int {
	head := e.line - 1
	for head > 0 && isComment(t.lines[head-1]) && indentation(t.lines[head-1]) == e.column-1 {
		head--
	}
	return head
}

// isApart reports whether an empty line stands before the entry.
func (t *yamlText) isApart(e yamlEntry) bool {
	head := t.head(e)
	return head > 0 && strings.TrimSpace(t.lines[head-1]) == ""
}

// removeBlock takes out an entry, the comments directly above it, and the empty
// line that kept it apart.
func (t *yamlText) removeBlock(m *yamlMapping, i int) {
	e := m.entries[i]
	head := t.head(e)
	// Comments behind it that are indented more are its own.
	end, _ := t.contentEnd(e.line-1, m.limitOf(i)-1, e.column)
	blankAfter := end < len(t.lines) && strings.TrimSpace(t.lines[end]) == ""
	switch {
	case i > 0 && t.isApart(e):
		head--
	case i == 0 && len(m.entries) > 1 && blankAfter:
		end++
	}
	t.lines = slices.Delete(t.lines, head, end)
}

// fill gives a value to a key that has none.
func (t *yamlText) fill(m *yamlMapping, e yamlEntry, null *ast.NullNode, value *node) error {
	if m.flow || !t.isAt(e) {
		return errByHand
	}
	if word := null.GetToken(); word.Type == token.NullType && word.Value != "" && word.Position.Line == e.line {
		if at := t.column(word); at >= e.column && strings.HasPrefix(t.lines[e.line-1][at:], word.Value) {
			line := t.lines[e.line-1]
			t.lines[e.line-1] = strings.TrimRight(line[:at], " ") + line[at+len(word.Value):]
		}
	}
	t.under(e, value)
	return nil
}

// under writes the value's entries on the lines below a key.
func (t *yamlText) under(e yamlEntry, value *node) {
	var lines []string
	for _, p := range value.pairs {
		lines = append(lines, t.block(p.key.text, p.value, e.column-1+t.unit)...)
	}
	t.insert(e.line, lines, false)
}

// cutEmpty takes {} from behind a key, when it ends the line.
func (t *yamlText) cutEmpty(e yamlEntry, m *yamlMapping) bool {
	if !t.isAt(e) || m.start == nil || m.end == nil || m.start.Position.Line != e.line || m.end.Position.Line != e.line {
		return false
	}
	line, from, to := t.lines[e.line-1], t.column(m.start), t.column(m.end)
	if from < 0 || to < from || line[from] != '{' || line[to] != '}' || !isBlankOrComment(line[to+1:]) {
		return false
	}
	t.lines[e.line-1] = strings.TrimRight(line[:from], " ") + line[to+1:]
	return true
}

// replace puts a plain value in the place of one.
func (t *yamlText) replace(was ast.Node, value *node) error {
	if _, ok := was.(ast.ScalarNode); !ok {
		return errByHand
	}
	tk := was.GetToken()
	at := t.column(tk)
	if at < 0 {
		return errByHand
	}
	line := t.lines[tk.Position.Line-1]
	length := len(tk.Value)
	if q := line[at]; q == '"' || q == '\'' {
		closing := strings.IndexByte(line[at+1:], q)
		if closing < 0 {
			return errByHand
		}
		length = closing + 2
	} else if length == 0 || !strings.HasPrefix(line[at:], tk.Value) {
		return errByHand
	}
	t.lines[tk.Position.Line-1] = line[:at] + flow(value) + line[at+length:]
	return nil
}

// column is the byte in its line at which a token begins, -1 where that is not.
func (t *yamlText) column(tk *token.Token) int {
	line, column := tokenPlace(tk)
	if line > len(t.lines) {
		return -1
	}
	n := 0
	for i := range t.lines[line-1] {
		if n++; n == column {
			return i
		}
	}
	return -1
}

// putFlow adds an entry to a mapping in braces: at its end when it is on one
// line, else as the first, where no comma depends on what is around.
func (t *yamlText) putFlow(m *yamlMapping, key string, value *node) error {
	from, to := t.column(m.start), t.column(m.end)
	if from < 0 || to < 0 {
		return errByHand
	}
	first, last := m.start.Position.Line-1, m.end.Position.Line-1
	text := quotedYAML(key) + ": " + flow(value)
	line := t.lines[first]
	switch {
	case line[from] != '{' || t.lines[last][to] != '}':
		return errByHand
	case len(m.entries) == 0:
		text = line[:from+1] + text + t.lines[first][from+1:]
	case first != last:
		text = line[:from+1] + text + "," + line[from+1:]
	default:
		inside := strings.TrimRight(line[from+1:to], " ")
		space := line[from+1+len(inside) : to]
		text = line[:from+1] + strings.TrimSuffix(inside, ",") + ", " + text + space + line[to:]
	}
	t.lines[first] = text
	return nil
}

// removeFlow takes an entry out of a mapping in braces.
func (t *yamlText) removeFlow(m *yamlMapping, i int) error {
	from, to := m.entries[i].token, m.end
	keep := 0 // bytes of from to leave
	switch {
	case i+1 < len(m.entries):
		to = m.entries[i+1].token
	case i > 0: // with the comma before
		for from = from.Prev; from != nil && from.Type != token.CollectEntryType; from = from.Prev {
		}
	default:
		from, keep = m.start, 1
	}
	if from == nil || to == nil {
		return errByHand
	}
	a, b := t.column(from), t.column(to)
	first, last := from.Position.Line-1, to.Position.Line-1
	if a < 0 || b < 0 || first > last || first == last && a+keep > b {
		return errByHand
	}
	if to == m.end && i > 0 && first == last { // the space before the brace stays
		inside := strings.TrimRight(t.lines[last][:b], " ")
		b = max(len(inside), a)
	}
	t.lines[first] = t.lines[first][:a+keep] + t.lines[last][b:]
	t.lines = slices.Delete(t.lines, first+1, last+1)
	return nil
}

// block is a key and its value on lines of their own.
func (t *yamlText) block(key string, value *node, indent int) []string {
	begin := strings.Repeat(" ", indent) + quotedYAML(key) + ":"
	if value.kind != kindMapping || len(value.pairs) == 0 {
		return []string{begin + " " + flow(value) + t.newline}
	}
	lines := []string{begin + t.newline}
	for _, p := range value.pairs {
		lines = append(lines, t.block(p.key.text, p.value, indent+t.unit)...)
	}
	return lines
}

// flow is a value on one line.
func flow(n *node) string {
	var parts []string
	switch n.kind {
	case kindText:
		return quotedYAML(n.text)
	case kindList:
		for _, item := range n.items {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case kindMapping:
		for _, p := range n.pairs {
			parts = append(parts, quotedYAML(p.key.text)+": "+flow(p.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return n.text
}

// plainText is text that YAML takes as such without quotes, in and outside of
// brackets. There is more of it than that.
var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./@+-]*[A-Za-z0-9_/]$|^[A-Za-z]$`)

// notText are words that are something else without quotes, in some version of
// YAML.
var notText = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}

func quotedYAML(s string) string {
	if plainText.MatchString(s) && !slices.Contains(notText, strings.ToLower(s)) {
		return s
	}
	words := strings.Fields(s)
	simple := len(words) > 1 && strings.Join(words, " ") == s && len(s) < 200
	for _, word := range words {
		simple = simple && plainWord.MatchString(word)
	}
	if simple {
		return s
	}
	return quoted(s)
}

// plainWord is a word of a sentence that needs no quotes.
var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// quoted is s in double quotes: as JSON has it, YAML has it too. What cannot be
// seen is written by number.
func quoted(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // it is a text: that cannot fail
	const hex = "0123456789abcdef"
	var out strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		if unicode.IsPrint(r) || r > 0xffff {
			out.WriteRune(r)
			continue
		}
		out.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			out.WriteByte(hex[r>>shift&15])
		}
	}
	return out.String()
}
