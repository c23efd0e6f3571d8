package script

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// Bounds of regular expressions.
const (
	maxPattern   = 10_000 // bytes of one
	maxProgram   = 50_000 // instructions that one compiles to, about
	maxParts     = 1000   // of what replaces a match
	maxGroupName = 256    // bytes in a replacement
	// keptSize bounds the patterns that are kept compiled, and a hundredth of it each
	// of them. A unit is an instruction, about 500 bytes.
	keptSize = 20_000
	// shortWork bounds the parts of a pattern times the places of a text that are
	// matched at a stretch. More is matched reading the text, which can be stopped.
	shortWork = 100_000_000
)

// pattern is a compiled regular expression.
type pattern struct {
	*regexp.Regexp
	size  int                            // instructions, about
	inner string                         // its source such that it can stand in parentheses
	later func() (*regexp.Regexp, error) // matches one character, and then what this does
}

// patterns are the regular expressions that were used last. The lock guards the
// map and the size of all in it, and is never held while one is compiled.
var patterns = struct {
	sync.Mutex
	size int
	kept map[string]*pattern
}{kept: map[string]*pattern{}}

// compilePattern compiles a regular expression of RE2's syntax.
func (r *run) compilePattern(source string) (*pattern, error) {
	patterns.Lock()
	kept := patterns.kept[source]
	patterns.Unlock()
	if kept != nil {
		return kept, nil
	}
	if len(source) > maxPattern {
		return nil, limitError("%d bytes of a regular expression", maxPattern)
	}
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		if text := err.Error(); strings.Contains(text, "(?=") || strings.Contains(text, "(?!") || strings.Contains(text, "(?<") {
			return nil, fmt.Errorf("%w (there is no looking ahead or behind)", err)
		}
		return nil, err
	}
	size, classes := programSize(tree)
	if size+classes > maxProgram {
		return nil, limitError("%d parts of a regular expression, its repetitions written out", maxProgram)
	}
	cost := size + classes/8
	if err := r.allocN(2*cost, 500); err != nil { // twice, for later
		return nil, err
	}
	if err := r.workN(cost, workPerStep); err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(source)
	if err != nil {
		return nil, err
	}
	made := &pattern{Regexp: compiled, size: size, inner: source}
	if strings.Contains(source, `\Q`) { // it may quote to the end
		made.inner = tree.String()
	}
	made.later = sync.OnceValues(func() (*regexp.Regexp, error) { return regexp.Compile("(?s:.)(?:" + made.inner + ")") })
	if cost > keptSize/100 {
		return made, nil // keeping is for what is cheap to keep
	}
	patterns.Lock()
	defer patterns.Unlock()
	if patterns.size += cost; patterns.size > keptSize {
		clear(patterns.kept)
		patterns.size = cost
	}
	patterns.kept[strings.Clone(source)] = made
	return made, nil
}

// programSize is how large an expression is once repetitions are written out, and
// the ends of all ranges in its character classes, which repetitions share.
func programSize(tree *syntax.Regexp) (size, classes int) {
	size = 1
	switch tree.Op {
	case syntax.OpLiteral:
		size = len(tree.Rune)
	case syntax.OpCharClass:
		classes = len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		more, ranges := programSize(sub)
		size += more
		classes += ranges
	}
	if tree.Op == syntax.OpRepeat {
		size *= max(tree.Min, tree.Max, 1)
	}
	return min(size, 1<<30), classes
}

// perPlace is what a pattern costs at each place of a text: each of its parts may
// be tried there, and takes the groups along.
func (p *pattern) perPlace() int { return p.size * (8 + p.NumSubexp()) / 4 }

// allocMatch is called before a pattern is matched.
func (r *run) allocMatch(p *pattern) error {
	return r.allocN(p.size+1, 64+16*(p.NumSubexp()+1))
}

// place reads a text for a matcher, and charges for what is read.
type place struct {
	r    *run
	cost int // of a character
	s    string
	i    int
	err  error // that ended the run: the text seems to end
}

