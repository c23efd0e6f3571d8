// Package args reads the arguments of a tool and the fields of a request's body:
// it checks their types and bounds, refuses unknown ones, and writes the errors,
// which tell whoever sent them what to send instead. It does not know what the
// arguments mean.
//
// Models write some values in other ways than a schema says. These are accepted
// everywhere: null for an absent argument, a number in a string, one text or the
// JSON text of a list where a list of texts is wanted, the JSON text of an
// object where an object is wanted, and an empty text for a choice not made.
package args

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
)

// Bounds, in bytes, of what an error repeats.
const (
	maxName  = 64  // of the name of an argument
	maxValue = 40  // of its value
	maxKnown = 400 // of a list of names
)

// Error says what is wrong with arguments.
type Error struct{ Problem string } // a sentence for whoever sent them

// Error returns Problem.
func (e *Error) Error() string { return e.Problem }

// Refuse returns an *Error.
func Refuse(format string, values ...any) error {
	return &Error{fmt.Sprintf(format, values...)}
}

// Arg is one argument and how it is read.
type Arg struct {
	name   string
	hidden bool
	read   func(name string, value json.RawMessage) error
}

// Hidden returns the argument, accepted but not named in errors.
func Hidden(a Arg) Arg {
	a.hidden = true
	return a
}

// Read reads the value of this argument alone. Absent bytes and null are no value.
func (a Arg) Read(value json.RawMessage) error {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	return a.read(a.name, value)
}

// Read reads the arguments that tool was called with, an object; absent bytes are
// an empty one. It reads up to the first that is wrong; its errors are *Error.
func Read(tool string, arguments json.RawMessage, known ...Arg) error {
	if given := bytes.TrimSpace(arguments); len(given) == 0 || string(given) == "null" { // clients send null for no arguments
		return nil
	}
	if !rawjson.IsObject(arguments) || !json.Valid(arguments) {
		return Refuse("the arguments must be a JSON object; %s takes %s", tool, names(known))
	}
	return read("argument", tool, "", arguments, known)
}

// ReadFields is Read of the body of a request, which has fields. The body must be
// valid JSON.
func ReadFields(request string, body json.RawMessage, known ...Arg) error {
	return read("field", request, "", body, known)
}

// read reads the members of an object. prefix precedes their names in errors.
func read(noun, owner, prefix string, object json.RawMessage, known []Arg) error {
	seen := make([]bool, len(known))
	for name, value := range rawjson.Members(object) {
		i := slices.IndexFunc(known, func(a Arg) bool { return a.name == name })
		switch {
		case i < 0:
			return unknownArg(noun, owner, name, known)
		case seen[i]:
			return Refuse("%s is given twice", prefix+name)
		}
		seen[i] = true
		if string(value) == "null" {
			continue
		}
		if err := known[i].read(prefix+name, value); err != nil {
			return err
		}
	}
	return nil
}

func unknownArg(noun, owner, name string, known []Arg) error {
	problem, near := unknown(noun, name, visible(known))
	if !near {
		problem += ";"
	}
	return &Error{problem + " " + owner + " takes " + names(known)}
}

// Unknown returns the error about a name that is none of known: what it may have
// meant, or else which there are. noun says what has the name.
func Unknown(noun, name string, known []string) error {
	problem, near := unknown(noun, name, known)
	switch {
	case near:
	case len(known) == 0:
		problem += "; there is none here"
	default:
		problem += "; there are " + rawjson.Clip(And(known), maxKnown)
	}
	return &Error{problem}
}

func unknown(noun, name string, known []string) (problem string, near bool) {
	problem = fmt.Sprintf("unknown %s %q", noun, rawjson.Clip(name, maxName))
	if meant := nearest.Names(name, known, 1, nearest.Loose); len(meant) > 0 {
		return fmt.Sprintf("%s; did you mean %q?", problem, meant[0]), true
	}
	return problem, false
}

func visible(known []Arg) (out []string) {
	for _, a := range known {
		if !a.hidden {
			out = append(out, a.name)
		}
	}
	return out
}

func names(known []Arg) string {
	if shown := visible(known); len(shown) > 0 {
		return And(shown)
	}
	return "none"
}

