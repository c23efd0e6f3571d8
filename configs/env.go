package configs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toolfinch/configs/clients"
	"toolfinch/configs/document"
	"toolfinch/embed"
)

// lookup finds a variable of the environment, as os.LookupEnv does.
type lookup func(string) (string, bool)

const envConfig = "MCPPROXY_CONFIG"

// substitutionError is one ${...} that cannot be replaced. unset is the variable
// that is missing, "" when something else is wrong.
type substitutionError struct{ message, hint, unset string }

func (e *substitutionError) Error() string { return e.message }

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// editorVariables are known to VS Code and Cursor and to nobody else.
var editorVariables = []string{
	"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "cwd", "file", "fileDirname", "fileBasename",
}

// maxNesting bounds defaults within defaults.
const maxNesting = 10

// expand replaces ${NAME}, ${NAME:-default}, ${env:NAME} and ${secret:NAME} in s; $${ stands
// for ${ itself, and a $ before anything else for itself. A default is taken
// when the variable is unset or empty, and may hold variables. The error joins
// one *substitutionError for each variable that cannot be replaced.
func expand(s string, env lookup) (string, error) {
	out, _, err := expandUntil(s, env, 0)
	return out, err
}

// expandUntil expands s to its end, or when nested to the first } that closes
// nothing, and returns what stands behind that.
func expandUntil(s string, env lookup, depth int) (out, rest string, err error) {
	if depth > maxNesting {
		return "", "", &substitutionError{message: fmt.Sprintf("defaults nested deeper than %d", maxNesting)}
	}
	var b strings.Builder
	var errs []error
	for s != "" {
		switch {
		case strings.HasPrefix(s, "$${"):
			b.WriteString("${")
			s = s[len("$${"):]
		case strings.HasPrefix(s, "${"):
			value, after, err := variable(s[len("${"):], env, depth)
			if err != nil {
				errs = append(errs, err)
			}
			b.WriteString(value)
			s = after
		case depth > 0 && s[0] == '}':
			return b.String(), s, errors.Join(errs...)
		default:
			b.WriteByte(s[0])
			s = s[1:]
		}
	}
	return b.String(), "", errors.Join(errs...)
}

// variable replaces one variable; s begins behind its ${.
func variable(s string, env lookup, depth int) (value, rest string, err error) {
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return "", "", unclosed()
	}
	fallback, rest := "", s[end+1:]
	name, _, hasDefault := strings.Cut(s[:end], ":-")
	if hasDefault {
		fallback, rest, err = expandUntil(s[len(name)+len(":-"):], env, depth+1)
		var closed bool
		if rest, closed = strings.CutPrefix(rest, "}"); !closed {
			return "", "", cmp.Or(err, unclosed())
		}
	}
	secret, isSecret := strings.CutPrefix(name, secretPrefix)
	if !isSecret {
		name = strings.TrimPrefix(name, "env:")
	}
	if isSecret && !secretName.MatchString(secret) || !isSecret && !variableName.MatchString(name) {
		return "", rest, notAVariable(name)
	}
	value, set := env(name)
	switch {
	case hasDefault && value == "":
		return fallback, rest, err
	case set:
		return value, rest, nil
	case slices.Contains(editorVariables, name):
		return "", rest, notAVariable(name)
	case isSecret:
		return "", rest, &substitutionError{
			message: fmt.Sprintf("secret %q is not stored", secret),
			hint:    "toolfinch secret set " + secret,
			unset:   name,
		}
	}
	return "", rest, &substitutionError{
		message: "variable " + name + " is not set",
		hint:    "set it, or give a default: ${" + name + ":-...}",
		unset:   name,
	}
}

