package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	internal "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Text is the source text of policies.
type Text struct {
	Cedar string
	File  string // name of its file, as the user would write it
	// Line and Column are the position of its first character in the file, from 1. Indent is the number of characters
	// before each of its other lines.
	Line, Column, Indent int
	// Escaped says that its line breaks are escaped in the file, as in JSON.
	Escaped bool
}

// Error is a fault in a policy, with its position.
type Error struct {
	File         string
	Line, Column int // from 1
	Message      string
	Hint         string // advice, "" if the message contains it
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (t Text) at(line, column int, message, hint string) *Error {
	switch {
	case t.Escaped:
		return &Error{t.File, t.Line, t.Column, message, hint}
	case line <= 1:
		return &Error{t.File, t.Line, t.Column + max(column, 1) - 1, message, hint}
	}
	return &Error{t.File, t.Line + line - 1, t.Indent + column, message, hint}
}

// Compile compiles policies. Without texts it returns nil, which allows everything. After any error it returns no
// policies: an omitted policy could be a forbid. sources are the valid sources of groups: a group of another source
// is an error. Without sources, no principal has groups, and any group is valid.
func Compile(texts []Text, sources ...string) (*Policies, []*Error) {
	if len(texts) == 0 {
		return nil, nil
	}
	p := &Policies{texts: texts, users: map[string]bool{}, groups: map[string]bool{}, members: map[string][]string{}}
	var wrong []*Error
	for _, text := range texts {
		list, err := cedar.NewPolicyListFromBytes(text.File, []byte(text.Cedar))
		if err != nil {
			wrong = append(wrong, text.unreadable(err))
			continue
		}
		for i, one := range list {
			end := len(text.Cedar)
			if i+1 < len(list) {
				end = list[i+1].Position().Offset
			}
			c := &checker{text: text, end: end, sources: sources, policies: p, policy: (*internal.Policy)(one.AST())}
			c.check()
			wrong = append(wrong, c.wrong...)
			place := text.at(one.Position().Line, one.Position().Column, "", "")
			by := By{File: place.File, Line: place.Line, Forbid: one.Effect() == cedar.Forbid, ID: string(one.Annotations()["id"])}
			if by.ID == "" {
				by.ID = fmt.Sprintf("%s:%d", by.File, by.Line)
			}
			p.all = append(p.all, rule{one, by})
			p.possible = p.possible.with((*internal.Policy)(one.AST()), by, asksArgs)
			p.someday = p.someday.with((*internal.Policy)(one.AST()), by, asksTool)
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return p, nil
}

// Forms of the syntax errors of the library. For an unwanted word, the library reports the position after the word.
var (
	parseError = regexp.MustCompile(`(\d+):(\d+):? ?(.*)$`)
	unwanted   = regexp.MustCompile(`exact got (.+) want (.+)$`)
)

func (t Text) unreadable(err error) *Error {
	found := parseError.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if found == nil {
		return t.at(1, 1, "policy: "+err.Error(), "")
	}
	line, _ := strconv.Atoi(found[1])
	column, _ := strconv.Atoi(found[2])
	if words := unwanted.FindStringSubmatch(found[3]); words != nil {
		line, column = t.before(line, column, words[1])
		return t.at(line, column, fmt.Sprintf("policy: %s where %s is expected", words[1], words[2]), "")
	}
	return t.at(line, column, "policy: cannot be read at "+found[3], "")
}

// before returns the position of the last occurrence of a word before a position; if there is none, that position.
func (t Text) before(line, column int, word string) (int, int) {
	lines := strings.SplitAfter(t.Cedar, "\n")
	if line > len(lines) {
		return line, column
	}
	last := []rune(lines[line-1])
	head := strings.Join(lines[:line-1], "") + string(last[:min(column-1, len(last))])
	at := strings.LastIndex(head, word)
	if at < 0 {
		return line, column
	}
	return strings.Count(head[:at], "\n") + 1, utf8.RuneCountInString(head[strings.LastIndexByte(head[:at], '\n')+1:at]) + 1
}

// with appends a weakened policy, unless that is nil.
func (r rules) with(p *internal.Policy, by By, unknown func(internal.IsNode) bool) rules {
	if weak := weakened(p, unknown); weak != nil {
		return append(r, rule{cedar.NewPolicyFromAST((*ast.Policy)(weak)), by})
	}
	return r
}

// weakened returns a policy without the conditions on something unknown. A forbid with such a condition might not
// apply, so the result is nil.
func weakened(p *internal.Policy, unknown func(internal.IsNode) bool) *internal.Policy {
	weak := *p
	weak.Conditions = nil
	for _, c := range p.Conditions {
		if !unknown(c.Body) {
			weak.Conditions = append(weak.Conditions, c)
			continue
		}
		if p.Effect == internal.EffectForbid {
			return nil
		}
		for _, part := range parts(c.Body, bool(c.Condition)) {
			if !unknown(part) {
				weak.Conditions = append(weak.Conditions, internal.ConditionType{Condition: c.Condition, Body: part})
			}
		}
	}
	return &weak
}

// parts returns the conditions that must all hold: of "when a && b", or of "unless a || b".
func parts(n internal.IsNode, when bool) []internal.IsNode {
	switch n := n.(type) {
	case internal.NodeTypeAnd:
		if when {
			return append(parts(n.Left, when), parts(n.Right, when)...)
		}
	case internal.NodeTypeOr:
		if !when {
			return append(parts(n.Left, when), parts(n.Right, when)...)
		}
	}
	return []internal.IsNode{n}
}

func asksArgs(n internal.IsNode) bool {
	return asks(n, func(of, attribute string) bool { return of == "context" && attribute == attributeArgs })
}

// asksTool reports whether a condition reads more about a tool than its server and view.
func asksTool(n internal.IsNode) bool {
	return asks(n, func(of, attribute string) bool {
		return of == "context" && attribute != attributeClient && attribute != attributeVia || of == "resource" && attribute == attributeName
	})
}

// isClient selects the name and version of the client, isScopes the scopes of the principal.
func isClient(of, attribute string) bool { return of == "context" && attribute == attributeClient }
func isScopes(of, attribute string) bool { return of == "principal" && attribute == attributeScopes }

// asksWhat reports whether a condition reads more than the principal, the client and the transport.
func asksWhat(n internal.IsNode) bool {
	found := asks(n, func(of, attribute string) bool {
		return of == "context" && attribute != attributeClient && attribute != attributeVia
	})
	internal.Inspect(internal.NewNode(n), func(n internal.IsNode) bool {
		variable, is := n.(internal.NodeTypeVariable)
		found = found || is && (variable.Name == "action" || variable.Name == "resource")
		return !found
	})
	return found
}

// asks reports whether a condition reads an attribute for which is returns true.
func asks(n internal.IsNode, is func(of, attribute string) bool) bool {
	found := false
	internal.Inspect(internal.NewNode(n), func(n internal.IsNode) bool {
		if of, attribute, ok := attributeOf(n); ok {
			variable, isVariable := of.(internal.NodeTypeVariable)
			found = found || isVariable && is(string(variable.Name), attribute)
		}
		return !found
	})
	return found
}

// attributeOf returns both sides of the expressions "x.attribute" and "x has attribute".
func attributeOf(n internal.IsNode) (of internal.IsNode, attribute string, ok bool) {
	switch n := n.(type) {
	case internal.NodeTypeAccess:
		return n.Arg, string(n.Value), true
	case internal.NodeTypeHas:
		return n.Arg, string(n.Value), true
	}
	return nil, "", false
}
