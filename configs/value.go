package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolfinch/view"
)

// field is a key of a mapping that becomes a T.
type field[T any] struct {
	key string
	set func(d *decoder, to *T, n *node, label string)
	// null says that nothing is a value like others, not the default.
	null bool
}

func keysOf[T any](table []field[T]) []string {
	keys := make([]string, len(table))
	for i, f := range table {
		keys[i] = f.key
	}
	return keys
}

// fields reads a mapping by its table. Messages about a value begin with prefix
// and the key, those about a key with label.
func fields[T any](d *decoder, n *node, label, prefix string, table []field[T], to *T) bool {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping, not "+string(n.kind), "its keys: "+strings.Join(keysOf(table), ", "))
		return false
	}
	for _, p := range d.unique(n, "key") {
		i := slices.IndexFunc(table, func(f field[T]) bool { return f.key == p.key.text })
		switch {
		case i < 0:
			d.fail(p.key, fmt.Sprintf("%s: unknown key %q", label, shorten(p.key.text)), didYouMean(p.key.text, keysOf(table)))
		case p.value.kind == kindNull && !table[i].null: // left at its default
		default:
			table[i].set(d, to, p.value, prefix+p.key.text)
		}
	}
	return true
}

// onOff reads true, false, or a mapping by its table, which is on. ok is false for
// what is none of them.
func onOff[T any](d *decoder, n *node, label string, table []field[T], to *T) (on, ok bool) {
	switch n.kind {
	case kindMapping:
		return true, fields(d, n, label, label+".", table, to)
	case kindList, kindNumber:
		d.mustBe(n, label, "true, false or a mapping", "its keys: "+strings.Join(keysOf(table), ", "))
		return false, false
	}
	ok = d.boolean(n, label, &on)
	return on, ok
}

// given returns the value of a key that is there and not left empty, else nil.
func (n *node) given(key string) *node {
	if v := n.find(key); v != nil && v.kind != kindNull {
		return v
	}
	return nil
}

func placeOf(n *node) view.Place { return view.Place{Line: n.line, Column: n.column} }

// maxValue bounds a value as JSON, in bytes: aliases within aliases grow without
// end.
const maxValue = 1 << 20

// value returns a value as JSON: numbers as they are written, keys in their
// order, variables in texts replaced. A variable is always text.
func (d *decoder) value(n *node, label string) (json.RawMessage, bool) {
	var b bytes.Buffer
	if !d.appendValue(&b, n, label, 0) {
		return nil, false
	}
	if b.Len() > maxValue {
		d.fail(n, fmt.Sprintf("%s is larger than %d MiB", label, maxValue>>20), "")
		return nil, false
	}
	return b.Bytes(), true
}

func (d *decoder) appendValue(b *bytes.Buffer, n *node, label string, depth int) bool {
	if depth > maxDepth {
		d.fail(n, fmt.Sprintf("a value nested deeper than %d levels", maxDepth), "")
		return false
	}
	if b.Len() > maxValue {
		return true // reported by value
	}
	ok := true
	switch n.kind {
	case kindBroken:
		return false
	case kindNull:
		b.WriteString("null")
	case kindBool:
		b.WriteString(n.text)
	case kindNumber:
		number, legal := jsonNumber(n.text)
		if !legal {
			d.mustBe(n, label, "a number that JSON has", "put it in quotes for text")
			return false
		}
		b.WriteString(number)
	case kindText:
		var text string
		if !d.expand(n, label, &text) {
			return false
		}
		b.Write(jsonText(text))
	case kindList:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			ok = d.appendValue(b, item, fmt.Sprintf("%s[%d]", label, i), depth+1) && ok
		}
		b.WriteByte(']')
	case kindMapping:
		b.WriteByte('{')
		for i, p := range d.unique(n, "key") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(jsonText(p.key.text))
			b.WriteByte(':')
			ok = d.appendValue(b, p.value, label+"."+shorten(p.key.text), depth+1) && ok
		}
		b.WriteByte('}')
	}
	return ok
}

// jsonText encodes text as JSON, < and > as they are.
func jsonText(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // text cannot fail, nor can the buffer
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

var (
	jsonNumberForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	yamlInteger    = regexp.MustCompile(`^(0x[0-9a-fA-F]+|0o?[0-7]+|0b[01]+|[1-9][0-9]*)$`)
	yamlFloat      = regexp.MustCompile(`^([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]+)?$`)
)

// jsonNumber writes a number of YAML as JSON has it. What JSON has too stays as
// it is: 1.0 is no 1, and no digit is lost.
func jsonNumber(s string) (string, bool) {
	if jsonNumberForm.MatchString(s) {
		return s, true
	}
	s = strings.ReplaceAll(strings.TrimPrefix(s, "+"), "_", "")
	s, negative := strings.CutPrefix(s, "-")
	sign := ""
	if negative {
		sign = "-"
	}
	if yamlInteger.MatchString(s) {
		i, ok := new(big.Int).SetString(s, 0) // 017 and 0o17 are octal to it as well
		if !ok {
			return "", false
		}
		return sign + i.String(), true
	}
	parts := yamlFloat.FindStringSubmatch(s)
	if parts == nil || parts[1]+parts[2] == "" {
		return "", false
	}
	whole, fraction := strings.TrimLeft(parts[1], "0"), parts[2]
	if whole == "" {
		whole = "0"
	}
	if fraction == "" && strings.Contains(s, ".") {
		fraction = "0"
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction + parts[3], true
}

var sizeForm = regexp.MustCompile(`^([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([a-zA-Z]*)$`)

var sizeUnits = map[string]float64{
	"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "kib": 1 << 10, "mib": 1 << 20,
}

// maxResult is far beyond any result that somebody reads, in bytes.
const maxResult = 100_000_000

// size reads a number of bytes, 1 to maxResult: 20000, "20kB", "1.5 MiB".
func (d *decoder) size(n *node, label string, to *int) {
	const want, hint = "a size from 1 byte to 100MB", `like "20kB", "1MB", or a number of bytes`
	text, ok := d.quantity(n, label, want, hint)
	if !ok {
		return
	}
	parts := sizeForm.FindStringSubmatch(text)
	if parts == nil {
		d.mustBe(n, label, want, hint)
		return
	}
	unit, known := sizeUnits[strings.ToLower(parts[2])]
	number, err := strconv.ParseFloat(parts[1], 64)
	bytes := number * unit
	if !known || err != nil || bytes < 1 || bytes > maxResult {
		d.mustBe(n, label, want, hint)
		return
	}
	*to = int(bytes)
}

// filePath makes the path of a file absolute. The file must be there.
func (d *decoder) filePath(n *node, label, path string) (string, bool) {
	path, err := tilde(path, d.home)
	if err != nil {
		d.fail(n, label+": "+err.Error(), "write the path in full")
		return "", false
	}
	path = within(d.dir, filepath.FromSlash(path))
	if !isFile(path) {
		d.fail(n, label+" names a file that is not there: "+n.String(), "a relative path starts at the folder of this file")
		return "", false
	}
	return path, true
}