// Unset returns the variables in texts that the environment does not set, sorted.
// Stored secrets are not among them.
func Unset(texts ...string) []string {
	var names []string
	for _, text := range texts {
		_, err := expand(text, os.LookupEnv)
		for _, e := range substitutionErrors(err) {
			if e.unset != "" && !strings.HasPrefix(e.unset, secretPrefix) {
				names = append(names, e.unset)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Named returns the variables of the environment that texts name, sorted.
func Named(texts ...string) []string {
	var names []string
	for _, text := range texts {
		// What is wrong with a text is said where it is used.
		_, _ = expand(text, func(name string) (string, bool) {
			names = append(names, name)
			return "", true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Variables returns the variables of the environment that the configuration in the
// file uses, each list sorted: those in its texts but for disabled servers, those that
// inherit_env names, and those that stand for a key of the file. unset has those that
// are needed and not set; one with a default is not needed.
func Variables(path string) (set, unset []string, err error) {
	data, err := clients.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	d := newDecoder(source{path: path, shown: filepath.Base(path)}, filepath.Dir(path), os.LookupEnv)
	c := top.fresh()
	c.Path = path
	d.load(&c, data)
	set = d.met
	inherited := c.Python.InheritEnv
	for _, s := range c.Servers {
		inherited = append(inherited, s.InheritEnv...)
	}
	for _, name := range inherited {
		if _, ok := os.LookupEnv(name); ok {
			set = append(set, name)
		}
	}
	kind := cmp.Or(os.Getenv("MCPPROXY_EMBEDDER"), c.Embed.Kind)
	for _, k := range top.keys {
		if os.Getenv(k.env) != "" && (!strings.HasPrefix(k.name, "openai_") || strings.EqualFold(kind, embed.KindOpenAI)) {
			set = append(set, k.env)
		}
	}
	slices.Sort(set)
	slices.Sort(d.unset)
	return slices.Compact(set), slices.Compact(d.unset), nil
}

// hasVariables reports whether a text of the file is another once variables are replaced.
func hasVariables(n *document.Node) bool { return strings.Contains(n.Text, "${") && !n.Outside() }

// isVariable reports whether s is one ${...} and nothing else.
func isVariable(s string) bool {
	inner, ok := strings.CutPrefix(s, "${")
	if !ok {
		return false
	}
	_, rest, err := variable(inner, func(string) (string, bool) { return "", true }, 0)
	return err == nil && rest == ""
}

// notAVariable says what the name is instead. It repeats only names of the
// kinds it knows: anything else may be a piece of a password.
func notAVariable(name string) error {
	switch before, _, _ := strings.Cut(name, ":"); {
	case before == "input":
		return &substitutionError{message: "${" + name + "} asks a person, which only an editor can do", hint: "use a variable of the environment, ${NAME}, or a stored secret, ${secret:NAME}"}
	case before+":" == secretPrefix:
		return &substitutionError{message: "a ${" + secretPrefix + "...} that names no secret", hint: secretNameHint}
	case slices.Contains([]string{"config", "command"}, before), slices.Contains(editorVariables, name):
		return &substitutionError{message: "${" + name + "} is known to editors only", hint: "write the value, or use a variable of the environment: ${NAME}"}
	}
	return &substitutionError{message: "a ${...} that names no variable", hint: "write $${ for ${ itself"}
}

func unclosed() error {
	return &substitutionError{message: "a ${ without its }", hint: "write $${ for ${ itself"}
}

// substitutionErrors takes apart what errors.Join put together.
func substitutionErrors(err error) []*substitutionError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*substitutionError
		for _, e := range joined.Unwrap() {
			all = append(all, substitutionErrors(e)...)
		}
		return all
	}
	if e, ok := errors.AsType[*substitutionError](err); ok {
		return []*substitutionError{e}
	}
	return nil
}

// inherited are globs of names of variables.
type inherited struct{}

var inheritWords = choice[string]{words: []string{"minimal", "all"}}

func (inherited) read(d *decoder, n *document.Node, label string, to *[]string) bool {
	if n.Kind == document.List {
		return list[string]{item: str{check: glob}}.read(d, n, label, to)
	}
	var word string
	ok := inheritWords.read(d, n, label, &word)
	if *to = nil; word == "all" {
		*to = []string{"*"}
	}
	return ok
}

func (inherited) show(s *secrets, globs []string) *document.Node {
	if slices.Equal(globs, []string{"*"}) {
		return document.NewText("all")
	}
	return list[string]{item: str{}}.show(s, globs)
}
