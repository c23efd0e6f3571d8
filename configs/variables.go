package configs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/document"
)

// lookup finds a variable, like os.LookupEnv.
type lookup func(string) (string, bool)

// substitutionError is the error of one ${...}. unset names a missing variable, and is ""
// for other errors.
type substitutionError struct{ message, hint, unset string }

func (e *substitutionError) Error() string { return e.message }

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// editorVariables are variables that only VS Code and Cursor replace.
var editorVariables = []string{
	"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "cwd", "file", "fileDirname", "fileBasename",
}

// maxNesting bounds the nesting of defaults.
const maxNesting = 10

// expand replaces ${NAME}, ${NAME:-default}, ${env:NAME} and ${secret:NAME} in s. $${
// becomes ${, and any other $ stays. A default, which may hold variables, replaces an unset
// or empty variable. The error joins one *substitutionError for each failed ${...}.
func expand(s string, env lookup) (string, error) {
	out, _, err := expandUntil(s, env, 0)
	return out, err
}

// expandUntil expands s to its end, or a default to its closing }, and returns the rest.
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

// variable replaces one variable; s begins after its ${.
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

// Unset returns the unset variables in texts, sorted, without stored secrets.
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

// Named returns the variables of the environment in texts, sorted.
func Named(texts ...string) []string {
	var names []string
	for _, text := range texts {
		// The error of a text is reported where the text is used.
		_, _ = expand(text, func(name string) (string, bool) {
			names = append(names, name)
			return "", true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hasVariables reports whether a text of the file has variables.
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

// notAVariable explains an illegal name. It repeats only names that it recognises, because
// any other text may be a part of a password.
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

// secretPrefix begins the name of a stored secret in a text: ${secret:NAME}. Such a name is
// looked up like a variable.
const secretPrefix = "secret:"

var secretName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

const secretNameHint = "letters, digits, _, - and . make the name of a secret"

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isBool(s string) bool { return s == "true" || s == "false" }
