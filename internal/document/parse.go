package document

import (
	"bytes"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Parse reads a file and says whether it is JSON. Its name or its first character tells
// JSON; a file that only begins like JSON is read as YAML.
func Parse(name string, data []byte) (root *Node, isJSON bool, problems []Problem) {
	data, bad := cleanText(data)
	if bad != nil {
		return nil, false, []Problem{*bad}
	}
	ext := strings.ToLower(filepath.Ext(name))
	named := ext == ".json" || ext == ".jsonc"
	if begin := bytes.TrimSpace(data)[0]; named || begin == '{' || begin == '/' {
		root, bad := ParseJSON(data)
		if bad == nil {
			return root, true, nil
		}
		if named {
			return nil, true, []Problem{*bad}
		}
	}
	root, problems = parseYAML(data)
	return root, false, problems
}

// IsBlank reports whether a document of YAML has only comments.
func IsBlank(data []byte) bool {
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// cleanText returns the text without byte order mark, with \n for every line end: both
// parsers count lines by \n.
func cleanText(data []byte) ([]byte, *Problem) {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return nil, &Problem{1, 1, "the file is UTF-16", "save it as UTF-8"}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	at := newPlace(data)
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\t' {
			line, column := at.of(i)
			return nil, &Problem{line, column, "not a text file: neither YAML nor JSON", "it must be UTF-8"}
		}
		i += size
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, &Problem{1, 1, Empty, ""}
	}
	return data, nil
}
