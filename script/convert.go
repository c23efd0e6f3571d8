package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// maxNumber bounds the bytes of a number in JSON: reading its digits takes
// quadratic time.
const maxNumber = 5000

// decode makes a value of JSON: integers stay integers of any size, 1.0 is a
// float, members keep their order, and of duplicate ones the last counts.
func (r *run) decode(source string) (starlark.Value, error) {
	d := decoder{r: r, s: source}
	d.space()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	if d.space(); d.i < len(d.s) {
		return nil, d.bad("more after the value")
	}
	return v, nil
}

// decodeRaw is decode of bytes, nil for None. Texts share a copy of them.
func (r *run) decodeRaw(raw json.RawMessage) (starlark.Value, error) {
	if raw == nil {
		return starlark.None, nil
	}
	if err := r.alloc(int64(len(raw))); err != nil {
		return nil, err
	}
	return r.decode(string(raw))
}

// decodeObject is decodeRaw of what must be an object.
func (r *run) decodeObject(raw json.RawMessage) (*starlark.Dict, error) {
	v, err := r.decodeRaw(raw)
	if err != nil {
		return nil, err
	}
	dict, ok := v.(*starlark.Dict)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return dict, nil
}

type decoder struct {
	r    *run
	s    string
	i    int
	seen int // values
}

func (d *decoder) bad(what string) error {
	return fmt.Errorf("invalid JSON at byte %d: %s", d.i, what)
}

func (d *decoder) space() {
	for d.i < len(d.s) && (d.s[d.i] == ' ' || d.s[d.i] == '\n' || d.s[d.i] == '\t' || d.s[d.i] == '\r') {
		d.i++
	}
}

// next reports whether c follows, and passes it.
func (d *decoder) next(c byte) bool {
	d.space()
	if d.i < len(d.s) && d.s[d.i] == c {
		d.i++
		return true
	}
	return false
}

func (d *decoder) value(depth int) (starlark.Value, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	if d.i >= len(d.s) {
		return nil, d.bad("a value is missing")
	}
	if d.seen++; d.seen%1024 == 0 {
		if err := d.r.alive(); err != nil {
			return nil, err
		}
	}
	switch c := d.s[d.i]; c {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		s, err := d.text()
		return starlark.String(s), err
	case 'n':
		return starlark.None, d.word("null")
	case 't':
		return starlark.True, d.word("true")
	case 'f':
		return starlark.False, d.word("false")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return d.number()
		}
	}
	return nil, d.bad("not a value")
}

func (d *decoder) word(word string) error {
	if !strings.HasPrefix(d.s[d.i:], word) {
		return d.bad("not a value")
	}
	d.i += len(word)
	return nil
}

func (d *decoder) object(depth int) (starlark.Value, error) {
	d.i++
	if err := d.r.alloc(sizeDict); err != nil {
		return nil, err
	}
	dict := new(starlark.Dict)
	if d.next('}') {
		return dict, nil
	}
	for {
		if d.space(); d.i >= len(d.s) || d.s[d.i] != '"' {
			return nil, d.bad("a name is missing")
		}
		name, err := d.text()
		if err != nil {
			return nil, err
		}
		if !d.next(':') {
			return nil, d.bad("a colon is missing")
		}
		d.space()
		value, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if dict.Len() >= 8 {
			if err := d.r.alloc(sizeEntry); err != nil {
				return nil, err
			}
		}
		key := starlark.String(strings.ToValidUTF8(name, "\uFFFD"))
		if err := d.r.put(key); err != nil {
			return nil, err
		}
		if err := dict.SetKey(key, value); err != nil {
			return nil, err
		}
		if d.next(',') {
			continue
		}
		if d.next('}') {
			return dict, nil
		}
		return nil, d.bad("a comma or } is missing")
	}
}

