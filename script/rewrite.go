package script

import (
	"fmt"

	"go.starlark.net/syntax"
)

// The interpreter bounds steps but no memory, and a single step may make a
// gigabyte or run for hours. So before a file is compiled, every expression whose
// cost depends on its operands becomes a call of a metered builtin. Their names
// begin with $, which no script can spell. Positions stay those of the source.

// maxSyntaxDepth bounds the depth of a syntax tree: the compiler recurses, also
// down chains such as a+b+c, which the parser builds in a loop.
const maxSyntaxDepth = 1500

// maxParams bounds the parameters of a function.
const maxParams = 255

type rewriter struct{ depth int }

// unsupported is what a rewriter panics with.
type unsupported struct {
	at      syntax.Position
	message string
}

// rewrite changes a file in place.
func rewrite(file *syntax.File) (err error) {
	defer func() {
		switch caught := recover().(type) {
		case nil:
		case unsupported:
			err = syntax.Error{Pos: caught.at, Msg: caught.message}
		default:
			panic(caught)
		}
	}()
	w := &rewriter{}
	file.Stmts = w.stmts(file.Stmts)
	return nil
}

func (w *rewriter) enter(node syntax.Node) {
	if w.depth++; w.depth > maxSyntaxDepth {
		// The position of a node is that of its leftmost leaf, so finding it recurses
		// as well, but does no more.
		panic(unsupported{syntax.Start(node), fmt.Sprintf("nested deeper than %d", maxSyntaxDepth)})
	}
}

func (w *rewriter) stmts(list []syntax.Stmt) (out []syntax.Stmt) {
	for _, stmt := range list {
		out = append(out, w.stmt(stmt))
		if def, ok := stmt.(*syntax.DefStmt); ok {
			name := &syntax.Ident{NamePos: def.Name.NamePos, Name: def.Name.Name}
			out = append(out, &syntax.ExprStmt{X: call(def.Def, "$made", name)})
		}
	}
	return out
}

func (w *rewriter) stmt(stmt syntax.Stmt) syntax.Stmt {
	w.enter(stmt)
	defer func() { w.depth-- }()
	switch s := stmt.(type) {
	case *syntax.AssignStmt:
		return w.assign(s)
	case *syntax.DefStmt:
		w.params(s.Params)
		s.Body = w.stmts(s.Body)
	case *syntax.ExprStmt:
		if _, literal := s.X.(*syntax.Literal); !literal { // a docstring stays one
			s.X = w.expr(s.X)
		}
	case *syntax.ForStmt:
		s.Vars = w.target(s.Vars)
		s.X = w.expr(s.X)
		s.Body = w.stmts(s.Body)
	case *syntax.IfStmt:
		s.Cond = w.expr(s.Cond)
		s.True = w.stmts(s.True)
		s.False = w.stmts(s.False)
	case *syntax.ReturnStmt:
		if s.Result != nil {
			s.Result = w.expr(s.Result)
		}
	case *syntax.WhileStmt:
		panic(unsupported{s.While, "while is not supported"})
	case *syntax.BranchStmt, *syntax.LoadStmt:
	default:
		panic(unsupported{syntax.Start(stmt), "statement not supported"})
	}
	return stmt
}

// augmented gives the operator of an augmented assignment.
var augmented = map[syntax.Token]syntax.Token{
	syntax.PLUS_EQ: syntax.PLUS, syntax.MINUS_EQ: syntax.MINUS, syntax.STAR_EQ: syntax.STAR,
	syntax.SLASH_EQ: syntax.SLASH, syntax.SLASHSLASH_EQ: syntax.SLASHSLASH, syntax.PERCENT_EQ: syntax.PERCENT,
	syntax.AMP_EQ: syntax.AMP, syntax.PIPE_EQ: syntax.PIPE, syntax.CIRCUMFLEX_EQ: syntax.CIRCUMFLEX,
	syntax.LTLT_EQ: syntax.LTLT, syntax.GTGT_EQ: syntax.GTGT,
}

func (w *rewriter) assign(s *syntax.AssignStmt) syntax.Stmt {
	if s.Op == syntax.EQ {
		s.RHS = w.expr(s.RHS)
		s.LHS = w.target(s.LHS)
		return s
	}
	right := w.expr(s.RHS)
	switch s.Op {
	case syntax.PERCENT_EQ, syntax.LTLT_EQ, syntax.GTGT_EQ:
		// These do not ask the right operand how (see late).
		name, ok := s.LHS.(*syntax.Ident)
		if !ok {
			panic(unsupported{s.OpPos, fmt.Sprintf("%s works on plain names only: write it as an assignment of x %s y", s.Op, augmented[s.Op])})
		}
		left := &syntax.Ident{NamePos: name.NamePos, Name: name.Name}
		return &syntax.AssignStmt{OpPos: s.OpPos, Op: syntax.EQ, LHS: name, RHS: call(s.OpPos, "$"+augmented[s.Op].String(), left, right)}
	}
	s.RHS = call(s.OpPos, "$late", right)
	s.LHS = w.target(s.LHS)
	return s
}

// target is what is assigned to.
func (w *rewriter) target(e syntax.Expr) syntax.Expr {
	w.enter(e)
	defer func() { w.depth-- }()
	switch e := e.(type) {
	case *syntax.IndexExpr:
		e.X = w.expr(e.X)
		e.Y = call(e.Lbrack, "$put", w.expr(e.Y))
	case *syntax.DotExpr:
		e.X = w.expr(e.X)
	case *syntax.ParenExpr:
		e.X = w.target(e.X)
	case *syntax.ListExpr:
		w.targets(e.List)
	case *syntax.TupleExpr:
		w.targets(e.List)
	}
	return e
}

