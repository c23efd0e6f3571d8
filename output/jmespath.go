package output

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/jmespath/go-jmespath"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// Bounds of an evaluation. The library can be neither stopped nor told how much
// memory to take, so what goes in is bounded such that what comes out is.
const (
	maxData       = 5 << 20   // bytes of JSON
	maxDepth      = 1000      // of its nesting
	maxExpression = 1000      // bytes
	maxWork       = 256 << 20 // bytes, times how often the expression may copy them
	maxValue      = 5 << 20   // bytes of the value as JSON
	maxSteps      = 120e6     // values, times tokens of the expression, times how often it looks at them
	nodeBytes     = 64        // of a value in memory, beside its text
	maxNodes      = 500_000   // values in the data

	// exactDigits is how many decimal digits every double keeps apart.
	exactDigits = 15
)

// value is what an expression evaluates to: a text as it is, all else as JSON.
type value struct{ text, kind string }

var errValueSize = fmt.Errorf("the value of the expression has more than %d bytes: select less", maxValue)

var errTooMuch = errors.New("the expression could take too much time or memory on an output of this size: " +
	"make fewer lists and objects in it, shorter literals, sort once")

// evaluate evaluates a JMESPath expression over the structured content of
// result, else over its text. Numbers are compared and computed as doubles. An
// object that is selected whole keeps its digits and the order of its members,
// and so does a number alone, unless two of the output are the same double: then
// the kind of the value says that digits are lost.
func (c *Cache) evaluate(ctx context.Context, expression string, result tool.Result) (value, error) {
	compiled, err := compile(expression)
	if err != nil {
		return value{}, err
	}
	raw := []byte(structured(result))
	if raw == nil {
		raw = []byte(textOf(result))
	}
	if len(raw) > maxData {
		return value{}, fmt.Errorf("jmespath reads at most %d bytes, and this has %d: read it with lines or offset", maxData, len(raw))
	}
	if !json.Valid(raw) {
		return value{}, errors.New("jmespath needs JSON, and the output is none: read it with lines or offset")
	}
	select {
	case c.evaluating <- struct{}{}:
		defer func() { <-c.evaluating }()
	case <-ctx.Done():
		return value{}, errors.New("too many expressions are evaluated at once: try again")
	}
	d := document{objects: map[uintptr]object{}, numbers: map[float64]spelling{}}
	root, err := d.decode(raw)
	if err != nil {
		return value{}, err
	}
	if copies := growth(expression); copies > maxWork/(len(raw)+nodeBytes*d.nodes) || steps(expression, d.nodes, copies) > maxSteps {
		return value{}, errTooMuch
	}
	found, err := search(compiled, root)
	if err != nil {
		return value{}, fmt.Errorf("jmespath: %s", brief(err.Error()))
	}
	if text, ok := found.(string); ok && len(text) <= maxValue {
		return value{text, "text that the expression found"}, nil
	}
	var out bytes.Buffer
	if err := d.encode(&out, found); err != nil {
		return value{}, err
	}
	if out.Len() > maxValue {
		return value{}, errValueSize
	}
	kind := "JSON value of the expression"
	if d.rounded {
		kind += " (some long numbers are rounded: select the objects that hold them to get their digits)"
	}
	return value{out.String(), kind}, nil
}

// compile checks an expression. Its errors say where it is wrong.
func compile(expression string) (*jmespath.JMESPath, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the jmespath expression has %d bytes, more than %d", len(expression), maxExpression)
	}
	if !joinsByQuoted(expression) {
		return nil, errors.New("jmespath: the first argument of join must be a text in single quotes")
	}
	compiled, err := parse(expression)
	if syntax, ok := errors.AsType[jmespath.SyntaxError](err); ok {
		message := strings.TrimPrefix(syntax.Error(), "SyntaxError: ")
		return nil, fmt.Errorf("jmespath: %s, at character %d:\n%s", message, syntax.Offset+1, syntax.HighlightLocation())
	}
	if err != nil {
		return nil, fmt.Errorf("jmespath: %w", err)
	}
	return compiled, nil
}

// parse and search return what the library panics with as an error: it does for
// some types that a function does not take.
func parse(expression string) (compiled *jmespath.JMESPath, err error) {
	defer recovered(&err)
	return jmespath.Compile(expression)
}

