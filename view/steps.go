package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/rawjson"
)

// usedSteps returns the steps that a template refers to. Unknown inputs and steps are errors.
func usedSteps(template json.RawMessage, inputs, keys []string) (used []int, err error) {
	_, err = fillIn(template, func(place string) (json.RawMessage, error) {
		if name, isInput := strings.CutPrefix(place, "inputs."); isInput {
			if !slices.Contains(inputs, name) {
				return nil, fmt.Errorf("unknown input %q (%s)", name, didYouMean(name, inputs))
			}
			return nil, nil
		}
		i, path := stepOf(place, keys)
		if i < 0 {
			return nil, fmt.Errorf("unknown step %q (%s)", path[0], didYouMean(path[0], keys))
		}
		used = append(used, i)
		return nil, nil
	})
	return used, err
}

// inOrder sorts steps, each after the steps that it waits for. waiting are the keys of steps that wait for each other.
func inOrder(steps []step) (order []int, waiting []string) {
	for progress := true; progress; {
		progress = false
		for i, s := range steps {
			ready := !slices.ContainsFunc(s.after, func(earlier int) bool { return !slices.Contains(order, earlier) })
			if ready && !slices.Contains(order, i) {
				order, progress = append(order, i), true
			}
		}
	}
	for i, s := range steps {
		if !slices.Contains(order, i) {
			waiting = append(waiting, s.key)
		}
	}
	return order, waiting
}

// stepOf returns the index of the step in "steps.key.path", and the path. For an unknown step, i is -1 and path begins
// with the key.
func stepOf(place string, keys []string) (i int, path []string) {
	place = strings.TrimPrefix(place, "steps.")
	i = -1
	for n, key := range keys { // a key may have dots
		if (place == key || strings.HasPrefix(place, key+".")) && (i < 0 || len(key) > len(keys[i])) {
			i = n
		}
	}
	if i < 0 {
		return i, strings.Split(place, ".")
	}
	if rest := strings.TrimPrefix(place[len(keys[i]):], "."); rest != "" {
		path = strings.Split(rest, ".")
	}
	return i, path
}

// resultAt returns the value of "steps.key.path".
func (c *composite) resultAt(place string, result func(int) (json.RawMessage, error)) (json.RawMessage, error) {
	var keys []string
	for _, s := range c.steps {
		keys = append(keys, s.key)
	}
	i, path := stepOf(place, keys)
	value, err := result(i)
	if err != nil {
		return nil, fmt.Errorf("it needs the result of step %s, which failed", keys[i])
	}
	for n, name := range path {
		if value, err = memberAt(value, name, n == 0); err != nil {
			return nil, fmt.Errorf("{%s}: the result of step %s %w", place, strings.Join(append([]string{keys[i]}, path[:n]...), "."), err)
		}
	}
	return value, nil
}

// memberAt returns a member or element of a value. At the beginning of a path, the name json parses a text and leaves
// other values unchanged.
func memberAt(value json.RawMessage, name string, first bool) (json.RawMessage, error) {
	member, isText := rawjson.Member(value, name), value[0] == '"'
	switch {
	case member != nil:
		return member, nil
	case first && name == "json" && isText:
		text := strings.TrimSpace(rawjson.Text(value))
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("is not JSON but text: %s", excerpt(value))
		}
		return json.RawMessage(text), nil
	case first && name == "json":
		return value, nil
	case value[0] == '[':
		n := 0
		for element := range rawjson.Elements(value) {
			if strconv.Itoa(n) == name {
				return element, nil
			}
			n++
		}
		return nil, fmt.Errorf("is a list of %d, without a number %s", n, name)
	case isText && first:
		return nil, fmt.Errorf("is text; where it is JSON, write .json.%s", name)
	}
	var names []string
	for name := range rawjson.Members(value) {
		names = append(names, name)
	}
	return nil, fmt.Errorf("has no %q; it has %s", name, rawjson.Clip(orNothing(names), 200))
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "no members"
	}
	return strings.Join(names, ", ")
}