func (w *rewriter) targets(list []syntax.Expr) {
	for i, e := range list {
		list[i] = w.target(e)
	}
}

func (w *rewriter) params(list []syntax.Expr) {
	if len(list) > maxParams { // passing them by name takes quadratic time
		panic(unsupported{syntax.Start(list[maxParams]), fmt.Sprintf("more than %d parameters", maxParams)})
	}
	for _, param := range list {
		if named, ok := param.(*syntax.BinaryExpr); ok {
			named.Y = w.expr(named.Y)
		}
	}
}

func (w *rewriter) exprs(list []syntax.Expr) {
	for i, e := range list {
		list[i] = w.expr(e)
	}
}

// expr is an expression whose value is wanted.
func (w *rewriter) expr(e syntax.Expr) syntax.Expr {
	w.enter(e)
	defer func() { w.depth-- }()
	switch e := e.(type) {
	case *syntax.Ident, *syntax.Literal:
	case *syntax.ParenExpr:
		e.X = w.expr(e.X)
	case *syntax.BinaryExpr:
		return w.binary(e)
	case *syntax.UnaryExpr:
		e.X = w.expr(e.X)
		if e.Op != syntax.NOT && !isLiteral(e.X) {
			return call(e.OpPos, "$unary"+e.Op.String(), e.X)
		}
	case *syntax.CallExpr:
		e.Fn = w.expr(e.Fn)
		w.args(e.Args)
	case *syntax.DotExpr:
		name := &syntax.Literal{Token: syntax.STRING, TokenPos: e.NamePos, Value: e.Name.Name}
		return call(e.Dot, "$attr", w.expr(e.X), name)
	case *syntax.IndexExpr:
		e.X = w.expr(e.X)
		if e.Y = w.expr(e.Y); !isLiteral(e.Y) {
			e.Y = call(e.Lbrack, "$key", e.Y)
		}
	case *syntax.SliceExpr:
		return call(e.Lbrack, "$slice", w.expr(e.X), w.optional(e.Lo, e.Lbrack), w.optional(e.Hi, e.Lbrack), w.optional(e.Step, e.Lbrack))
	case *syntax.CondExpr:
		e.Cond, e.True, e.False = w.expr(e.Cond), w.expr(e.True), w.expr(e.False)
	case *syntax.Comprehension:
		w.comprehension(e)
		if _, dict := e.Body.(*syntax.DictEntry); dict {
			return call(e.Lbrack, "$made", e)
		}
	case *syntax.ListExpr:
		if w.exprs(e.List); len(e.List) > 0 {
			return call(e.Lbrack, "$made", e)
		}
	case *syntax.TupleExpr:
		if w.exprs(e.List); len(e.List) > 0 {
			return call(syntax.Start(e), "$made", e)
		}
	case *syntax.DictExpr:
		for _, entry := range e.List {
			entry := entry.(*syntax.DictEntry)
			entry.Value = w.expr(entry.Value)
			if entry.Key = w.expr(entry.Key); !isLiteral(entry.Key) {
				entry.Key = call(entry.Colon, "$key", entry.Key)
			}
		}
		return call(e.Lbrace, "$made", e)
	case *syntax.LambdaExpr:
		w.params(e.Params)
		e.Body = w.expr(e.Body)
		return call(e.Lambda, "$made", e)
	default:
		panic(unsupported{syntax.Start(e), "expression not supported"})
	}
	return e
}

func (w *rewriter) binary(e *syntax.BinaryExpr) syntax.Expr {
	e.X, e.Y = w.expr(e.X), w.expr(e.Y)
	switch e.Op {
	case syntax.AND, syntax.OR:
		return e
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		if isLiteral(e.X) || isLiteral(e.Y) { // costs no more than the literal is long
			return e
		}
	}
	return call(e.OpPos, "$"+e.Op.String(), e.X, e.Y)
}

func (w *rewriter) args(list []syntax.Expr) {
	for i, arg := range list {
		switch arg := arg.(type) {
		case *syntax.BinaryExpr:
			if arg.Op == syntax.EQ {
				arg.Y = w.expr(arg.Y)
				continue
			}
		case *syntax.UnaryExpr:
			if arg.Op == syntax.STAR || arg.Op == syntax.STARSTAR {
				arg.X = call(arg.OpPos, "$"+arg.Op.String()+"args", w.expr(arg.X))
				continue
			}
		}
		list[i] = w.expr(arg)
	}
}

func (w *rewriter) comprehension(e *syntax.Comprehension) {
	for _, clause := range e.Clauses {
		switch clause := clause.(type) {
		case *syntax.ForClause:
			clause.Vars = w.target(clause.Vars)
			clause.X = w.expr(clause.X)
		case *syntax.IfClause:
			clause.Cond = w.expr(clause.Cond)
		}
	}
	if entry, ok := e.Body.(*syntax.DictEntry); ok {
		entry.Key = call(entry.Colon, "$put", w.expr(entry.Key))
		entry.Value = w.expr(entry.Value)
		return
	}
	e.Body = call(e.Lbrack, "$item", w.expr(e.Body))
}

func (w *rewriter) optional(e syntax.Expr, at syntax.Position) syntax.Expr {
	if e == nil {
		return &syntax.Ident{NamePos: at, Name: "$none"}
	}
	return w.expr(e)
}

func isLiteral(e syntax.Expr) bool {
	_, ok := e.(*syntax.Literal)
	return ok
}

func call(at syntax.Position, name string, args ...syntax.Expr) *syntax.CallExpr {
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: at, Name: name}, Lparen: at, Args: args, Rparen: at}
}
