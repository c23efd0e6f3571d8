package retrieve

import (
	"encoding/json"
	"strings"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// FirstSentence returns the first sentence or line of a description, at most 200 bytes.
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

// Sentence is FirstSentence with a mark at its end; "" for none.
func Sentence(description string) string {
	s := FirstSentence(description)
	if s != "" && !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}

// clipWords cuts text to at most n bytes, including the mark of the cut, between two words if possible.
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

// literal returns a JSON value on one line, unchanged in meaning.
func literal(value json.RawMessage) string { return string(printable.JSON(rawjson.OneLine(value))) }

// exact returns a name as it must be sent: as JSON if it has characters that a line does not show.
func exact(name string) string {
	if printable.Line(name) == name {
		return name
	}
	return literal(rawjson.Quote(name))
}

// maxAnswer bounds the bytes of hits in an answer: Codex cuts a longer answer in the middle.
const maxAnswer = 10_000

// maxHit bounds the parameters of the best hit, in bytes. One of 1,135 real tools needs 27,000.
const maxHit = 3 * maxAnswer

func textBlock(text string) json.RawMessage {
	var block rawjson.Object
	block.AddText("type", "text")
	block.AddText("text", text)
	return block.JSON()
}
