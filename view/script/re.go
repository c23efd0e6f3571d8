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

// Bounds of regular expressions. The time of a match grows with text times expression.
const (
	maxPattern   = 10_000 // bytes of one
	maxGroupName = 256    // bytes in a replacement
	maxKept      = 100    // kept compiled expressions
	maxKeptBytes = 200    // of a kept expression
)

// patterns are the most recent regular expressions. The lock guards the map, and is never held during a
// compilation.
var patterns = struct {
	sync.Mutex
	kept map[string]*regexp.Regexp
}{kept: map[string]*regexp.Regexp{}}

// compilePattern compiles a regular expression of RE2's syntax.
func compilePattern(source string) (*regexp.Regexp, error) {
	patterns.Lock()
	kept := patterns.kept[source]
	patterns.Unlock()
	if kept != nil {
		return kept, nil
	}
	compiled, err := regexp.Compile(source)
	switch text := fmt.Sprint(err); {
	case err == nil:
	case strings.Contains(text, "(?=") || strings.Contains(text, "(?!") || strings.Contains(text, "(?<"):
		return nil, fmt.Errorf("%w (there is no looking ahead or behind)", err)
	case strings.Contains(text, string(syntax.ErrLarge)):
		return nil, limitError("the parts of a regular expression, its repetitions written out")
	default:
		return nil, err
	}
	if len(source) > maxKeptBytes {
		return compiled, nil
	}
	patterns.Lock()
	defer patterns.Unlock()
	if len(patterns.kept) >= maxKept {
		clear(patterns.kept)
	}
	patterns.kept[strings.Clone(source)] = compiled
	return compiled, nil
}

// reArgs are the arguments of re's functions after the pattern.
type reArgs struct {
	text, repl string
	count      int // 0 for all
}

// most is count for Go's functions.
func (a *reArgs) most() int {
	if a.count <= 0 {
		return -1
	}
	return a.count
}

// reFunction makes a function of a pattern and the named arguments. around is a format for the pattern.
func reFunction(name, around string, do func(p *regexp.Regexp, args *reArgs) (starlark.Value, error), names ...string) *starlark.Builtin {
	name = "re." + name
	return builtin(name, func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var source string
		var given reArgs
		takes := []any{"pattern", &source}
		for _, name := range names {
			to := map[string]any{"text": &given.text, "repl": &given.repl, "count?": &given.count, "maxsplit?": &given.count}[name]
			takes = append(takes, name, to)
		}
		if err := starlark.UnpackArgs(name, args, kwargs, takes...); err != nil {
			return nil, err
		}
		if len(source) > maxPattern {
			return nil, fmt.Errorf("%s: %w", name, limitError("%d bytes of a regular expression", maxPattern))
		}
		p, err := compilePattern(source)
		if err == nil && around != "" {
			tree, _ := syntax.Parse(source, syntax.Perl) // whose text closes what \Q opened
			p, err = compilePattern(fmt.Sprintf(around, tree))
		}
		if err == nil {
			var v starlark.Value
			if v, err = do(p, &given); err == nil {
				return v, nil
			}
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	})
}

var reModule = module("re", starlark.StringDict{
	"search":    reFunction("search", "", first, "text"),
	"match":     reFunction("match", `\A(?:%s)`, first, "text"),
	"fullmatch": reFunction("fullmatch", `\A(?:%s)\z`, first, "text"),
	"findall":   reFunction("findall", "", findAll, "text"),
	"split": reFunction("split", "", func(p *regexp.Regexp, args *reArgs) (starlark.Value, error) {
		var out []starlark.Value
		from := 0
		for _, at := range p.FindAllStringIndex(args.text, args.most()) {
			out = append(out, starlark.String(args.text[from:at[0]]))
			from = at[1]
		}
		return starlark.NewList(append(out, starlark.String(args.text[from:]))), nil
	}, "text", "maxsplit?"),
	"sub": reFunction("sub", "", substitute, "repl", "text", "count?"),
	"escape": builtin("re.escape", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var s string
		if err := starlark.UnpackPositionalArgs("re.escape", args, kwargs, 1, &s); err != nil {
			return nil, err
		}
		return starlark.String(regexp.QuoteMeta(s)), nil
	}),
})

// first returns the first match, or None.
func first(p *regexp.Regexp, args *reArgs) (starlark.Value, error) {
	at := p.FindStringSubmatchIndex(args.text)
	if at == nil {
		return starlark.None, nil
	}
	return &match{p: p, s: args.text, at: at}, nil
}

