package configs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoConfig says that Load found no file. Errors that wrap it name the folders.
var ErrNoConfig = errors.New("no configuration found")

// Error is one error of a configuration.
type Error struct {
	File    string // path for messages; "" for the environment and flags
	Line    int    // from 1; 0 for no line
	Column  int    // from 1, in characters; 0 if Line is 0
	Message string // never holds a value of env, headers or variables
	Hint    string // what to do; may be ""
}

// Error returns one line: file:line:column: message (hint).
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
		if e.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
		}
		b.WriteString(" ")
	}
	b.WriteString(e.Message)
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Errors are all errors of a configuration: the file's in its order, then those of
// environment and flags. Load never returns it empty.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find an *Error.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// inOrder sorts errors by place, errors without a place last. It drops repetitions, because
// each use of an alias is checked.
func inOrder(errs []*Error) []*Error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		if a.Line == 0 || b.Line == 0 {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(errs, func(a, b *Error) bool { return *a == *b })
}

// faultOf describes the errors of a server without its name and place.
func faultOf(name string, broken []*Error) string {
	return reasonOf(fmt.Sprintf("server %q", shorten(name)), broken)
}

// reasonOf is the first error without its label, and the number of further errors.
func reasonOf(label string, broken []*Error) string {
	text := strings.TrimLeft(strings.TrimPrefix(broken[0].Message, label), ": ")
	if broken[0].Hint != "" {
		text += " (" + broken[0].Hint + ")"
	}
	if more := len(broken) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// shorten bounds a text of the file in a message.
func shorten(s string) string {
	const most = 64
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
