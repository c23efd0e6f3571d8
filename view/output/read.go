package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// Name is the name of the tool that reads kept results.
const Name = "read_output"

// DefaultRead is read_output's default size of a piece, MaxRead its bound, in bytes.
const (
	DefaultRead = 20_000
	MaxRead     = 100_000
)

// unknown answers every token that the caller may not use, so that nobody learns which tokens exist.
const unknown = "no such output: the token is unknown, or has expired, or is another client's. Call the tool again that made it."

const definition = `{"name":"` + Name + `","description":"Read on in a large result, of which a tool answered the beginning and a token. ` +
	`Without lines, offset, block or jq, from the beginning.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"token":{"type":"string"},` +
	`"lines":{"type":"string","description":"Lines of the text, from 1: 120-180, or 120- for all from there on"},` +
	`"offset":{"type":"integer","minimum":0,"description":"Bytes of the text to skip"},` +
	`"limit":{"type":"integer","minimum":1,"maximum":100000,"default":20000,"description":"Bytes to answer at most"},` +
	`"jq":{"type":"string","description":"jq expression over the structured content, else over the text if it is JSON. ` +
	`lines and offset are then of its values, one a line"},` +
	`"block":{"type":"integer","minimum":1,"description":"Number of a content block to answer as it is, such as an image"}},` +
	`"required":["token"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`

// Tool returns read_output. It answers two text blocks: the exact piece, and a note that describes it
// and how to read on. With block it answers that block alone. Every token that the caller may not use
// gets the same error.
func (c *Cache) Tool() *tool.Tool {
	def, err := tool.ParseDef("toolfinch", json.RawMessage(definition))
	if err != nil {
		panic("output: " + Name + ": " + err.Error())
	}
	return &tool.Tool{Name: Name, Def: def, Handler: c.read}
}

// request is the arguments of read_output.
type request struct {
	token, lines  string
	offset, block *int
	limit         int
	jq            string
}

func (c *Cache) read(ctx context.Context, call *tool.Call) (tool.Result, error) {
	r, err := parseRequest(call.Arguments)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	owner, ok := owner(call)
	if !ok {
		return tool.ErrorResult(unknown), nil
	}
	within, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	content, err := c.store.Find(within, hash(r.token), owner, c.now())
	if err != nil {
		c.log.Warn("a kept result could not be read", "error", err)
		return tool.ErrorResult("the output cannot be read at the moment: try again, or call the tool again that made it"), nil
	}
	if content == nil {
		return tool.ErrorResult(unknown), nil
	}
	answer, err := c.answer(ctx, call.Owner(), r, content)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	return answer, nil
}

// parseRequest checks arguments without the result.
func parseRequest(arguments json.RawMessage) (request, error) {
	r := request{limit: DefaultRead}
	err := args.Read(Name, arguments,
		args.Text("token", &r.token),
		args.Text("lines", &r.lines),
		args.IntPointer("offset", &r.offset, 0, args.NoBound),
		args.Int("limit", &r.limit, 1, MaxRead),
		args.Text("jq", &r.jq),
		args.IntPointer("block", &r.block, 1, args.NoBound),
	)
	switch {
	case err != nil:
		return r, err
	case r.token == "":
		return r, errors.New("token is missing: it stands in the note of the answer that was cut")
	case r.lines != "" && r.offset != nil:
		return r, errors.New("lines and offset exclude each other: give one")
	case r.block != nil && (r.lines != "" || r.offset != nil || r.jq != ""):
		return r, errors.New("block excludes lines, offset and jq: a block is answered as it is")
	}
	_, _, err = parseLines(r.lines)
	return r, err
}

// parseLines reads "120-180", "120-" or "120"; to is 0 if it is open.
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

func (c *Cache) answer(ctx context.Context, owner string, r request, result tool.Result) (tool.Result, error) {
	if r.block != nil {
		return readBlock(result, *r.block)
	}
	text, kind := "", "text"
	if r.jq == "" {
		text = textOf(result)
	} else {
		value, err := c.evaluate(ctx, owner, r.jq, result)
		if err != nil {
			return nil, err
		}
		text, kind = value.text, value.kind
	}
	from, to, err := r.span(text, kind)
	if err != nil {
		return nil, err
	}
	end := from + cut(text[from:to], r.limit)
	return withContent(textBlock(text[from:end]), textBlock(r.note(text, kind, from, end, to))), nil
}

// span returns the requested bytes of text, before limit.
func (r request) span(text, kind string) (from, to int, err error) {
	if r.offset != nil {
		if *r.offset > len(text) {
			return 0, 0, fmt.Errorf("offset %d is behind the end: the %s has %d bytes", *r.offset, kind, len(text))
		}
		return border(text, *r.offset), len(text), nil
	}
	first, last, err := parseLines(r.lines)
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

// note describes the bytes from from to end of text, and how to get the next ones. to is the end of the
// request.
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
		fmt.Fprintf(&b, " limit %d ended it: read on with offset %d.", r.limit, end)
	case end < len(text):
		fmt.Fprintf(&b, " Read on with offset %d.", end)
	default:
		b.WriteString(" It ends here.")
	}
	b.WriteString("]")
	return b.String()
}

func withContent(blocks ...json.RawMessage) tool.Result {
	var out rawjson.Object
	out.Add("content", rawjson.Array(blocks))
	return tool.Result(out.JSON())
}

// readBlock answers one content block unchanged. A long block that can be read in pieces is refused.
func readBlock(result tool.Result, number int) (tool.Result, error) {
	count := 0
	for block := range rawjson.Elements(rawjson.Member(result, "content")) {
		if count++; count != number {
			continue
		}
		if _, isText := blockText(block); isText && len(block) > MaxRead {
			return nil, fmt.Errorf("block %d is %d bytes of text: read it with lines or offset", number, len(block))
		}
		return withContent(block), nil
	}
	return nil, fmt.Errorf("there is no block %d: the result has %d", number, count)
}
