package retrieve

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// blocksOf returns the content blocks of a result. Structured content is added as text if no block repeats it. What
// is no block becomes text, because clients would refuse all results for it; so does a result without content.
func blocksOf(result tool.Result) []json.RawMessage {
	raw := json.RawMessage(result)
	data := compact(rawjson.Member(raw, "structuredContent"))
	content := rawjson.Member(raw, "content")
	blocks := slices.Collect(rawjson.Elements(content))
	switch {
	case !rawjson.IsObject(raw):
		blocks = []json.RawMessage{raw}
	case (content == nil || string(content) == "null") && data == nil:
		if rest := rawjson.Without(raw, "content", "isError", "_meta", "resultType"); !rawjson.IsEmpty(rest) {
			blocks = []json.RawMessage{rest}
		}
	case content != nil && content[0] != '[' && content[0] != 'n':
		blocks = []json.RawMessage{content}
	}
	for i, block := range blocks {
		if !isBlock(block) {
			text := string(compact(block))
			if block[0] == '"' {
				text = rawjson.Text(block)
			}
			blocks[i] = textBlock(text)
		}
		if says(rawjson.Text(rawjson.Member(blocks[i], "text")), data) {
			data = nil
		}
	}
	if data != nil && string(data) != "null" {
		blocks = append(blocks, textBlock(string(data)))
	}
	return blocks
}

// mended returns a tool's result in the protocol's shape, which clients insist on. A block of an unknown type, perhaps
// of a later revision, stays. Legacy clients take an object alone as structured content.
func mended(result tool.Result, modern bool) tool.Result {
	raw := json.RawMessage(result)
	if !result.Complete() || len(raw) == 0 {
		return result
	}
	structured, failed, meta := rawjson.Member(raw, "structuredContent"), rawjson.Member(raw, "isError"), rawjson.Member(raw, "_meta")
	var drop []string
	if structured != nil && !rawjson.IsObject(structured) && (!modern || string(structured) == "null") {
		drop = append(drop, "structuredContent")
	}
	if failed != nil && string(failed) != "true" && string(failed) != "false" {
		drop = append(drop, "isError")
	}
	if meta != nil && !rawjson.IsObject(meta) {
		drop = append(drop, "_meta")
	}
	content := rawjson.Member(raw, "content")
	listed := content != nil && content[0] == '[' || content == nil && rawjson.IsObject(structured)
	for block := range rawjson.Elements(content) {
		kind := rawjson.Text(rawjson.Member(block, "type"))
		listed = listed && (isBlock(block) || kind != "" && !slices.Contains(blockTypes, kind))
	}
	if listed && drop == nil && rawjson.IsObject(raw) {
		return result
	}
	var out rawjson.Object
	blocks := slices.Collect(rawjson.Elements(content))
	if !listed || slices.Contains(drop, "structuredContent") {
		blocks = blocksOf(result)
	}
	if listed || rawjson.IsObject(structured) || meta != nil {
		out.AddAll(rawjson.Without(raw, append(drop, "content", "isError")...))
	}
	out.Add("content", rawjson.Array(blocks))
	if text := strings.ToLower(rawjson.Text(failed)); text == "true" || string(failed) == "true" || string(failed) == "1" {
		out.Add("isError", []byte("true"))
	}
	return tool.Result(out.JSON())
}

// says reports whether a text equals data, or the only member of data: many servers wrap a plain value as
// {"result": ...}.
func says(text string, data json.RawMessage) bool {
	if data == nil || text == "" {
		return false
	}
	members, only := 0, data
	for _, value := range rawjson.Members(data) {
		members, only = members+1, value
	}
	if members == 1 && (rawjson.Text(only) == text || bytes.Equal(compact([]byte(text)), only)) {
		return true
	}
	return bytes.Equal(compact([]byte(text)), data)
}

// blockTypes are the types of blocks whose shape isBlock knows.
var blockTypes = []string{"text", "image", "audio", "resource_link", "resource"}

// isBlock reports whether a value is a content block by the schema of MCP.
func isBlock(value json.RawMessage) bool {
	has := func(of json.RawMessage, members ...string) bool {
		return !slices.ContainsFunc(members, func(member string) bool {
			return !bytes.HasPrefix(rawjson.Member(of, member), []byte{'"'})
		})
	}
	switch rawjson.Text(rawjson.Member(value, "type")) {
	case "text":
		return has(value, "text")
	case "image", "audio":
		return has(value, "data", "mimeType")
	case "resource_link":
		return has(value, "name", "uri")
	case "resource":
		resource := rawjson.Member(value, "resource")
		return has(resource, "uri", "text") || has(resource, "uri", "blob")
	}
	return false
}

func textBlock(text string) json.RawMessage {
	var block rawjson.Object
	block.AddText("type", "text")
	block.AddText("text", text)
	return block.JSON()
}
