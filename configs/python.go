package configs

import (
	"path/filepath"
	"regexp"
	"strings"

	"toolfinch/internal/document"
	"toolfinch/view/python"
)

// pythonKind is the interpreter of hooks and custom tools: a program, or a mapping.
type pythonKind struct{}

var pythonKeys = section[python.Settings]{keys: keys{
	{
		name: "command", without: "`python3`",
		doc:   "the interpreter, Python 3.9 or later, such as `.venv/bin/python`",
		value: in(func(p *python.Settings) *string { return &p.Command }).is(str{check: (*decoder).interpreter}),
	},
	{
		name:  "env",
		doc:   "environment variables, added to a minimal environment",
		value: in(func(p *python.Settings) *map[string]string { return &p.Env }).is(words{check: checkVariableName, null: "write NAME: ${NAME} to pass a variable on"}),
	},
	{
		name: "inherit_env", without: "`minimal`",
		doc:   "what it inherits of toolfinch's environment: `minimal`, `all`, or names with `*`",
		value: in(func(p *python.Settings) *[]string { return &p.InheritEnv }).is(inherited{}),
	},
}}

func (pythonKind) read(d *decoder, n *document.Node, label string, to *python.Settings) bool {
	if n.Kind == document.Text {
		return pythonKeys.find("command").value.read(d, n, label, to)
	}
	return pythonKeys.read(d, n, label, to)
}

func (pythonKind) show(s *secrets, p python.Settings) *document.Node {
	if n := pythonKeys.show(s, p); len(n.Pairs) > 0 {
		return n
	}
	return nil
}

func (pythonKind) schema() schema { return anyOf(anyText, pythonKeys.schema()) }

func (d *decoder) interpreter(n *document.Node, label string, command *string) bool {
	if path := filepath.FromSlash(*command); filepath.Base(path) != path && !filepath.IsAbs(path) && path[0] != '~' {
		*command = "./" + *command
	}
	*command = d.program(n, label, *command)
	return true
}

// dotted matches module.function of Python; modules may be in packages.
var dotted = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$`)

// isDotted reports whether text is a dotted path of Python and no file.
func isDotted(text string) bool {
	return dotted.MatchString(text) && !strings.HasSuffix(text, ".star") && !strings.HasSuffix(text, ".py")
}

// dottedPath checks the module.function of a hook.
func dottedPath(d *decoder, n *document.Node, label string, text *string) bool {
	return d.require(isDotted(*text), n, label, "a dotted path of Python", "like hooks.memory.inject, for the function inject in hooks/memory.py")
}
