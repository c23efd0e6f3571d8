package output

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// maxLabel bounds a note's text about a left-out block, in bytes.
const maxLabel = 200

// maxNamed bounds the left-out blocks that an answer names.
const maxNamed = 10

// shorten makes the short form of a kept result. ok is false if it would not be shorter.
func shorten(result tool.Result, s Settings, token string, expires time.Time) (answer tool.Result, ok bool) {
	content, data := rawjson.Member(result, "content"), structured(result)
	isList := len(content) > 0 && content[0] == '['
	if !json.Valid(result) || content == nil && data == nil || content != nil && !isList {
		return nil, false // not a result of a tool
	}
	keepsData := len(data) < s.MinSize
	blocks, left := stay(content, s.MinSize)
	text := textOf(result)

	shown := cut(text, s.Preview)
	note := noteOf(text, shown, token, expires)
	if data != nil && !keepsData {
		note += fmt.Sprintf(" Structured content (%d bytes) is left out: read it with jq.", len(data))
	}
	for i, block := range left {
		if i == maxNamed {
			note += fmt.Sprintf(" %d more are left out: blocks from %d to %d.", len(left)-i, block.number, left[len(left)-1].number)
			break
		}
		note += fmt.Sprintf(" Left out: %s; read it with block %d.", block.label, block.number)
	}
	if shown > 0 && text[shown-1] != '\n' {
		text = text[:shown] + "\n"
	} else {
		text = text[:shown]
	}

	answer = assemble(result, textBlock(text+"["+note+"]"), blocks, keepsData)
	return answer, len(answer) < len(result)
}

// noteOf says how much of text is shown and how to read the rest.
func noteOf(text string, shown int, token string, expires time.Time) string {
	until := expires.UTC().Truncate(time.Second).Format(time.RFC3339)
	if shown == len(text) {
		return fmt.Sprintf("The whole result is kept until %s, to be read with %s, token %q.", until, Name, token)
	}
	ways := fmt.Sprintf("offset %d, or lines \"from-to\"", shown)
	if looksLikeJSON(text) {
		ways += ", or a jq expression"
	}
	return fmt.Sprintf("This is %d of %d bytes, of %d lines in all. The whole is kept until %s: read on with %s, token %q and %s.",
		shown, len(text), countLines(text), until, Name, token, ways)
}

// assemble returns result with new content, and without structured content unless keepsData.
func assemble(result tool.Result, first json.RawMessage, blocks []json.RawMessage, keepsData bool) tool.Result {
	content := rawjson.Array(append([]json.RawMessage{first}, blocks...))
	var out rawjson.Object
	wrote := false
	for name, value := range rawjson.Members(result) {
		switch {
		case name == "content" && !wrote:
			wrote = true
			out.Add(name, content)
		case name == "content", name == "structuredContent" && !keepsData:
		default:
			out.Add(name, value)
		}
	}
	if !wrote {
		out.Add("content", content)
	}
	return tool.Result(out.JSON())
}

// leftOut is a content block missing in the answer.
type leftOut struct {
	number int // from 1
	label  string
}

// stay divides the blocks without text: the first ones that fit into room bytes stay. A resource's text
// is in the text of the result in both cases.
func stay(content json.RawMessage, room int) (blocks []json.RawMessage, left []leftOut) {
	number := 0
	for block := range rawjson.Elements(content) {
		number++
		kind := rawjson.Text(rawjson.Member(block, "type"))
		if kind == "text" {
			continue
		}
		if len(block) < room {
			room -= len(block)
			blocks = append(blocks, block)
			continue
		}
		left = append(left, leftOut{number, label(kind, block)})
	}
	return blocks, left
}

// label describes a block.
func label(kind string, block json.RawMessage) string {
	of := block
	if kind == "resource" {
		of = rawjson.Member(block, "resource")
	}
	words := []string{kind}
	for _, name := range []string{"uri", "mimeType"} {
		if word := rawjson.Text(rawjson.Member(of, name)); word != "" {
			words = append(words, word)
		}
	}
	text := strings.Join(words, " ")
	return fmt.Sprintf("%s (%d bytes)", text[:border(text, maxLabel)], len(block))
}

func textBlock(text string) json.RawMessage {
	var block rawjson.Object
	block.AddText("type", "text")
	block.AddText("text", text)
	return block.JSON()
}

func looksLikeJSON(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	return strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")
}