func (t *place) ReadRune() (rune, int, error) {
	if t.err == nil {
		t.err = t.r.work(t.cost)
	}
	if t.i >= len(t.s) || t.err != nil {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRuneInString(t.s[t.i:])
	t.i += size
	return c, size, nil
}

// find returns the offsets of the groups of the first match at pos or later, nil
// without one.
func (r *run) find(p *pattern, s string, pos int) ([]int, error) {
	if pos == 0 && len(s)*p.perPlace() <= shortWork {
		if err := r.workN(len(s), p.perPlace()); err != nil {
			return nil, err
		}
		return p.FindStringSubmatchIndex(s), nil
	}
	matcher, from := p.Regexp, 0
	if pos > 0 { // what is before decides whether ^ and \b match
		var err error
		if matcher, err = p.later(); err != nil {
			return nil, err
		}
		_, size := utf8.DecodeLastRuneInString(s[:pos])
		from = pos - size
	}
	text := &place{r: r, cost: max(p.perPlace(), nodeWork), s: s[from:]}
	at := matcher.FindReaderSubmatchIndex(text)
	if text.err != nil || at == nil {
		return nil, text.err
	}
	for i := range at {
		if at[i] >= 0 {
			at[i] += from
		}
	}
	if pos > 0 {
		_, size := utf8.DecodeRuneInString(s[at[0]:])
		at[0] += size
	}
	return at, nil
}

// matches finds at most n matches, all for a negative n, each as offsets of the
// groups. An empty one right behind another is none.
func (r *run) matches(p *pattern, s string, n int) ([][]int, error) {
	if err := r.allocMatch(p); err != nil {
		return nil, err
	}
	each := 2 * (64 + 16*(p.NumSubexp()+1))
	if len(s) <= shortWork/max(1, len(s)*p.perPlace()) { // each match may look at all that follows
		if err := r.workN(len(s), p.perPlace()); err != nil {
			return nil, err
		}
		room := int(r.memory/int64(each)) + 1
		if n < 0 || n > room {
			n = room
		}
		found := p.FindAllStringSubmatchIndex(s, n)
		return found, r.allocN(len(found), each)
	}
	return r.matchesInTurn(p, s, n, each)
}

// matchesInTurn is matches such that it can be stopped; each takes so many bytes.
func (r *run) matchesInTurn(p *pattern, s string, n, each int) (found [][]int, err error) {
	for pos, end := 0, -1; pos <= len(s) && len(found) != n; {
		if err := r.work(workPerStep); err != nil {
			return nil, err
		}
		at, err := r.find(p, s, pos)
		if err != nil {
			return nil, err
		}
		if at == nil {
			break
		}
		if at[1] > at[0] || at[0] != end {
			if err := r.alloc(int64(each)); err != nil {
				return nil, err
			}
			found = append(found, at)
		}
		end = at[1]
		if pos = end; at[1] == at[0] {
			_, size := utf8.DecodeRuneInString(s[pos:])
			pos += max(size, 1)
		}
	}
	return found, nil
}

// reFunction is a function of a pattern, a text, and what more unpack takes.
func reFunction(name string, do func(r *run, p *pattern, s string, more *reArgs) (starlark.Value, error), extra ...string) *starlark.Builtin {
	name = "re." + name
	return builtin(name, func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var source, s string
		var more reArgs
		pairs := []any{"pattern", &source}
		for _, param := range extra {
			switch param {
			case "repl":
				pairs = append(pairs, "repl", &more.repl)
			case "count?":
				pairs = append(pairs, "count?", &more.count)
			case "maxsplit?":
				pairs = append(pairs, "maxsplit?", &more.count)
			case "text":
				pairs = append(pairs, "text", &s)
			}
		}
		if len(extra) == 0 {
			pairs = append(pairs, "text", &s)
		}
		if err := starlark.UnpackArgs(name, args, kwargs, pairs...); err != nil {
			return nil, err
		}
		p, err := r.compilePattern(source)
		if err == nil {
			var v starlark.Value
			if v, err = do(r, p, s, &more); err == nil {
				return v, nil
			}
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	})
}

// reArgs are what some functions take beside pattern and text.
type reArgs struct {
	repl  string
	count int // 0 for all
}

// most is count as Go's functions take it.
func (a *reArgs) most() int {
	if a.count <= 0 {
		return -1
	}
	return a.count
}

var reModule = module("re", starlark.StringDict{
	"search": reFunction("search", func(r *run, p *pattern, s string, _ *reArgs) (starlark.Value, error) {
		return r.first(p, p, s)
	}),
	"match":     anchored("match", `\A(?:%s)`),
	"fullmatch": anchored("fullmatch", `\A(?:%s)\z`),
	"findall": reFunction("findall", func(r *run, p *pattern, s string, _ *reArgs) (starlark.Value, error) {
		found, err := r.matches(p, s, -1)
		if err != nil {
			return nil, err
		}
		if err := r.allocN(len(found), 4*sizeSlot+2*sizeSlot*p.NumSubexp()); err != nil {
			return nil, err
		}
		out := make([]starlark.Value, len(found))
		for i, at := range found {
			m := &match{p: p, s: s, at: at}
			switch p.NumSubexp() {
			case 0:
				out[i] = starlark.String(m.text(0))
			case 1:
				out[i] = starlark.String(m.text(1))
			default:
				out[i] = m.groups(func(i int) starlark.Value { return starlark.String(m.text(i)) })
			}
		}
		return starlark.NewList(out), nil
	}),
	"split": reFunction("split", func(r *run, p *pattern, s string, more *reArgs) (starlark.Value, error) {
		found, err := r.matches(p, s, more.most())
		if err != nil {
			return nil, err
		}
		if err := r.allocN(len(found)+1, 3*sizeSlot); err != nil {
			return nil, err
		}
		out := make([]starlark.Value, 0, len(found)+1)
		from := 0
		for _, at := range found {
			out = append(out, starlark.String(s[from:at[0]]))
			from = at[1]
		}
		return starlark.NewList(append(out, starlark.String(s[from:]))), nil
	}, "text", "maxsplit?"),
	"sub": reFunction("sub", substitute, "repl", "text", "count?"),
	"escape": builtin("re.escape", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var s string
		if err := starlark.UnpackPositionalArgs("re.escape", args, kwargs, 1, &s); err != nil {
			return nil, err
		}
		if err := r.alloc(int64(4 * len(s))); err != nil {
			return nil, err
		}
		return starlark.String(regexp.QuoteMeta(s)), nil
	}),
})

