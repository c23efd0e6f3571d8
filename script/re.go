package script

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"go.starlark.net/starlark"
)

// Bounds of regular expressions.
const (
	maxPattern   = 10_000 // bytes of one
	maxProgram   = 50_000 // instructions that one compiles to, about
	keptPatterns = 256    // that are kept compiled
)

// pattern is a compiled regular expression.
type pattern struct {
	*regexp.Regexp
	size int // instructions, about
}

// patterns are the regular expressions that were used last. The lock guards the
// map and is never held while one is compiled.
var patterns = struct {
	sync.Mutex
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
	size := programSize(tree)
	if size > maxProgram {
		return nil, limitError("%d parts of a regular expression, its repetitions written out", maxProgram)
	}
	if err := r.allocN(size, 500); err != nil {
		return nil, err
	}
	if err := r.workN(size, workPerStep); err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(source)
	if err != nil {
		return nil, err
	}
	made := &pattern{compiled, size}
	if size > 1000 {
		return made, nil // keeping is for what is cheap to keep
	}
	patterns.Lock()
	defer patterns.Unlock()
	if len(patterns.kept) >= keptPatterns {
		clear(patterns.kept)
	}
	patterns.kept[strings.Clone(source)] = made
	return made, nil
}

// programSize is how large an expression is once repetitions are written out.
func programSize(tree *syntax.Regexp) int {
	size := 1
	if tree.Op == syntax.OpLiteral {
		size = len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		size += programSize(sub)
	}
	if tree.Op == syntax.OpRepeat {
		size *= max(tree.Min, tree.Max, 1)
	}
	return min(size, 1<<30)
}

// workMatch is called before a pattern goes over a text: that takes time for each
// part of the pattern at each place.
func (r *run) workMatch(p *pattern, s string) error {
	if err := r.workN(len(s), 2*p.size); err != nil {
		return err
	}
	return r.alloc(int64(64 * (p.size + 1))) // the matcher's own
}

// matches finds at most n matches, all for a negative n, each as offsets of the
// groups.
func (r *run) matches(p *pattern, s string, n int) ([][]int, error) {
	if err := r.workMatch(p, s); err != nil {
		return nil, err
	}
	each := 64 + 16*(p.NumSubexp()+1)
	room := int(r.memory/int64(2*each)) + 1
	most := room
	if n >= 0 {
		most = min(n, room)
	}
	found := p.FindAllStringSubmatchIndex(s, most)
	return found, r.allocN(len(found), 2*each)
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
		return starlark.String(regexp.QuoteMeta(s)), r.alloc(int64(3 * len(s)))
	}),
})

// anchored is a function that matches at the beginning of the text.
func anchored(name, format string) *starlark.Builtin {
	return reFunction(name, func(r *run, p *pattern, s string, _ *reArgs) (starlark.Value, error) {
		around, err := r.compilePattern(fmt.Sprintf(format, p.String()))
		if err != nil {
			return nil, err
		}
		return r.first(around, p, s)
	})
}

// first is the first match, or None.
func (r *run) first(p, shown *pattern, s string) (starlark.Value, error) {
	if err := r.workMatch(p, s); err != nil {
		return nil, err
	}
	at := p.FindStringSubmatchIndex(s)
	if at == nil {
		return starlark.None, nil
	}
	return &match{p: shown, s: s, at: at}, r.alloc(int64(64 + 16*len(at)))
}

// substitute is re.sub: in repl \1 and \g<name> stand for groups.
func substitute(r *run, p *pattern, s string, more *reArgs) (starlark.Value, error) {
	template, err := parseTemplate(p, more.repl)
	if err != nil {
		return nil, err
	}
	found, err := r.matches(p, s, more.most())
	if err != nil {
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
		case c == 'g' && strings.HasPrefix(rest, "<") && strings.Contains(rest, ">"):
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