func (d *decoder) array(depth int) (starlark.Value, error) {
	d.i++
	if err := d.r.alloc(64); err != nil {
		return nil, err
	}
	var elements []starlark.Value
	if d.next(']') {
		return starlark.NewList(nil), nil
	}
	for {
		d.space()
		value, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if err := d.r.alloc(3 * sizeSlot); err != nil { // growing copies
			return nil, err
		}
		elements = append(elements, value)
		if d.next(',') {
			continue
		}
		if d.next(']') {
			return starlark.NewList(elements), nil
		}
		return nil, d.bad("a comma or ] is missing")
	}
}

// text reads a string. It is a part of the source where nothing is escaped.
func (d *decoder) text() (string, error) {
	if err := d.r.alloc(sizeText); err != nil {
		return "", err
	}
	start := d.i + 1
	for i := start; i < len(d.s); i++ {
		switch c := d.s[i]; {
		case c == '"':
			d.i = i + 1
			return d.s[start:i], nil
		case c == '\\':
			return d.escaped(start, i)
		case c < ' ':
			d.i = i
			return "", d.bad("a control character in a string")
		}
	}
	d.i = len(d.s)
	return "", d.bad("a string does not end")
}

// escaped reads the rest of a string whose first backslash is at i.
func (d *decoder) escaped(start, i int) (string, error) {
	end := i
	for ; end < len(d.s) && d.s[end] != '"'; end++ {
		if d.s[end] == '\\' {
			end++
		}
	}
	if end >= len(d.s) {
		d.i = len(d.s)
		return "", d.bad("a string does not end")
	}
	if err := d.r.alloc(int64(end - start)); err != nil {
		return "", err
	}
	// encoding/json knows all escapes, and makes U+FFFD of halves of surrogate
	// pairs.
	var s string
	quoted := d.s[start-1 : end+1]
	if err := json.Unmarshal(unsafe.Slice(unsafe.StringData(quoted), len(quoted)), &s); err != nil {
		d.i = start
		return "", d.bad("a malformed string")
	}
	d.i = end + 1
	return s, nil
}

func (d *decoder) digits() bool {
	start := d.i
	for d.i < len(d.s) && d.s[d.i] >= '0' && d.s[d.i] <= '9' {
		d.i++
	}
	return d.i > start
}

func (d *decoder) number() (starlark.Value, error) {
	start, float := d.i, false
	if d.s[d.i] == '-' {
		d.i++
	}
	zero := d.i < len(d.s) && d.s[d.i] == '0'
	first := d.i
	if !d.digits() || zero && d.i > first+1 {
		return nil, d.bad("not a number")
	}
	if d.i < len(d.s) && d.s[d.i] == '.' {
		d.i++
		if float = true; !d.digits() {
			return nil, d.bad("not a number")
		}
	}
	if d.i < len(d.s) && (d.s[d.i] == 'e' || d.s[d.i] == 'E') {
		if d.i++; d.i < len(d.s) && (d.s[d.i] == '+' || d.s[d.i] == '-') {
			d.i++
		}
		if float = true; !d.digits() {
			return nil, d.bad("not a number")
		}
	}
	source := d.s[start:d.i]
	if len(source) > maxNumber {
		return nil, limitError("%d digits of a number", maxNumber)
	}
	if float {
		f, err := strconv.ParseFloat(source, 64)
		if err != nil {
			return nil, fmt.Errorf("the number %.40s is too large for a float", source)
		}
		return starlark.Float(f), nil
	}
	if n, err := strconv.ParseInt(source, 10, 64); err == nil {
		return starlark.MakeInt64(n), nil
	}
	if err := d.r.alloc(int64(48 + len(source)/2)); err != nil {
		return nil, err
	}
	n, _ := new(big.Int).SetString(source, 10)
	return starlark.MakeBigInt(n), nil
}

// errOutput says that an encoder's limit was reached.
var errOutput = errors.New("too long")

// encoder writes values as JSON.
type encoder struct {
	out  []byte
	most int // bytes of out
}