func search(compiled *jmespath.JMESPath, root any) (found any, err error) {
	defer recovered(&err)
	return compiled.Search(root)
}

func recovered(err *error) {
	if r := recover(); r != nil {
		*err = errors.New("the expression does not fit the types of the data")
	}
}

// brief leaves out most of the data that the library repeats in its errors.
func brief(message string) string {
	head, tail, found := cutLast(message, ", expected: ")
	head = strings.TrimPrefix(head, "Invalid type for: ")
	if short := head[:border(head, maxLabel)]; short != head {
		head = short + "..."
	}
	if !found {
		return head
	}
	types := strings.NewReplacer("[]jmespath.jpType", "", "{", "", "}", "", `"`, "").Replace(tail)
	return fmt.Sprintf("a function got %s, and takes %s", head, types)
}

func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// document is decoded JSON that can be encoded as it was.
type document struct {
	nodes   int
	objects map[uintptr]object // by the address of the map
	numbers map[float64]spelling
	rounded bool // encode wrote a number of which digits are lost
}

// object is an object of a document and the bytes it was. It holds the map so
// that no other one gets its address.
type object struct {
	members map[string]any
	raw     []byte
}

// decode decodes valid JSON.
func (d *document) decode(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return d.next(decoder, raw, 0)
}

func (d *document) next(decoder *json.Decoder, raw []byte, depth int) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	d.nodes++
	if depth > maxDepth || d.nodes > maxNodes {
		return nil, fmt.Errorf("jmespath reads at most %d values, %d deep, and this has more: read it with lines or offset", maxNodes, maxDepth)
	}
	switch token := token.(type) {
	case json.Number:
		return d.number(string(token)), nil
	case json.Delim:
		start := decoder.InputOffset() - 1
		if token == '[' {
			return d.list(decoder, raw, depth)
		}
		members, err := d.members(decoder, raw, depth)
		if err == nil {
			d.objects[reflect.ValueOf(members).Pointer()] = object{members, raw[start:decoder.InputOffset()]}
		}
		return members, err
	default:
		return token, nil
	}
}

func (d *document) list(decoder *json.Decoder, raw []byte, depth int) (any, error) {
	list := []any{}
	for decoder.More() {
		element, err := d.next(decoder, raw, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	_, err := decoder.Token()
	return list, err
}

func (d *document) members(decoder *json.Decoder, raw []byte, depth int) (map[string]any, error) {
	members := map[string]any{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		member, err := d.next(decoder, raw, depth+1)
		if err != nil {
			return nil, err
		}
		members[name.(string)] = member
	}
	_, err := decoder.Token()
	return members, err
}

// spelling is how a number is written in a document: text, "" if in several
// ways, and lossy if these may be several numbers that are the same double.
type spelling struct {
	text  string
	lossy bool
}

// number remembers how a number was written. One beyond the range of doubles is
// the largest of them to the library.
func (d *document) number(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		f = max(-math.MaxFloat64, min(f, math.MaxFloat64))
	}
	was, known := d.numbers[f]
	if !known {
		d.numbers[f] = spelling{text: text}
	} else if was.text != text {
		lossy := was.lossy || err != nil || digits(text) > exactDigits || digits(was.text) > exactDigits
		d.numbers[f] = spelling{lossy: lossy}
	}
	return f
}

// digits counts the digits of a number between its zeros, before the exponent.
func digits(text string) int {
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	return len(strings.Trim(strings.Replace(strings.TrimPrefix(mantissa, "-"), ".", "", 1), "0"))
}

// encode writes what the library returned. What comes from the document unchanged
// is written as it was.
func (d *document) encode(out *bytes.Buffer, v any) error {
	if out.Len() > maxValue {
		return errValueSize
	}
	switch v := v.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case float64:
		d.encodeNumber(out, v)
	case string:
		out.Write(rawjson.Quote(v))
	case []any:
		return d.encodeList(out, v)
	case map[string]any:
		if was, ok := d.objects[reflect.ValueOf(v).Pointer()]; ok {
			return json.Compact(out, was.raw)
		}
		return d.encodeObject(out, v)
	default: // a reference to an expression
		return errors.New("jmespath: the value of the expression is no JSON")
	}
	return nil
}

