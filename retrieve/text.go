package retrieve

import (
	"encoding/json"
	"strings"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// FirstSentence returns the first sentence or line of a description, at most
// 200 bytes of it.
func FirstSentence(description string) string {
	s := strings.TrimSpace(description)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = strings.TrimSpace(s[:i])
	}
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i+1]
	}
	return rawjson.Clip(s, 200)
}

// clipWords cuts text to at most n bytes, including the mark of the cut, between two
// words if it has any.
func clipWords(text string, n int) string {
	const mark = "..."
	if len(text) <= n {
		return text
	}
	text = text[:n-len(mark)+1]
	if space := strings.LastIndexAny(text, " \t\r\n"); space > 0 {
		return strings.TrimRight(text[:space], " \t\r\n") + mark
	}
	return strings.ToValidUTF8(text[:len(text)-1], "") + mark
}

// literal is a JSON value on one line, which says the same.
func literal(value json.RawMessage) string { return string(printable.JSON(rawjson.OneLine(value))) }

// exact is a name as it must be sent: as JSON where it has what a line does not show.
func exact(name string) string {
	if printable.Line(name) == name {
		return name
	}
	return literal(rawjson.Quote(name))
}

// maxAnswer is how many bytes of hits are answered. Codex cuts what has more in the
// middle.
const maxAnswer = 10_000

// maxHit is how many bytes of parameters the best hit may have all the same. One of 1,135
// real tools needs 27,000.
const maxHit = 3 * maxAnswer
