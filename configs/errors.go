package configs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoConfig is wrapped by the error of Load when there is no file in any of
// the places it looks. The error's text names them and shows a minimal file.
var ErrNoConfig = errors.New("no configuration found")

// Error is one thing wrong with a configuration.
type Error struct {
	File    string // as the user would name it; "" for the environment and flags
	Line    int    // from 1; 0 when the place is no line of a file
	Column  int    // from 1, in characters; 0 when Line is 0
	Message string // what is wrong; never a value of env or headers, nor of a variable
	Hint    string // what to do, "" when the message says it
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

// Errors is everything wrong with a configuration: what is in the file in file
// order, then environment and flags. It is never empty when Load returns it.
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

// inOrder sorts by place, those without one last, and drops repetitions: an
// aliased value is checked wherever it is used.
func inOrder(errs []*Error) []*Error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		if a.Line == 0 || b.Line == 0 {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(errs, func(a, b *Error) bool { return *a == *b })
}

// faultOf says what is wrong with a server without its place and name, which the
// reader has or is not to see.
func faultOf(name string, broken []*Error) string {
	return reasonOf(fmt.Sprintf("server %q", shorten(name)), broken)
}

// reasonOf is the first of several errors about what label names, without it.
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

// shorten keeps a foreign key from filling a message.
func shorten(s string) string {
	const most = 64
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
