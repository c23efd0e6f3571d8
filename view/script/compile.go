package script

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// compile compiles one file. names are its predeclared names.
func compile(name string, source []byte, names starlark.StringDict) (*starlark.Program, error) {
	if len(source) > maxSource {
		err := limitError("%d bytes of source", maxSource)
		return nil, &Error{File: name, Message: err.Error(), Err: err}
	}
	options := &syntax.FileOptions{Set: true, TopLevelControl: true, GlobalReassign: true}
	_, program, err := starlark.SourceProgramOptions(options, name, source, names.Has)
	if err == nil {
		return program, nil
	}
	at, message := syntax.Position{}, err.Error()
	var wrong syntax.Error
	var unresolved resolve.ErrorList
	switch {
	case errors.As(err, &wrong):
		at, message = wrong.Pos, wrong.Msg
	case errors.As(err, &unresolved) && len(unresolved) > 0:
		at, message = unresolved[0].Pos, unresolved[0].Msg
	}
	return nil, &Error{File: name, Line: int(at.Line), Message: shorten(message) + hint(source, int(at.Line), message, names), Err: err}
}

const (
	noImport = "there is no import: json, re, time, hash and math are there already"
	noTry    = "there is no try: an error ends the script"
)

// python maps lines that models mistake for Starlark, by their beginning, to hints.
var python = []struct{ begins, hint string }{
	{"import ", noImport},
	{"from ", noImport},
	{"try:", noTry},
	{"except", noTry},
	{"raise ", "there is no raise: use fail(text) or abort(reason)"},
	{"while ", "there is no while: use for ... in range(n) and break"},
	{"class ", "there is no class: use a dict or struct(...)"},
	{"with ", "there is no with"},
	{"global ", "there is no global: return what changes"},
	{"nonlocal ", "there is no nonlocal: return what changes"},
	{"assert ", "there is no assert: use fail(text)"},
	{"del ", "there is no del: use d.pop(key)"},
	{"@", "there are no decorators: call the function"},
}

// pythonInside maps Python syntax inside a line, outside of strings, to hints.
var pythonInside = []struct {
	has  *regexp.Regexp
	hint string
}{
	{regexp.MustCompile(`\bf["']`), `there are no f-strings: use "%s" % x or "{}".format(x)`},
	{regexp.MustCompile(`\bis\b`), `there is no "is": use == or !=`},
	{regexp.MustCompile(`[\w)\]]\s*\*\*\s*[\w(]`), "there is no ** operator: use math.pow(x, y)"},
	{regexp.MustCompile(`^(async )?def .*(->|[(,]\s*\*{0,2}\w+\s*:)|^\w+\s*:\s*\w`), "there are no type annotations: leave them out"},
	{regexp.MustCompile(`:=`), "there is no := operator: assign on a line of its own"},
	{regexp.MustCompile(`\byield\b`), "there is no yield: return a list"},
}

// missing has functions of Python that Starlark lacks.
var missing = map[string]string{
	"sum": "add in a loop", "map": "use a comprehension", "filter": "use a comprehension", "isinstance": `compare type(x) with its name, such as "dict"`,
	"round": "use math.round(x)", "pow": "use math.pow(x, y)", "open": "there are no files", "divmod": "use // and %",
}

var quoted = regexp.MustCompile(`(["'])(?:\\.|[^\\])*?(["'])`)

// hint explains a line of Python that is not Starlark, "" for any other line.
func hint(source []byte, line int, message string, names starlark.StringDict) string {
	lines := strings.SplitN(string(source), "\n", line+1)
	if line < 1 || line > len(lines) {
		return ""
	}
	text := strings.TrimSpace(lines[line-1])
	if name, ok := strings.CutPrefix(message, "undefined: "); ok {
		name, _, _ = strings.Cut(name, " ")
		switch instead := missing[name]; {
		case instead != "":
			return fmt.Sprintf(" (there is no %s: %s)", name, instead)
		case strings.HasSuffix(message, "?)"):
			return ""
		}
		return didYouMean(name, slices.Concat(names.Keys(), starlark.Universe.Keys()))
	}
	if strings.HasPrefix(text, "async ") || strings.Contains(text, "await ") {
		if names.Has("parallel") {
			return " (there is no async: use parallel([...]))"
		}
		return " (there is no async: calls are made one after another; a custom tool can use ctx.parallel([...]))"
	}
	for _, one := range python {
		if strings.HasPrefix(text, one.begins) {
			return " (" + one.hint + ")"
		}
	}
	for _, one := range pythonInside {
		if one.has.MatchString(quoted.ReplaceAllString(text, "$1$2")) {
			return " (" + one.hint + ")"
		}
	}
	return ""
}
