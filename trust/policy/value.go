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

// maxNested is how deep the arguments of a call may be nested where policies read them.
const maxNested = 64

var errArguments = errors.New("the arguments cannot be judged")

// valueOf converts the arguments of a call, an object of JSON; nil is an empty one. An
// object becomes a record without its members that are null, an array a set, a whole
// number a Long, another one a decimal if it has at most four digits after the point,
// else its text, which policies cannot compare. An object with a member twice is an
// error, as is one that differs only in case from another or from those that policies
// read, by their folds: a server may take the one that was not judged, and many take
// members without regard to case.
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

// fold is equal for names that are equal under strings.EqualFold.
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
