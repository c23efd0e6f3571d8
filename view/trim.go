package view

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// trimmed returns the tool with at most limit bytes of its description; t itself if the description fits, or limit is 0
// or TrimOff. Descriptions of parameters are kept: they are short and necessary for calls.
func trimmed(t *tool.Tool, limit int) *tool.Tool {
	if limit <= 0 || len(t.Def.Description) <= limit {
		return t
	}
	raw := set(t.Def.Raw, "description", rawjson.Quote(trimText(t.Def.Description, limit)))
	next, err := redefine(t, t.Name, raw)
	if err != nil { // cannot happen: a definition stays valid with another description
		return t
	}
	def, trimmed := *next.Def, *next
	def.Whole = t.Def
	trimmed.Def = &def
	return &trimmed
}

// trimText returns the beginning of text in at most limit bytes. It cuts after a sentence, line or paragraph; else after
// a word, or anywhere, and adds … if there is room.
func trimText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	sentence, word := 0, 0
	before := ' '
	for i, r := range text {
		if i > limit {
			break
		}
		switch {
		case strings.ContainsRune("。！？", before), unicode.IsSpace(r) && strings.ContainsRune(".!?", before):
			if !abbreviates(text[:i]) {
				sentence = i
			}
		case r == '\n' && before != ':' && !unicode.IsSpace(before):
			sentence = i
		}
		if unicode.IsSpace(r) && i <= limit-len(ellipsis) {
			word = i
		}
		before = r
	}
	switch {
	case sentence > 0:
		return strings.TrimSpace(text[:sentence])
	case strings.TrimSpace(text[:word]) != "":
		return strings.TrimSpace(text[:word]) + ellipsis
	case limit >= len(ellipsis)+utf8.UTFMax:
		return rawjson.Head(text, limit-len(ellipsis)) + ellipsis
	}
	return rawjson.Head(text, limit)
}

const ellipsis = "…"

// abbreviates reports whether text ends with an abbreviation and its dot.
func abbreviates(text string) bool {
	last := text[strings.LastIndexFunc(strings.TrimSuffix(text, "."), func(r rune) bool { return unicode.IsSpace(r) || r == '(' })+1:]
	switch strings.ToLower(last) {
	case "e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "no.", "incl.", "max.", "min.":
		return true
	}
	return false
}
