package pins

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Change is one different field.
type Change struct {
	Field string // "description", "inputSchema.properties.path.description"
	// Before and After are the values of the field, nil if it is missing. Definitions and instructions are JSON.
	Before, After json.RawMessage
}

// Changes returns the fields that differ from the approved definition, or all fields of a new definition, sorted by
// name.
func (h Held) Changes() []Change {
	if h.ID.Kind == tool.KindInstructions {
		change := Change{Field: string(tool.KindInstructions), After: rawjson.Quote(string(h.Raw))}
		if h.Approved != nil {
			change.Before = rawjson.Quote(string(h.Approved))
		}
		return []Change{change}
	}
	var approved json.RawMessage
	if h.Approved != nil {
		approved = Canonical(h.ID.Kind, byFile(h.ID.Kind, h.Approved))
	}
	return changes(nil, nil, approved, Canonical(h.ID.Kind, byFile(h.ID.Kind, h.Raw)))
}

// byFile returns the definition of a skill with an object of its files instead of a list, so that each file is a field.
func byFile(kind tool.Kind, raw json.RawMessage) json.RawMessage {
	files := rawjson.Member(raw, "resources")
	if kind != tool.KindSkill || len(files) == 0 || files[0] != '[' {
		return raw
	}
	root := strings.TrimSuffix(rawjson.Text(rawjson.Member(raw, "uri")), tool.SkillFile) + "/"
	out := rawjson.NewObject(len(files))
	for file := range rawjson.Elements(files) {
		path := strings.TrimPrefix(rawjson.Text(rawjson.Member(file, "uri")), root)
		out.AddText(path, fmt.Sprintf("%s bytes, %s", rawjson.Member(file, "size"), rawjson.Text(rawjson.Member(file, "digest"))))
	}
	if set, err := rawjson.Set(raw, "resources", out.JSON()); err == nil {
		return set
	}
	return raw
}

// changes appends the differences of two canonical values at a path.
func changes(to []Change, path []string, before, after json.RawMessage) []Change {
	switch {
	case string(before) == string(after):
		return to
	case len(path) > 0 && (!rawjson.IsObject(before) || !rawjson.IsObject(after)):
		return append(to, Change{strings.Join(path, "."), before, after})
	}
	was, is := membersOf(before), membersOf(after)
	var names []string
	for name := range was {
		names = append(names, name)
	}
	for name := range is {
		if was[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		to = changes(to, append(slices.Clone(path), Visible(name)), was[name], is[name])
	}
	return to
}

func membersOf(object json.RawMessage) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	for name, value := range rawjson.Members(object) {
		members[name] = value
	}
	return members
}

// Visible returns text as one line. An escape such as \u{e0041} replaces each invisible or terminal-controlling
// character.
func Visible(text string) string {
	if !strings.ContainsFunc(text, odd) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case odd(r):
			fmt.Fprintf(&out, `\u{%x}`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

func odd(r rune) bool { return printable.Hidden(r) || r == utf8.RuneError }

// Piece is a run of words of a changed text.
type Piece struct {
	Sign byte // '-' removed, '+' added, ' ' unchanged
	Text string
}

// Bounds of the comparison by word, and of the unchanged words around changes.
const (
	maxWords = 4000
	around   = 8
)

// Words shows the changes word by word, with some unchanged words around them, and all characters visible. A value
// that is no text is compared as JSON.
func (c Change) Words() []Piece {
	before, after := words(c.Before), words(c.After)
	start := 0
	for start < len(before) && start < len(after) && before[start] == after[start] {
		start++
	}
	end := 0
	for end < len(before)-start && end < len(after)-start && before[len(before)-1-end] == after[len(after)-1-end] {
		end++
	}
	var pieces []Piece
	add := func(sign byte, words ...string) {
		for _, word := range words {
			if n := len(pieces); n > 0 && pieces[n-1].Sign == sign {
				pieces[n-1].Text += " " + word
			} else {
				pieces = append(pieces, Piece{sign, word})
			}
		}
	}
	add(' ', before[:start]...)
	compare(before[start:len(before)-end], after[start:len(after)-end], add)
	add(' ', before[len(before)-end:]...)
	for i := range pieces {
		if pieces[i].Sign == ' ' {
			pieces[i].Text = cut(pieces[i].Text, i > 0, i < len(pieces)-1)
		}
	}
	return pieces
}

// words returns the words of a text, or of the JSON of another value.
func words(value json.RawMessage) []string {
	text := string(value)
	if len(value) > 0 && value[0] == '"' {
		text = rawjson.Text(value)
	}
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\n' || r == '\t' || r == '\r' })
	for i, word := range fields {
		fields[i] = Visible(word)
	}
	return fields
}

// compare appends the differences of two lists of words: by their longest common subsequence, unless the lists are
// too long.
func compare(before, after []string, add func(sign byte, words ...string)) {
	if len(before) > maxWords || len(after) > maxWords || len(before)*len(after) > maxWords*maxWords/4 {
		add('-', before...)
		add('+', after...)
		return
	}
	// common[i][j] is the length of the subsequence for before[i:] and after[j:].
	common := make([][]int32, len(before)+1)
	for i := range common {
		common[i] = make([]int32, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			if before[i] == after[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		switch {
		case i < len(before) && j < len(after) && before[i] == after[j]:
			add(' ', before[i])
			i, j = i+1, j+1
		case j == len(after) || i < len(before) && common[i+1][j] >= common[i][j+1]:
			add('-', before[i])
			i++
		default:
			add('+', after[j])
			j++
		}
	}
}

// cut shortens unchanged text to the words beside a change.
func cut(text string, before, after bool) string {
	all := strings.Fields(text)
	head, tail := 0, 0
	if before {
		head = around
	}
	if after {
		tail = around
	}
	if len(all) <= head+tail+1 {
		return text
	}
	return strings.TrimSpace(strings.Join(all[:head], " ") + " … " + strings.Join(all[len(all)-tail:], " "))
}
