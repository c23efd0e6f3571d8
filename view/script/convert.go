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

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"toolfinch/internal/rawjson"
)

// Bounds of values from outside, and of results.
const (
	maxDepth  = 1000 // of nested values, because functions recurse over them
	maxNumber = 5000 // bytes of a number, because reading digits takes quadratic time
)

// The interpreter's tables chain keys with similar hashes, and its hash of a short text has no seed. An
// attacker can therefore choose an object's names such that each lookup walks over all of them. A crowd
// is a set of names whose hashes share their last bits.
const (
	crowds      = 1 << 12
	crowdFree   = 64  // names of a crowd that may be chance in an object of any size
	uncrowded   = 512 // so few names make no long chain
	crowdFactor = 8   // times the names that a crowd has on average
)

var errTooDeep = limitError("values nested deeper than %d", maxDepth)

// decodeRaw makes a value of JSON, None of nil. Integers keep any size, 1.0 is a float, members keep
// their order, and the last of duplicate members counts.
func decodeRaw(raw json.RawMessage) (starlark.Value, error) {
	if raw == nil {
		return starlark.None, nil
	}
	return decode(string(raw))
}

// decodeObject is decodeRaw of an object.
func decodeObject(raw json.RawMessage) (*starlark.Dict, error) {
	v, err := decodeRaw(raw)
	if err != nil {
		return nil, err
	}
	dict, ok := v.(*starlark.Dict)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return dict, nil
}

func decode(source string) (starlark.Value, error) {
	if err := valid([]byte(source)); err != nil {
		return nil, err
	}
	d := decoder{s: source}
	return d.value(0)
}

// valid returns the syntax error in JSON, if any.
func valid(source []byte) error {
	if json.Valid(source) {
		return nil
	}
	var checked json.RawMessage
	return fmt.Errorf("invalid JSON: %w", json.Unmarshal(source, &checked))
}

// decoder reads valid JSON.
type decoder struct {
	s string
	i int // of the next byte
}

// peek skips white space and returns the byte after it.
func (d *decoder) peek() byte {
	for d.s[d.i] == ' ' || d.s[d.i] == '\n' || d.s[d.i] == '\t' || d.s[d.i] == '\r' {
		d.i++
	}
	return d.s[d.i]
}

func (d *decoder) value(depth int) (starlark.Value, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch d.peek() {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		return starlark.String(d.text()), nil
	case 'n':
		d.i += len("null")
		return starlark.None, nil
	case 't':
		d.i += len("true")
		return starlark.True, nil
	case 'f':
		d.i += len("false")
		return starlark.False, nil
	}
	return d.number()
}

func (d *decoder) object(depth int) (starlark.Value, error) {
	dict := new(starlark.Dict)
	var sizes []int // of crowds; nil while there are few names
	for d.i++; d.peek() != '}'; {
		if d.s[d.i] == ',' {
			d.i++
			d.peek()
		}
		key := starlark.String(strings.ToValidUTF8(d.text(), "\uFFFD"))
		d.peek()
		d.i++ // the colon
		value, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if dict.Len() >= uncrowded {
			if sizes == nil {
				sizes = make([]int, crowds)
			}
			hash, _ := key.Hash()
			if sizes[hash%crowds]++; sizes[hash%crowds] > crowdFree+crowdFactor*dict.Len()/crowds {
				return nil, limitError("%d names of a JSON object whose hashes are alike", crowdFree)
			}
		}
		if err := dict.SetKey(key, value); err != nil {
			return nil, err
		}
	}
	d.i++
	return dict, nil
}

func (d *decoder) array(depth int) (starlark.Value, error) {
	var elements []starlark.Value
	for d.i++; d.peek() != ']'; {
		if d.s[d.i] == ',' {
			d.i++
		}
		value, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		elements = append(elements, value)
	}
	d.i++
	return starlark.NewList(elements), nil
}

// text reads a string. Without escapes it shares the source's bytes.
func (d *decoder) text() string {
	start, escaped := d.i, false
	for d.i++; d.s[d.i] != '"'; d.i++ {
		if d.s[d.i] == '\\' {
			escaped = true
			d.i++
		}
	}
	d.i++
	if escaped {
		return rawjson.Text([]byte(d.s[start:d.i]))
	}
	return d.s[start+1 : d.i-1]
}

func (d *decoder) number() (starlark.Value, error) {
	start := d.i
	for d.i < len(d.s) && strings.IndexByte("+-.0123456789Ee", d.s[d.i]) >= 0 {
		d.i++
	}
	source := d.s[start:d.i]
	switch {
	case len(source) > maxNumber:
		return nil, limitError("%d digits of a number", maxNumber)
	case strings.ContainsAny(source, ".eE"):
		f, err := strconv.ParseFloat(source, 64)
		if err != nil {
			return nil, fmt.Errorf("the number %.40s is too large for a float", source)
		}
		return starlark.Float(f), nil
	}
	if n, err := strconv.ParseInt(source, 10, 64); err == nil {
		return starlark.MakeInt64(n), nil
	}
	n, _ := new(big.Int).SetString(source, 10)
	return starlark.MakeBigInt(n), nil
}

// errOutput says that an encoder's bound was reached.
var errOutput = errors.New("too long")

// encoder writes values as JSON.
type encoder struct {
	out  []byte
	most int // bytes of out
}

// encode writes a value as JSON of up to most bytes, else it fails with errOutput.
func encode(v starlark.Value, most int) (json.RawMessage, error) {
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
		return e.integer(v)
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

// close ends an object or array; separator is still its opening bracket if it is empty.
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
		if !utf8.ValidString(string(name)) { // U+FFFD would replace the bad bytes, and two names could become equal
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

func (e *encoder) text(s string) error {
	if len(e.out)+len(s) > e.most {
		return errOutput
	}
	e.out = append(e.out, rawjson.Quote(s)...)
	return nil
}

func (e *encoder) integer(i starlark.Int) error {
	n, small := i.Int64()
	switch {
	case small:
		e.out = strconv.AppendInt(e.out, n, 10)
	case i.BigInt().BitLen() > 4*maxNumber:
		return limitError("%d digits of a number", maxNumber)
	default:
		e.out = i.BigInt().Append(e.out, 10)
	}
	return nil
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