// anchored is a function that matches at the beginning of the text.
func anchored(name, format string) *starlark.Builtin {
	return reFunction(name, func(r *run, p *pattern, s string, _ *reArgs) (starlark.Value, error) {
		around, err := r.compilePattern(fmt.Sprintf(format, p.inner))
		if err != nil {
			return nil, err
		}
		return r.first(around, p, s)
	})
}

// first is the first match, or None.
func (r *run) first(p, shown *pattern, s string) (starlark.Value, error) {
	if err := r.allocMatch(p); err != nil {
		return nil, err
	}
	at, err := r.find(p, s, 0)
	if err != nil {
		return nil, err
	}
	if at == nil {
		return starlark.None, nil
	}
	return &match{p: shown, s: s, at: at}, r.alloc(int64(64 + 16*len(at)))
}

// substitute is re.sub: in repl \1 and \g<name> stand for groups.
func substitute(r *run, p *pattern, s string, more *reArgs) (starlark.Value, error) {
	if strings.Count(more.repl, `\`) > maxParts {
		return nil, limitError("%d backslashes in what replaces a match", maxParts)
	}
	template, err := parseTemplate(p, more.repl)
	if err != nil {
		return nil, err
	}
	found, err := r.matches(p, s, more.most())
	if err != nil {
		return nil, err
	}
	if err := r.workN(len(found), len(template)*nodeWork); err != nil {
		return nil, err
	}
	size := int64(len(s))
	for _, at := range found {
		for _, part := range template {
			size += int64(len(part.text))
			if part.text == "" && at[2*part.group] >= 0 {
				size += int64(at[2*part.group+1] - at[2*part.group])
			}
		}
		if size > r.memory {
			return nil, r.alloc(-1)
		}
	}
	if err := r.alloc(size); err != nil {
		return nil, err
	}
	var out strings.Builder
	out.Grow(int(size))
	from := 0
	for _, at := range found {
		out.WriteString(s[from:at[0]])
		for _, part := range template {
			out.WriteString(part.text)
			if part.text == "" && at[2*part.group] >= 0 {
				out.WriteString(s[at[2*part.group]:at[2*part.group+1]])
			}
		}
		from = at[1]
	}
	out.WriteString(s[from:])
	return starlark.String(out.String()), nil
}

// part of a template: a text, or a group when that is empty.
type part struct {
	text  string
	group int
}

func parseTemplate(p *pattern, repl string) (template []part, err error) {
	for repl != "" {
		i := strings.IndexByte(repl, '\\')
		if i < 0 || i == len(repl)-1 {
			return append(template, part{text: repl}), nil
		}
		if i > 0 {
			template = append(template, part{text: repl[:i]})
		}
		c := repl[i+1]
		name, rest := "", repl[i+2:]
		switch {
		case c >= '0' && c <= '9':
			name = string(c)
		case c == 'g' && strings.HasPrefix(rest, "<") && strings.Contains(rest[:min(len(rest), maxGroupName)], ">"):
			name, rest, _ = strings.Cut(rest[1:], ">")
		case c == '\\':
			template = append(template, part{text: `\`})
		default:
			template = append(template, part{text: repl[i : i+2]})
		}
		if name != "" {
			group, err := groupNumber(p, name)
			if err != nil {
				return nil, err
			}
			template = append(template, part{group: group})
		}
		repl = rest
	}
	return template, nil
}

func groupNumber(p *pattern, name string) (int, error) {
	n := 0
	if _, err := fmt.Sscanf(name, "%d", &n); err != nil {
		n = p.SubexpIndex(name)
	}
	if n < 0 || n > p.NumSubexp() {
		return 0, fmt.Errorf("no group %q", name)
	}
	return n, nil
}

// match is where a pattern matched.
type match struct {
	p  *pattern
	s  string
	at []int
}

func (m *match) String() string        { return fmt.Sprintf("<match %d:%d>", m.at[0], m.at[1]) }
func (m *match) Type() string          { return "match" }
func (m *match) Freeze()               {}
func (m *match) Truth() starlark.Bool  { return true }
func (m *match) Hash() (uint32, error) { return 0, errors.New("unhashable type: match") }

func (m *match) AttrNames() []string {
	return []string{"end", "group", "groupdict", "groups", "span", "start"}
}

// text of a group, "" when it took no part.
func (m *match) text(i int) string {
	if m.at[2*i] < 0 {
		return ""
	}
	return m.s[m.at[2*i]:m.at[2*i+1]]
}

// value of a group, None when it took no part.
func (m *match) value(i int) starlark.Value {
	if m.at[2*i] < 0 {
		return starlark.None
	}
	return starlark.String(m.text(i))
}

func (m *match) groups(value func(i int) starlark.Value) starlark.Tuple {
	out := make(starlark.Tuple, m.p.NumSubexp())
	for i := range out {
		out[i] = value(i + 1)
	}
	return out
}

func (m *match) Attr(name string) (starlark.Value, error) {
	method := func(do func(r *run, i int) (starlark.Value, error)) (starlark.Value, error) {
		return builtin(name, func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			var group starlark.Value = starlark.MakeInt(0)
			if err := starlark.UnpackPositionalArgs(name, args, kwargs, 0, &group); err != nil {
				return nil, err
			}
			number, ok := starlark.AsString(group)
			if n, isInt := group.(starlark.Int); isInt {
				number, ok = n.String(), true
			}
			if !ok {
				return nil, fmt.Errorf("%s: a group is a number or a name, not %s", name, group.Type())
			}
			i, err := groupNumber(m.p, number)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if err := r.alloc(int64(64 + sizeSlot*3*m.p.NumSubexp())); err != nil {
				return nil, err
			}
			return do(r, i)
		}), nil
	}
	switch name {
	case "group":
		return method(func(_ *run, i int) (starlark.Value, error) { return m.value(i), nil })
	case "groups":
		return method(func(*run, int) (starlark.Value, error) { return m.groups(m.value), nil })
	case "groupdict":
		return method(func(r *run, _ int) (starlark.Value, error) {
			if err := r.alloc(sizeDict + int64(m.p.NumSubexp())*sizeEntry); err != nil {
				return nil, err
			}
			out := new(starlark.Dict)
			for i, name := range m.p.SubexpNames() {
				if name == "" {
					continue
				}
				if err := out.SetKey(starlark.String(name), m.value(i)); err != nil {
					return nil, err
				}
			}
			return out, nil
		})
	case "start":
		return method(func(_ *run, i int) (starlark.Value, error) { return starlark.MakeInt(m.at[2*i]), nil })
	case "end":
		return method(func(_ *run, i int) (starlark.Value, error) { return starlark.MakeInt(m.at[2*i+1]), nil })
	case "span":
		return method(func(_ *run, i int) (starlark.Value, error) {
			return starlark.Tuple{starlark.MakeInt(m.at[2*i]), starlark.MakeInt(m.at[2*i+1])}, nil
		})
	}
	return nil, nil
}