// And joins words as English does: a, b and c.
func And(words []string) string { return join(words, "and") }

// Or joins words as English does: a, b or c.
func Or(words []string) string { return join(words, "or") }

func join(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// Text is an argument that is text.
func Text[T ~string](name string, to *T) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		if json.Unmarshal(value, to) != nil {
			return mustBe(name, "text", value)
		}
		return nil
	}}
}

// OneOf is an argument that is one of some texts.
func OneOf[T ~string](name string, to *T, choices ...string) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		text := rawjson.Text(value)
		if string(value) == `""` {
			return nil
		}
		if !slices.Contains(choices, text) {
			return mustBe(name, "one of "+strings.Join(choices, ", "), value)
		}
		*to = T(text)
		return nil
	}}
}

// Bool is an argument that is true or false.
func Bool(name string, to *bool) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		if json.Unmarshal(value, to) != nil {
			return mustBe(name, "true or false", value)
		}
		return nil
	}}
}

// NoBound is for most in Int: any number up to 2,147,483,647.
const NoBound = math.MaxInt32

// Int is an argument that is a whole number from least to most.
func Int(name string, to *int, least, most int) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		n, ok := rawjson.Int(value)
		if !ok || n < least || n > most {
			return notInRange(name, value, least, most)
		}
		*to = n
		return nil
	}}
}

// IntPointer is Int of a number that is nil when it is absent.
func IntPointer(name string, to **int, least, most int) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		n := new(int)
		*to = n
		return Int(name, n, least, most).read(name, value)
	}}
}

func notInRange(name string, value []byte, least, most int) error {
	wanted := fmt.Sprintf("a whole number from %d", least)
	if most < NoBound {
		wanted += fmt.Sprintf(" to %d", most)
	}
	return mustBe(name, wanted, value)
}

// Texts is an argument that is a list of texts.
func Texts(name string, to *[]string) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		list := value
		if value[0] == '"' {
			text := rawjson.Text(value)
			if !strings.HasPrefix(strings.TrimSpace(text), "[") {
				*to = []string{text}
				return nil
			}
			list = json.RawMessage(text)
		}
		var all []*string
		if json.Unmarshal(list, &all) != nil || slices.Contains(all, nil) {
			return mustBe(name, `an array of texts, like ["a", "b"]`, value)
		}
		*to = make([]string, len(all))
		for i, text := range all {
			(*to)[i] = *text
		}
		return nil
	}}
}

// Trimmed returns texts without the space around them, and without empty ones.
func Trimmed(texts []string) []string {
	var out []string
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// Object is an argument that is an object, kept as its bytes.
func Object(name string, to *json.RawMessage) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		object, ok := asObject(value)
		if !ok {
			return mustBe(name, "an object", value)
		}
		*to = object
		return nil
	}}
}

// Members is an argument that is an object of other arguments. given, unless nil,
// becomes true when the object is there.
func Members(name string, given *bool, known ...Arg) Arg {
	return Arg{name: name, read: func(name string, value json.RawMessage) error {
		object, ok := asObject(value)
		if !ok {
			return mustBe(name, "an object of "+names(known), value)
		}
		if given != nil {
			*given = true
		}
		return read("argument of "+name, name, name+".", object, known)
	}}
}

// Func is an argument that is read by a function of its own. Its errors should be
// made with Refuse.
func Func(name string, read func(value json.RawMessage) error) Arg {
	return Arg{name: name, read: func(_ string, value json.RawMessage) error { return read(value) }}
}

// Raw is an argument that is any JSON, kept as its bytes.
func Raw(name string, to *json.RawMessage) Arg {
	return Func(name, func(value json.RawMessage) error { *to = value; return nil })
}

func asObject(value json.RawMessage) (json.RawMessage, bool) {
	if value[0] == '"' {
		value = json.RawMessage(strings.TrimSpace(rawjson.Text(value)))
	}
	return value, rawjson.IsObject(value) && json.Valid(value)
}

func mustBe(name, wanted string, value []byte) error {
	return Refuse("%s must be %s, not %s", name, wanted, rawjson.Clip(string(value), maxValue))
}
