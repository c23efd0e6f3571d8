package output

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// Name is the name of the tool that reads kept results.
const Name = "read_output"

// DefaultRead is how many bytes of text read_output answers with, MaxRead how
// many it can be asked for.
const (
	DefaultRead = 20_000
	MaxRead     = 100_000
)

// unknown is the one answer to every token that its caller may not use, so that
// nobody learns which tokens there are.
const unknown = "no such output: the token is unknown, or has expired, or is another client's. Call the tool again that made it."

const definition = `{"name":"` + Name + `","description":"Read on in a large result, of which a tool answered the beginning and a token. ` +
	`Without lines, offset, block or jmespath, from the beginning.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"token":{"type":"string"},` +
	`"lines":{"type":"string","description":"Lines of the text, from 1: 120-180, or 120- for all from there on"},` +
	`"offset":{"type":"integer","minimum":0,"description":"Bytes of the text to skip"},` +
	`"limit":{"type":"integer","minimum":1,"maximum":100000,"default":20000,"description":"Bytes to answer at most"},` +
	`"jmespath":{"type":"string","description":"Expression over the structured content, else over the text if it is JSON. ` +
	`lines and offset are then of its value. Objects have no order: write sort(keys(@))"},` +
	`"block":{"type":"integer","minimum":1,"description":"Number of a content block to answer as it is, such as an image"}},` +
	`"required":["token"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`

// Tool returns read_output. It answers with two text blocks: the piece asked
// for, exactly, and a note that says what it is and how to read on. With block
// it answers with that block alone. Every token that the caller may not use gets
// one and the same error.
func (c *Cache) Tool() *tool.Tool {
	def, err := tool.ParseDef("toolfinch", json.RawMessage(definition))
	if err != nil {
		panic("output: " + Name + ": " + err.Error())
	}
	return &tool.Tool{Name: Name, Def: def, Handler: c.read}
}

// request is the arguments of read_output.
type request struct {
	Token    string  `json:"token"`
	Lines    string  `json:"lines"`
	Offset   *int    `json:"offset"`
	Limit    *int    `json:"limit"`
	JMESPath *string `json:"jmespath"`
	Block    *int    `json:"block"`
}