// findAll is re.findall: the texts of all matches, or of their groups.
func findAll(p *regexp.Regexp, args *reArgs) (starlark.Value, error) {
	found := p.FindAllStringSubmatchIndex(args.text, -1)
	out := make([]starlark.Value, len(found))
	for i, at := range found {
		m := &match{p: p, s: args.text, at: at}
		if n := p.NumSubexp(); n < 2 {
			out[i] = starlark.String(m.text(n))
		} else {
			out[i] = m.groups(func(i int) starlark.Value { return starlark.String(m.text(i)) })
		}
	}
	return starlark.NewList(out), nil
}

// substitute is re.sub: in repl \1 and \g<name> stand for groups.
func substitute(p *regexp.Regexp, args *reArgs) (starlark.Value, error) {
	template, err := parseTemplate(p, args.repl)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	from := 0
	for _, at := range p.FindAllStringSubmatchIndex(args.text, args.most()) {
		out.WriteString(args.text[from:at[0]])
		for _, part := range template {
			out.WriteString(part.text)
			if part.text == "" && at[2*part.group] >= 0 {
				out.WriteString(args.text[at[2*part.group]:at[2*part.group+1]])
			}
		}
		from = at[1]
	}
	out.WriteString(args.text[from:])
	return starlark.String(out.String()), nil
}

// segment is a part of a template: a text, or a group if the text is empty.
type segment struct {
	text  string
	group int
}

func parseTemplate(p *regexp.Regexp, repl string) (template []segment, err error) {
	for repl != "" {
		i := strings.IndexByte(repl, '\\')
		if i < 0 || i == len(repl)-1 {
			return append(template, segment{text: repl}), nil
		}
		if i > 0 {
			template = append(template, segment{text: repl[:i]})
		}
		c := repl[i+1]
		name, rest := "", repl[i+2:]
		switch {
		case c >= '0' && c <= '9':
			name = string(c)
		case c == 'g' && strings.HasPrefix(rest, "<") && strings.Contains(rest[:min(len(rest), maxGroupName)], ">"):
			name, rest, _ = strings.Cut(rest[1:], ">")
		case c == '\\':
			template = append(template, segment{text: `\`})
		default:
			template = append(template, segment{text: repl[i : i+2]})
		}
		if name != "" {
			group, err := groupNumber(p, name)
			if err != nil {
				return nil, err
			}
			template = append(template, segment{group: group})
		}
		repl = rest
	}
	return template, nil
}

func groupNumber(p *regexp.Regexp, name string) (int, error) {
	n := 0
	if _, err := fmt.Sscanf(name, "%d", &n); err != nil {
		n = p.SubexpIndex(name)
	}
	if n < 0 || n > p.NumSubexp() {
		return 0, fmt.Errorf("no group %q", name)
	}
	return n, nil
}

// match is a match of a pattern.
type match struct {
	p  *regexp.Regexp
	s  string
	at []int // offsets of the groups
}

func (m *match) String() string        { return fmt.Sprintf("<match %d:%d>", m.at[0], m.at[1]) }
func (m *match) Type() string          { return "match" }
func (m *match) Freeze()               {}
func (m *match) Truth() starlark.Bool  { return true }
func (m *match) Hash() (uint32, error) { return 0, errors.New("unhashable type: match") }

func (m *match) AttrNames() []string {
	return []string{"end", "group", "groupdict", "groups", "span", "start"}
}

// text returns the text of a group, "" for an unmatched one.
func (m *match) text(i int) string {
	if m.at[2*i] < 0 {
		return ""
	}
	return m.s[m.at[2*i]:m.at[2*i+1]]
}

// value returns the value of a group, None for an unmatched one.
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
	method := func(do func(group int) (starlark.Value, error)) (starlark.Value, error) {
		return builtin(name, func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
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
			return do(i)
		}), nil
	}
	switch name {
	case "group":
		return method(func(i int) (starlark.Value, error) { return m.value(i), nil })
	case "groups":
		return method(func(int) (starlark.Value, error) { return m.groups(m.value), nil })
	case "groupdict":
		return method(func(int) (starlark.Value, error) {
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
		return method(func(i int) (starlark.Value, error) { return starlark.MakeInt(m.at[2*i]), nil })
	case "end":
		return method(func(i int) (starlark.Value, error) { return starlark.MakeInt(m.at[2*i+1]), nil })
	case "span":
		return method(func(i int) (starlark.Value, error) {
			return starlark.Tuple{starlark.MakeInt(m.at[2*i]), starlark.MakeInt(m.at[2*i+1])}, nil
		})
	}
	return nil, nil
}
