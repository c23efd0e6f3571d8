package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
)

// ErrByHand refuses an edit that would change something else, as of an alias.
var ErrByHand = errors.New("it is written in a way that cannot be edited without changing something else; edit it by hand")

// Same reports whether two JSON values are equal except at a path. An empty object around
// the path equals a missing object.
func Same(a, b json.RawMessage, except ...string) bool {
	var values [2]any
	for i, raw := range []json.RawMessage{a, b} {
		in := json.NewDecoder(bytes.NewReader(raw))
		in.UseNumber()
		_ = in.Decode(&values[i]) // invalid JSON is nil
	}
	if len(except) == 0 {
		return reflect.DeepEqual(values[0], values[1])
	}
	return SameBut(values[0], values[1], except)
}

// SameBut reports whether two decoded documents differ only at path.
func SameBut(a, b any, path []string) bool {
	return reflect.DeepEqual(without(a, path), without(b, path))
}

func without(v any, path []string) any {
	m, ok := v.(map[string]any)
	switch {
	case len(path) == 0:
		return nil
	case !ok:
		return v
	}
	m = maps.Clone(m)
	if m[path[0]] = without(m[path[0]], path[1:]); m[path[0]] == nil {
		delete(m, path[0])
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
