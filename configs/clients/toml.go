package clients

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
)

// tomlBlock is the table of servers.
const tomlBlock = "mcp_servers"

var bom = []byte("\ufeff")

// IsTOML reports whether a path is that of a TOML file.
func IsTOML(path string) bool { return strings.EqualFold(filepath.Ext(path), ".toml") }

// PlainTOML returns the tables of a file, and the lines of its keys: a path has a NUL before
// each key. A problem has none of the library's quotes of the file, which may be secrets.
func PlainTOML(data []byte) (tables map[string]any, lines map[string]int, bad *document.Problem) {
	body := bytes.TrimPrefix(data, bom)
	if err := toml.Unmarshal(body, &tables); err != nil {
		bad = &document.Problem{Line: 1, Column: 1, Message: "not valid TOML"}
		if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
			bad.Line, bad.Column = decode.Position()
		}
		return nil, nil, bad
	}
	lines = map[string]int{}
	table, line, from := "", 1, 0
	var p unstable.Parser
	for p.Reset(body); p.NextExpression(); {
		e := p.Expression()
		at := table
		if e.Kind != unstable.KeyValue {
			at = ""
		}
		for it := e.Key(); it.Next(); {
			to := max(from, int(it.Node().Raw.Offset))
			line, from = line+bytes.Count(body[from:to], []byte("\n")), to
			if at += "\x00" + string(it.Node().Data); lines[at] == 0 {
				lines[at] = line
			}
		}
		if e.Kind != unstable.KeyValue {
			table = at
		}
	}
	return tables, lines, nil
}

// tomlSet writes the server's table in place of its old table, or at the end.
func tomlSet(data []byte, name string, e Entry) ([]byte, error) {
	newline := "\n"
	if bytes.Contains(data, []byte("\r\n")) {
		newline = "\r\n"
	}
	table := []string{fmt.Sprintf("[%s.%s]", tomlBlock, tomlKey(name))}
	if e.URL != "" {
		table = append(table, "url = "+tomlText(e.URL))
	} else {
		table = append(table, "command = "+tomlText(e.Command), "args = "+tomlList(e.Args))
		if len(e.Pass) > 0 {
			table = append(table, "env_vars = "+tomlList(e.Pass))
		}
		var values []string
		for _, name := range slices.Sorted(maps.Keys(e.Values)) {
			values = append(values, tomlKey(name)+" = "+tomlText(e.Values[name]))
		}
		if len(values) > 0 {
			table = append(table, "env = { "+strings.Join(values, ", ")+" }")
		}
	}
	text := strings.Join(table, newline) + newline
	lines, tables := tomlTables(data, name)
	if len(tables) > 0 {
		for _, t := range slices.Backward(tables) {
			lines = slices.Delete(lines, t.from, t.to)
		}
		lines = slices.Insert(lines, tables[0].from, text)
	} else {
		lines = tomlAppend(data, text, newline)
	}
	return tomlChecked(data, lines, name, true)
}

// tomlAppend returns the document with an empty line and text at its end.
func tomlAppend(data []byte, text, newline string) []string {
	before := bytes.TrimRight(data, " \t\r\n")
	if len(bytes.TrimPrefix(before, bom)) == 0 {
		return []string{string(data), text}
	}
	return []string{string(before), newline, newline, text}
}

// tomlPutBack appends the server's tables in was.
func tomlPutBack(data, was []byte, name string) ([]byte, error) {
	lines, tables := tomlTables(was, name)
	var text strings.Builder
	for _, t := range tables {
		text.WriteString(strings.Join(lines[t.from:t.to], ""))
	}
	newline := "\n"
	if bytes.Contains(data, []byte("\r\n")) {
		newline = "\r\n"
	}
	return tomlChecked(data, tomlAppend(data, text.String(), newline), name, true)
}

// tomlRemove removes the server's tables, each with the comments directly above it and one
// empty line.
func tomlRemove(data []byte, name string) ([]byte, error) {
	lines, tables := tomlTables(data, name)
	for _, t := range slices.Backward(tables) {
		for t.from > 0 && strings.HasPrefix(strings.TrimSpace(lines[t.from-1]), "#") {
			t.from--
		}
		if t.from > 0 && strings.TrimSpace(lines[t.from-1]) == "" {
			t.from--
		}
		lines = slices.Delete(lines, t.from, t.to)
	}
	return tomlChecked(data, lines, name, false)
}

// lineSpan is a range of lines.
type lineSpan struct{ from, to int }

// tomlTables returns the lines of the document, and the lines of the server's tables: from
// the header to the last line that is neither empty nor a comment.
func tomlTables(data []byte, name string) (lines []string, tables []lineSpan) {
	headers := map[int]bool{} // by line of a header: whether it is the server's
	var p unstable.Parser
	body := bytes.TrimPrefix(data, bom)
	for p.Reset(body); p.NextExpression(); {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		var key []string
		line := 0
		for it := e.Key(); it.Next(); {
			line = bytes.Count(body[:it.Node().Raw.Offset], []byte("\n"))
			key = append(key, string(it.Node().Data))
		}
		headers[line] = len(key) >= 2 && key[0] == tomlBlock && key[1] == name
	}
	ours := false
	for line := range strings.Lines(string(data)) {
		if is, header := headers[len(lines)]; header {
			if ours = is; ours {
				tables = append(tables, lineSpan{from: len(lines)})
			}
		}
		lines = append(lines, line)
		if text := strings.TrimSpace(line); ours && text != "" && text[0] != '#' {
			tables[len(tables)-1].to = len(lines)
		}
	}
	return lines, tables
}

// tomlChecked returns the lines as a document, if only the server differs from before and
// its presence is has.
func tomlChecked(before []byte, lines []string, name string, has bool) ([]byte, error) {
	after := []byte(strings.Join(lines, ""))
	a, _, bad := PlainTOML(before)
	if bad != nil {
		return nil, bad
	}
	b, _, bad := PlainTOML(after)
	servers, _ := b[tomlBlock].(map[string]any)
	if _, got := servers[name]; bad != nil || got != has || !document.SameBut(a, b, []string{tomlBlock, name}) {
		return nil, document.ErrByHand
	}
	return after, nil
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// tomlKey writes a key, in quotes if necessary.
func tomlKey(name string) string {
	if bareKey.MatchString(name) {
		return name
	}
	return tomlText(name)
}

func tomlList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = tomlText(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// tomlText writes a basic string: TOML has the escapes of JSON, and one character more.
func tomlText(s string) string {
	return strings.ReplaceAll(string(rawjson.Quote(s)), "\x7f", `\u007F`)
}
