package script

import (
	"slices"

	"go.starlark.net/syntax"
)

// placed is where a function is defined: which one it is.
type placed struct {
	file         string
	line, column int32
}

// literal is a dict that a function returns as it is written.
type literal struct {
	line int
	keys []string
}

func placeOf(at syntax.Position) placed { return placed{at.Filename(), at.Line, at.Col} }

// noteReturns keeps which dict literals the functions of a file return.
func (p *Program) noteReturns(file *syntax.File) {
	if p.returns == nil {
		p.returns = map[placed][]literal{}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if def, ok := n.(*syntax.DefStmt); ok {
			at := placeOf(def.Def)
			p.returns[at] = append(p.returns[at], literalsOf(def)...)
		}
		return true
	})
}

// literalsOf are the dict literals that a function returns, without those of functions
// inside it. One with a key that is not written as text is left out.
func literalsOf(def *syntax.DefStmt) (found []literal) {
	for _, statement := range def.Body {
		syntax.Walk(statement, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.DefStmt, *syntax.LambdaExpr:
				return false
			case *syntax.ReturnStmt:
				if keys, ok := keysOf(n.Result); ok {
					found = append(found, literal{int(n.Return.Line), keys})
				}
			}
			return true
		})
	}
	return found
}

func keysOf(of syntax.Expr) (keys []string, ok bool) {
	for {
		inner, parenthesised := of.(*syntax.ParenExpr)
		if !parenthesised {
			break
		}
		of = inner.X
	}
	dict, ok := of.(*syntax.DictExpr)
	if !ok {
		return nil, false
	}
	for _, one := range dict.List {
		entry, isEntry := one.(*syntax.DictEntry)
		if !isEntry {
			return nil, false
		}
		key, isLiteral := entry.Key.(*syntax.Literal)
		text, isText := "", false
		if isLiteral {
			text, isText = key.Value.(string)
		}
		if !isText {
			return nil, false
		}
		keys = append(keys, text)
	}
	return keys, true
}

// Returns is the first line on which the function returns a dict that is written with
// the key, and with no others than those in among; 0 for none.
func (f *Function) Returns(key string, among ...string) (line int) {
	for _, one := range f.program.returns[placeOf(f.fn.Position())] {
		others := slices.ContainsFunc(one.keys, func(k string) bool { return k != key && !slices.Contains(among, k) })
		if slices.Contains(one.keys, key) && !others {
			return one.line
		}
	}
	return 0
}
