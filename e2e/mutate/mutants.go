package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one file with one change.
type mutant struct {
	file, function string // function is "" outside of functions
	line           int
	kind           string
	from, to       int // offsets of what is replaced
	text           string
	body           [2]int // offsets of the inside of its function
	results        bool   // its function returns something
}

// apply returns the file with the change.
func (m mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.from], []byte(m.text), src[m.to:])
}

// together returns a file in which each function also has its changed bodies. The program takes the one
// whose number is in mutantTried.
func together(src []byte, file string, mutants []mutant) []byte {
	choices := map[int]string{}
	for id, m := range mutants {
		if m.file != file {
			continue
		}
		leave := ""
		if !m.results {
			leave = "return"
		}
		choices[m.body[0]] += fmt.Sprintf("if mutantTried == \"%d\" {%s%s%s\n%s\n}\n", id, src[m.body[0]:m.from], m.text, src[m.to:m.body[1]], leave)
	}
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(choices))) {
		src = slices.Concat(src[:at], []byte(choices[at]), src[at:])
	}
	return src
}

// String is the line that is printed: the place, the change, the source line.
func (m mutant) String(src []byte) string {
	begin := strings.LastIndexByte(string(src[:m.from]), '\n') + 1
	line, _, _ := strings.Cut(string(src[begin:]), "\n")
	return fmt.Sprintf("%s `%s` -> `%s` in `%s`", m.kind, clip(string(src[m.from:m.to])), clip(m.text), clip(line))
}

func clip(text string) string {
	if text = strings.Join(strings.Fields(text), " "); len(text) > 70 {
		text = text[:67] + "..."
	}
	return text
}

// mistaken are operators, and which one each is mistaken for.
var mistaken = map[token.Token]struct {
	by   token.Token
	kind string
}{
	token.LSS: {token.LEQ, "boundary"}, token.LEQ: {token.LSS, "boundary"}, token.GTR: {token.GEQ, "boundary"}, token.GEQ: {token.GTR, "boundary"},
	token.EQL: {token.NEQ, "negate"}, token.NEQ: {token.EQL, "negate"}, token.LAND: {token.LOR, "and-or"}, token.LOR: {token.LAND, "and-or"},
	token.ADD: {token.SUB, "plus-minus"}, token.SUB: {token.ADD, "plus-minus"},
}

// finder collects the mutants of one file, also some that do not compile.
type finder struct {
	fset *token.FileSet
	path string
	src  []byte
	fn   *ast.FuncDecl // nil outside of functions
	typ  *ast.FuncType // of the innermost function
	all  []mutant
}

func mutantsOf(fset *token.FileSet, path string, file *ast.File, src []byte) []mutant {
	f := &finder{fset: fset, path: path, src: src}
	for _, decl := range file.Decls {
		f.fn, f.typ = nil, nil
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.fn, f.typ = fn, fn.Type
		}
		ast.Inspect(decl, f.visit)
	}
	return f.all
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		outer := f.typ
		f.typ = n.Type
		ast.Inspect(n.Body, f.visit)
		f.typ = outer
		return false
	case *ast.ImportSpec, *ast.FuncType, *ast.ArrayType:
		return false
	case *ast.IfStmt:
		if n.Init == nil && n.Else == nil && slices.ContainsFunc(n.Body.List, func(s ast.Stmt) bool { return !isLog(s) }) {
			f.add("if-body", n.Body, "{}")
		}
		if b, ok := n.Cond.(*ast.BinaryExpr); !ok || mistaken[b.Op].kind != "negate" {
			f.add("negate", n.Cond, "!("+f.text(n.Cond)+")")
		}
	case *ast.BinaryExpr:
		if other, ok := mistaken[n.Op]; ok {
			f.replace(other.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.by.String())
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			f.add("constant", n, map[bool]string{true: strconv.FormatInt(v+1, 10), false: "0"}[v <= 10])
		}
	case *ast.BranchStmt:
		if other := map[token.Token]string{token.BREAK: "continue", token.CONTINUE: "break"}[n.Tok]; other != "" && n.Label == nil {
			f.add("break-continue", n, other)
		}
	case *ast.ReturnStmt:
		f.zero(n)
	case *ast.CallExpr:
		if isLog(n) || f.text(n.Fun) == "make" { // capacities change nothing
			return false
		}
		f.swap(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.add("drop-assignment", n, "")
		}
	case *ast.IncDecStmt:
		f.add("drop-assignment", n, "")
	case *ast.ForStmt: // without its steps it would run for ever
		ast.Inspect(n.Body, f.visit)
		if n.Cond != nil {
			ast.Inspect(n.Cond, f.visit)
		}
		return false
	case *ast.ExprStmt:
		if !isLog(n) {
			f.add("drop-call", n, "")
		}
	case *ast.DeferStmt:
		f.add("drop-defer", n, "")
	}
	return true
}

