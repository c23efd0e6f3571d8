package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// textOf is the readable text of a result: of its text blocks and embedded text resources, joined by
// line breaks, else the structured content as indented JSON.
func textOf(result tool.Result) string {
	var texts []string
	for block := range rawjson.Elements(rawjson.Member(result, "content")) {
		if text, ok := blockText(block); ok {
			texts = append(texts, text)
		}
	}
	if texts != nil {
		return strings.Join(texts, "\n")
	}
	var indented bytes.Buffer
	if json.Indent(&indented, structured(result), "", "  ") != nil {
		return ""
	}
	return indented.String()
}

// blockText is the text of a content block or its embedded resource.
func blockText(block json.RawMessage) (text string, ok bool) {
	switch rawjson.Text(rawjson.Member(block, "type")) {
	case "text":
	case "resource":
		block = rawjson.Member(block, "resource")
	default:
		return "", false
	}
	raw := rawjson.Member(block, "text")
	return rawjson.Text(raw), raw != nil
}

// structured is the structured content of a result, or nil.
func structured(result tool.Result) json.RawMessage {
	content := rawjson.Member(result, "structuredContent")
	if string(content) == "null" {
		return nil
	}
	return content
}

// cut returns how many of n bytes of text to show: up to a line end in the second half, else up to a
// rune end that keeps CR LF together. It is never 0, unless text is empty.
func cut(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	if n > 0 {
		if line := strings.LastIndexByte(text[:n], '\n') + 1; line > n/2 {
			return line
		}
	}
	end := border(text, n)
	if end == 0 { // one whole rune, or CR LF
		for end = 1; end < len(text) && border(text, end) < end; end++ {
		}
	}
	return end
}

// border is the last possible cut of text up to n.
func border(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	n = max(n, 0)
	for back := 0; n > 0 && !utf8.RuneStart(text[n]) && back < utf8.UTFMax; back++ {
		n--
	}
	if n > 0 && text[n] == '\n' && text[n-1] == '\r' {
		n--
	}
	return n
}

// countLines counts lines; a line break at the end begins none.
func countLines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// lineOffset is the beginning of a line, counted from 1; len(text) past the last line.
func lineOffset(text string, line int) int {
	at := 0
	for ; line > 1; line-- {
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			return len(text)
		}
		at += next + 1
	}
	return at
}