func (c *Cache) read(ctx context.Context, call *tool.Call) (tool.Result, error) {
	r, err := parseRequest(call.Arguments)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	owner, ok := c.owner(call)
	if !ok {
		return tool.ErrorResult(unknown), nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	content, err := c.store.Output(ctx, hash(r.Token), owner, c.now())
	if err != nil {
		c.log.Warn("a kept result could not be read", "error", err)
		return tool.ErrorResult("the output cannot be read at the moment: try again, or call the tool again that made it"), nil
	}
	if content == nil {
		return tool.ErrorResult(unknown), nil
	}
	answer, err := c.answer(ctx, r, content)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	return answer, nil
}

// parseRequest checks all that can be checked without the output.
func parseRequest(arguments json.RawMessage) (request, error) {
	var r request
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil && !errors.Is(err, io.EOF) { // absent: no token
		return r, fmt.Errorf("the arguments of %s do not fit: %w", Name, err)
	}
	limit := DefaultRead
	if r.Limit != nil {
		limit = *r.Limit
	}
	r.Limit = &limit
	switch {
	case r.Token == "":
		return r, errors.New("token is missing: it stands in the note of the answer that was cut")
	case limit < 1 || limit > MaxRead:
		return r, fmt.Errorf("limit is %d, not between 1 and %d", limit, MaxRead)
	case r.Lines != "" && r.Offset != nil:
		return r, errors.New("lines and offset exclude each other: give one")
	case r.Block != nil && (r.Lines != "" || r.Offset != nil || r.JMESPath != nil):
		return r, errors.New("block excludes lines, offset and jmespath: a block is answered as it is")
	case r.Offset != nil && *r.Offset < 0:
		return r, fmt.Errorf("offset is %d, and must be 0 or more", *r.Offset)
	}
	_, _, err := parseLines(r.Lines)
	return r, err
}

// parseLines reads "120-180", "120-" or "120"; to is 0 where it is open.
func parseLines(lines string) (from, to int, err error) {
	if lines == "" {
		return 1, 0, nil
	}
	first, last, ranged := strings.Cut(lines, "-")
	from, err = strconv.Atoi(strings.TrimSpace(first))
	switch last = strings.TrimSpace(last); {
	case !ranged:
		to = from
	case last != "" && err == nil:
		to, err = strconv.Atoi(last)
		if to < from {
			err = errors.New("ends before it begins")
		}
	}
	if err != nil || from < 1 {
		return 0, 0, fmt.Errorf("lines is %q, and must be like \"120-180\", counted from 1", lines)
	}
	return from, to, nil
}

func (c *Cache) answer(ctx context.Context, r request, result tool.Result) (tool.Result, error) {
	if r.Block != nil {
		return readBlock(result, *r.Block)
	}
	text, kind := "", "text"
	if r.JMESPath == nil {
		text = textOf(result)
	} else {
		value, err := c.evaluate(ctx, *r.JMESPath, result)
		if err != nil {
			return nil, err
		}
		text, kind = value.text, value.kind
	}
	from, to, err := r.span(text, kind)
	if err != nil {
		return nil, err
	}
	end := from + cut(text[from:to], *r.Limit)
	return readResult(text[from:end], r.note(text, kind, from, end, to)), nil
}

// span is which bytes of text are asked for, without regard to limit.
func (r request) span(text, kind string) (from, to int, err error) {
	if r.Offset != nil {
		if *r.Offset > len(text) {
			return 0, 0, fmt.Errorf("offset %d is behind the end: the %s has %d bytes", *r.Offset, kind, len(text))
		}
		return border(text, *r.Offset), len(text), nil
	}
	first, last, err := parseLines(r.Lines)
	if err != nil {
		return 0, 0, err
	}
	if total := countLines(text); first > max(total, 1) {
		return 0, 0, fmt.Errorf("line %d is behind the end: the %s has %d lines", first, kind, total)
	}
	from, to = lineOffset(text, first), len(text)
	if last > 0 {
		to = from + lineOffset(text[from:], last-first+2)
	}
	return from, to, nil
}

// note says what the bytes from from to end of text are, and how to get those
// after them. to is the end of what was asked for.
func (r request) note(text, kind string, from, end, to int) string {
	var b strings.Builder
	if from == 0 && end == len(text) {
		fmt.Fprintf(&b, "[This is the whole %s: %d bytes, %d lines.]", kind, len(text), countLines(text))
		return b.String()
	}
	first := strings.Count(text[:from], "\n") + 1
	fmt.Fprintf(&b, "[This is bytes %d to %d of %d, lines %d to %d of %d, of the %s.", from, end, len(text),
		first, max(first, first+countLines(text[from:end])-1), countLines(text), kind)
	switch {
	case end < to:
		fmt.Fprintf(&b, " limit %d ended it: read on with offset %d.", *r.Limit, end)
	case end < len(text):
		fmt.Fprintf(&b, " Read on with offset %d.", end)
	default:
		b.WriteString(" It ends here.")
	}
	b.WriteString("]")
	return b.String()
}

func readResult(piece, note string) tool.Result {
	out := append([]byte(`{"content":[`), textBlock(piece)...)
	out = append(append(out, ','), textBlock(note)...)
	return append(out, "]}"...)
}

// readBlock answers with one content block as it is. What is long and can be
// read in pieces is not answered whole.
func readBlock(result tool.Result, number int) (tool.Result, error) {
	count := 0
	for block := range rawjson.Elements(rawjson.Member(result, "content")) {
		if count++; count != number {
			continue
		}
		if _, isText := blockText(block); isText && len(block) > MaxRead {
			return nil, fmt.Errorf("block %d is %d bytes of text: read it with lines or offset", number, len(block))
		}
		return append(append(tool.Result(`{"content":[`), block...), "]}"...), nil
	}
	return nil, fmt.Errorf("there is no block %d: the result has %d", number, count)
}