// zero returns zero values where something else was returned.
func (f *finder) zero(n *ast.ReturnStmt) {
	if f.typ == nil || f.typ.Results == nil || len(n.Results) != f.typ.Results.NumFields() {
		return
	}
	var zeros []string
	for _, field := range f.typ.Results.List {
		zeros = append(zeros, slices.Repeat([]string{"*new(" + f.text(field.Type) + ")"}, max(1, len(field.Names)))...)
	}
	isZero := func(e ast.Expr) bool {
		return slices.Contains([]string{"nil", "false", "0", `""`}, f.text(e)) || strings.HasSuffix(f.text(e), "{}")
	}
	if slices.ContainsFunc(n.Results, func(e ast.Expr) bool { return !isZero(e) }) {
		f.add("return-zero", n, "return "+strings.Join(zeros, ", "))
	}
}

// swap exchanges two arguments that stand side by side.
func (f *finder) swap(n *ast.CallExpr) {
	if slices.Contains([]string{"min", "max", "strings.EqualFold", "bytes.Equal"}, f.text(n.Fun)) {
		return
	}
	for i := 1; i < len(n.Args); i++ {
		if a, b := f.text(n.Args[i-1]), f.text(n.Args[i]); a != b {
			f.replace("swap-arguments", n.Args[i-1].Pos(), n.Args[i].End(), b+", "+a)
		}
	}
}

func (f *finder) text(n ast.Node) string {
	return string(f.src[f.fset.Position(n.Pos()).Offset:f.fset.Position(n.End()).Offset])
}

func (f *finder) add(kind string, n ast.Node, text string) { f.replace(kind, n.Pos(), n.End(), text) }

func (f *finder) replace(kind string, from, to token.Pos, text string) {
	p := f.fset.Position(from)
	m := mutant{file: f.path, line: p.Line, kind: kind, from: p.Offset, to: f.fset.Position(to).Offset, text: text}
	if f.fn != nil {
		m.function = f.fn.Name.Name
		if f.fn.Recv != nil {
			m.function = strings.TrimLeft(f.text(f.fn.Recv.List[0].Type), "*") + "." + m.function
		}
		m.body = [2]int{f.fset.Position(f.fn.Body.Lbrace).Offset + 1, f.fset.Position(f.fn.Body.Rbrace).Offset}
		m.results = f.fn.Type.Results != nil
	}
	f.all = append(f.all, m)
}

// isLog reports whether a call writes a log line or panics: neither is a promise.
func isLog(n ast.Node) bool {
	if s, ok := n.(*ast.ExprStmt); ok {
		n = s.X
	}
	name := ""
	if c, ok := n.(*ast.CallExpr); ok {
		switch fn := c.Fun.(type) {
		case *ast.SelectorExpr:
			name = fn.Sel.Name
		case *ast.Ident:
			name = fn.Name
		}
	}
	return slices.Contains([]string{"Debug", "Info", "Warn", "Error", "panic"}, strings.TrimSuffix(name, "Context"))
}

// order shuffles mutants by a seed. The first of each function come first, then the second ones, and so on.
func order(all []mutant, seed uint64) []mutant {
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	round, seen := map[mutant]int{}, map[string]int{}
	for _, m := range all {
		round[m] = seen[m.file+m.function]
		seen[m.file+m.function]++
	}
	slices.SortStableFunc(all, func(a, b mutant) int { return cmp.Compare(round[a], round[b]) })
	return all
}
