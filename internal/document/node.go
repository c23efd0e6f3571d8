// Package document reads, prints and edits files of YAML and JSON: a tree of values with their
// places, and edits that leave every other byte. It knows no key of any file.
package document

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Node is a value with its place in the file.
type Node struct {
	Kind      Kind
	Line      int // from 1; 0 for a value of no file
	Column    int // from 1, in characters
	Text      string
	WrittenAs string  // a key's name in the file, if Text is another
	Pairs     []Pair  // of a mapping
	Items     []*Node // of a list
}

// Pair is a member of a mapping.
type Pair struct {
	Key   *Node // of kind Text
	Value *Node
}

// Kind is the type of a value, in words for messages.
type Kind string

// The kinds of values.
const (
	Null    Kind = "nothing"
	Bool    Kind = "true or false"
	Number  Kind = "a number"
	Text    Kind = "text"
	List    Kind = "a list"
	Mapping Kind = "a mapping"
	Broken  Kind = "broken" // a Problem says why
)

// Outside reports whether the value comes from no file.
func (n *Node) Outside() bool { return n.Line == 0 }

// Find returns the value at a path of keys, or nil. Of duplicate keys the first counts.
func (n *Node) Find(path ...string) *Node {
	for _, key := range path {
		if n == nil {
			return nil
		}
		i := slices.IndexFunc(n.Pairs, func(p Pair) bool { return p.Key.Text == key })
		if i < 0 {
			return nil
		}
		n = n.Pairs[i].Value
	}
	return n
}

// Given is Find without values of kind Null.
func (n *Node) Given(key string) *Node {
	if v := n.Find(key); v != nil && v.Kind != Null {
		return v
	}
	return nil
}

// Fits reports whether a tree has at most left values, and counts them down.
func (n *Node) Fits(left *int) bool {
	*left--
	for _, item := range n.Items {
		if *left < 0 || !item.Fits(left) {
			return false
		}
	}
	for _, p := range n.Pairs {
		if *left < 0 || !p.Value.Fits(left) {
			return false
		}
	}
	return *left >= 0
}

// NewText returns a text of no file.
func NewText(s string) *Node { return &Node{Kind: Text, Text: s} }

// NewBool returns a truth value of no file.
func NewBool(v bool) *Node { return &Node{Kind: Bool, Text: strconv.FormatBool(v)} }

// Empty is the message for a file without content.
const Empty = "the file is empty"

// Problem says why a file, or a part of it, is no tree.
type Problem struct {
	Line, Column  int
	Message, Hint string
}

func (p *Problem) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// place turns ascending byte offsets into lines and columns. It walks the text once,
// because a file may be one line of megabytes.
type place struct {
	data         []byte
	offset       int
	line, column int
}

func newPlace(data []byte) *place { return &place{data: data, line: 1, column: 1} }

func (p *place) of(offset int) (line, column int) {
	for p.offset < min(offset, len(p.data)) {
		r, size := utf8.DecodeRune(p.data[p.offset:])
		p.offset += size
		p.column++
		if r == '\n' {
			p.line, p.column = p.line+1, 1
		}
	}
	return p.line, p.column
}