// encode writes a value as JSON of at most so many bytes, else fails with
// errOutput.
func encode(v starlark.Value, most int) ([]byte, error) {
	e := encoder{most: most}
	if err := e.value(v, 0); err != nil {
		return nil, err
	}
	if len(e.out) > most {
		return nil, errOutput
	}
	return e.out, nil
}

func (e *encoder) value(v starlark.Value, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	if len(e.out) > e.most {
		return errOutput
	}
	switch v := v.(type) {
	case starlark.NoneType:
		e.out = append(e.out, "null"...)
	case starlark.Bool:
		e.out = strconv.AppendBool(e.out, bool(v))
	case starlark.Int:
		if n, ok := v.Int64(); ok {
			e.out = strconv.AppendInt(e.out, n, 10)
		} else {
			e.out = v.BigInt().Append(e.out, 10)
		}
	case starlark.Float:
		return e.float(float64(v))
	case starlark.String:
		return e.text(string(v))
	case *starlark.Dict:
		return e.dict(v, depth)
	case *starlarkstruct.Struct:
		separator := byte('{')
		for name, value := range v.Entries() {
			if err := e.member(separator, name, value, depth); err != nil {
				return err
			}
			separator = ','
		}
		e.close('{', '}', separator)
	case starlark.Iterable:
		separator := byte('[')
		var element starlark.Value
		iterator := v.Iterate()
		defer iterator.Done()
		for iterator.Next(&element) {
			e.out = append(e.out, separator)
			separator = ','
			if err := e.value(element, depth+1); err != nil {
				return err
			}
		}
		e.close('[', ']', separator)
	default:
		return fmt.Errorf("a %s is no JSON", v.Type())
	}
	return nil
}

// close ends an object or array, which is empty when nothing has replaced its
// opening bracket as separator.
func (e *encoder) close(opening, closing, separator byte) {
	if separator == opening {
		e.out = append(e.out, opening)
	}
	e.out = append(e.out, closing)
}

func (e *encoder) dict(dict *starlark.Dict, depth int) error {
	separator := byte('{')
	for key, value := range dict.Entries() {
		name, ok := key.(starlark.String)
		if !ok {
			return fmt.Errorf("a key of a JSON object must be a string, this one is %s", key.Type())
		}
		if !utf8.ValidString(string(name)) { // written as U+FFFD, two could become one
			return errors.New("a key of a JSON object must be whole characters")
		}
		if err := e.member(separator, string(name), value, depth); err != nil {
			return err
		}
		separator = ','
	}
	e.close('{', '}', separator)
	return nil
}

func (e *encoder) member(separator byte, name string, value starlark.Value, depth int) error {
	e.out = append(e.out, separator)
	if err := e.text(name); err != nil {
		return err
	}
	e.out = append(e.out, ':')
	return e.value(value, depth+1)
}

func (e *encoder) float(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("%v is no JSON", f)
	}
	start := len(e.out)
	format := byte('f')
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e'
	}
	e.out = strconv.AppendFloat(e.out, f, format, -1, 64)
	if format == 'f' && !strings.Contains(string(e.out[start:]), ".") {
		e.out = append(e.out, ".0"...) // a float stays one
	}
	return nil
}

func (e *encoder) text(s string) error {
	const hex = "0123456789abcdef"
	e.out = append(e.out, '"')
	from := 0
	for i := 0; i < len(s); {
		if len(e.out)+i-from > e.most {
			return errOutput
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			char, size := utf8.DecodeRuneInString(s[i:])
			if char == utf8.RuneError && size == 1 {
				e.out = append(e.out, s[from:i]...)
				e.out = append(e.out, "\uFFFD"...)
				from = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		e.out = append(e.out, s[from:i]...)
		switch c {
		case '"', '\\':
			e.out = append(e.out, '\\', c)
		case '\n':
			e.out = append(e.out, `\n`...)
		case '\r':
			e.out = append(e.out, `\r`...)
		case '\t':
			e.out = append(e.out, `\t`...)
		default:
			e.out = append(e.out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	e.out = append(append(e.out, s[from:]...), '"')
	return nil
}