func (d *document) encodeNumber(out *bytes.Buffer, f float64) {
	was := d.numbers[f]
	if was.text != "" {
		out.WriteString(was.text)
		return
	}
	d.rounded = d.rounded || was.lossy
	text, err := json.Marshal(f)
	if err != nil { // avg([]) is no number
		text = []byte("null")
	}
	out.Write(text)
}

func (d *document) encodeList(out *bytes.Buffer, list []any) error {
	out.WriteByte('[')
	for i, element := range list {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := d.encode(out, element); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func (d *document) encodeObject(out *bytes.Buffer, members map[string]any) error {
	out.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(rawjson.Quote(name))
		out.WriteByte(':')
		if err := d.encode(out, members[name]); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// growth is how many times as much memory as its data an expression takes, at
// most. Lists and objects that it makes, and literals, can be made for each value
// of the data; to_string and join copy texts; all else selects.
func growth(expression string) int {
	most := 1
	times := func(n int) { most = min(most*n, maxWork) }
	tokens := scan(expression)
	copies := slices.ContainsFunc(tokens, func(t string) bool { return t == "to_string" || t == "join" })
	var open []int // for each bracket what it multiplies by; 0: by nothing
	for i, t := range tokens {
		switch {
		case t == "{", t == "[" && i+1 < len(tokens) && makesList(tokens[i+1]):
			open = append(open, 2)
		case t == "(", t == "[":
			open = append(open, 0)
		case t == "," && len(open) > 0 && open[len(open)-1] > 0:
			open[len(open)-1]++
		case (t == "]" || t == "}" || t == ")") && len(open) > 0:
			times(max(1, open[len(open)-1]))
			open = open[:len(open)-1]
		case t == "to_string", t == "join":
			times(2)
		case t[0] == '`':
			times(1 + strings.Count(t, ","))
		}
		if copies && (t[0] == '`' || t[0] == '\'') {
			times(1 + len(t)/8)
		}
	}
	return most
}

// steps is how many steps an expression takes, about and at most, on so many
// values that it may copy: one for each token, as often as sorting looks at a
// value. Copies count when something goes through them.
func steps(expression string, values, copies int) float64 {
	tokens := scan(expression)
	most := float64(values) * float64(len(tokens))
	through := false
	for i, t := range tokens {
		switch {
		case t == "sort_by":
			most *= 4 * math.Log2(float64(values+1))
		case t == "*", t == "map", t == "[" && i+1 < len(tokens) && strings.Contains("]?", tokens[i+1]):
			through = true
		}
	}
	if through {
		most *= float64(copies)
	}
	return most
}

// makesList reports whether a bracket that next follows makes a list, rather
// than that it selects from one.
func makesList(next string) bool {
	return !strings.ContainsAny(next[:1], "?]*:-0123456789")
}

// joinsByQuoted reports whether every join has a quoted separator: one that is
// data could make n texts n times as long as all of them.
func joinsByQuoted(expression string) bool {
	tokens := scan(expression)
	for i, t := range tokens {
		if t != "join" || i+1 >= len(tokens) || tokens[i+1] != "(" {
			continue
		}
		if i+3 >= len(tokens) || tokens[i+2][0] != '\'' || tokens[i+3] != "," {
			return false
		}
	}
	return true
}

// scan returns what an expression consists of, without white space: names and
// numbers, quoted texts with their quotes, and single bytes. It need not know
// what is wrong: the library does.
func scan(expression string) (tokens []string) {
	for i := 0; i < len(expression); {
		start, b := i, expression[i]
		i++
		switch {
		case strings.IndexByte(" \t\r\n", b) >= 0:
			continue
		case b == '\'' || b == '"' || b == '`':
			i = closing(expression, i, b)
		case isWord(b):
			for i < len(expression) && isWord(expression[i]) {
				i++
			}
		}
		tokens = append(tokens, expression[start:i])
	}
	return tokens
}

// closing is the offset after the quote that ends what begins at i. In single
// quotes a backslash escapes nothing but the quote, not even itself.
func closing(expression string, i int, quote byte) int {
	for ; i < len(expression) && expression[i] != quote; i++ {
		if expression[i] == '\\' && (quote != '\'' || strings.HasPrefix(expression[i+1:], "'")) {
			i++
		}
	}
	return min(i+1, len(expression))
}

func isWord(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}
