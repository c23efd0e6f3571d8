package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
)

// maxNested bounds the depth of arguments that policies read.
const maxNested = 64

var errArguments = errors.New("the arguments cannot be judged")

// valueOf converts the arguments of a call, a JSON object; nil is an empty object. An object becomes a record without
// its null members, an array a set, and a whole number a Long. Another number becomes a decimal if it has at most
// four digits after the point; otherwise it becomes its text, which policies cannot compare. An object must not
// repeat a member. The name of a member must not differ only in case from another name, or from a name in read (by
// fold): many servers ignore case, and could take the member that policies did not see.
func valueOf(arguments json.RawMessage, read map[string][]string) (types.Value, error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		return types.Record{}, nil
	}
	r := reader{json.NewDecoder(bytes.NewReader(arguments)), read}
	r.UseNumber()
	value, err := r.value(0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errArguments, err)
	}
	switch value.(type) {
	case types.Record:
		return value, nil
	case nil:
		return types.Record{}, nil
	}
	return nil, fmt.Errorf("%w: they are no object", errArguments)
}

type reader struct {
	*json.Decoder
	read map[string][]string
}

// value reads one value; null is nil.
func (r reader) value(depth int) (types.Value, error) {
	token, err := r.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if depth == maxNested {
			return nil, fmt.Errorf("nested more than %d deep", maxNested)
		}
		if token == '{' {
			return r.record(depth + 1)
		}
		return r.set(depth + 1)
	case string:
		return types.String(token), nil
	case bool:
		return types.Boolean(token), nil
	case json.Number:
		return number(token.String()), nil
	}
	return nil, nil
}

func (r reader) record(depth int) (types.Value, error) {
	members := types.RecordMap{}
	seen := map[string]bool{}
	for r.More() {
		token, err := r.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		folded := fold(name)
		if seen[folded] {
			return nil, fmt.Errorf("%q comes twice", name)
		}
		if as := r.read[folded]; as != nil && !slices.Contains(as, name) {
			return nil, fmt.Errorf("%q is not spelled %q", name, as[0])
		}
		seen[folded] = true
		value, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		if value != nil {
			members[types.String(name)] = value
		}
	}
	_, err := r.Token()
	return types.NewRecord(members), err
}

// fold returns equal texts for names that are equal under strings.EqualFold.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

func (r reader) set(depth int) (types.Value, error) {
	var items []types.Value
	for r.More() {
		value, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		if value != nil {
			items = append(items, value)
		}
	}
	_, err := r.Token()
	return types.NewSet(items...), err
}

func number(text string) types.Value {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Long(whole)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return types.Long(int64(f))
	}
	if decimal, err := types.ParseDecimal(text); err == nil && !strings.ContainsAny(text, "eE") {
		return decimal
	}
	return types.String(text)
}
