package registry

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// Where a server takes a value.
const (
	InEnvironment = "variable"
	InArgument    = "argument"
	InHeader      = "header"
	InURL         = "part of the URL"
)

// Need is a value that the user of a server must give.
type Need struct {
	Name     string   `json:"name"`
	Where    string   `json:"where"`           // InEnvironment, InArgument, InHeader or InURL
	About    string   `json:"about,omitempty"` // the registry's description
	Required bool     `json:"required"`
	Secret   bool     `json:"secret"`
	Repeated bool     `json:"repeated,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Default  string   `json:"default,omitempty"`
	// Variable is the variable of the environment in the configuration; "" for a value that
	// is given, has a default, or is optional.
	Variable string `json:"variable,omitempty"`
	Given    bool   `json:"given,omitempty"`
}

// filler turns inputs into texts.
type filler struct {
	prefix      string
	given       map[string][]string
	needs       []Need
	masked      map[string]string // Plan.Given
	wroteSecret bool
}

// part is a part of a text: literal text of the registry, or text in the configuration's
// notation.
type part struct {
	text  string
	ours  bool
	given bool
}

// literal returns text without variables of the configuration.
func literal(text string) string { return strings.ReplaceAll(text, "${", "$${") }

// joined joins the parts to a text of the configuration.
func joined(parts []part) (string, error) {
	var out, strange strings.Builder
	for _, p := range append(parts, part{ours: true}) {
		if !p.ours {
			strange.WriteString(p.text)
			continue
		}
		// Adjacent parts are escaped together: "$" and "{HOME}" join to a variable.
		if strings.HasSuffix(strange.String(), "$") && p.text != "" {
			return "", unsupported("a value stands directly behind a $, which the configuration cannot express")
		}
		out.WriteString(literal(strange.String()))
		strange.Reset()
		out.WriteString(p.text)
	}
	return out.String(), plain(out.String())
}

// plain refuses a registry's text with characters that hide its meaning.
func plain(text string) error {
	if len(text) > maxText {
		return unsupported("a text in it is longer than %d bytes: %q", maxText, rawjson.Clip(text, 40))
	}
	if strings.ContainsFunc(text, printable.Hidden) {
		return unsupported("a text in it has characters that nobody sees: %q", rawjson.Clip(text, 80))
	}
	return nil
}

// texts returns the texts of an input: none if it is left out, several if it is repeated.
func (f *filler) texts(in input, name, where string) ([]string, error) {
	values, err := f.parts(in, name, where)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, value := range values {
		text, err := joined(value)
		if err != nil {
			return nil, err
		}
		f.note(text, value)
		texts = append(texts, text)
	}
	return texts, nil
}

// note remembers a text with given values.
func (f *filler) note(text string, parts []part) {
	if text == "" || !slices.ContainsFunc(parts, func(p part) bool { return p.given }) {
		return
	}
	var masked strings.Builder
	for _, p := range parts {
		if p.given {
			p.text = "***"
		}
		masked.WriteString(p.text)
	}
	if f.masked == nil {
		f.masked = map[string]string{}
	}
	f.masked[text] = masked.String()
}

func (f *filler) parts(in input, name, where string) ([][]part, error) {
	if in.Value != "" {
		return f.template(in, where)
	}
	need := Need{Name: name, Where: where, About: about(in.Description), Required: in.IsRequired, Secret: in.IsSecret, Repeated: in.IsRepeated, Default: string(in.Default)}
	if need.About == "" {
		need.About = about(in.Placeholder)
	}
	for _, choice := range in.Choices {
		need.Choices = append(need.Choices, string(choice))
	}
	var values [][]part
	texts, given := f.given[name]
	switch {
	case given:
		if err := in.check(name, texts); err != nil {
			return nil, err
		}
		for _, text := range texts {
			values = append(values, []part{{text: text, ours: true, given: true}})
			f.wroteSecret = f.wroteSecret || in.IsSecret && !strings.Contains(text, "${")
		}
		need.Given = true
	case in.Default != "":
		values = [][]part{{{text: string(in.Default)}}}
	case in.IsRequired:
		need.Variable = name
		if where != InEnvironment || !variableForm.MatchString(name) {
			need.Variable = f.prefix + strings.Trim(variableOf(name), "_")
		}
		if !variableForm.MatchString(need.Variable) {
			need.Variable = "MCP_" + need.Variable
		}
		values = [][]part{{{text: "${" + need.Variable + "}", ours: true}}}
	}
	if !slices.ContainsFunc(f.needs, func(n Need) bool { return n.Name == name }) {
		f.needs = append(f.needs, need)
	}
	return values, nil
}

var braced = regexp.MustCompile(`\{[^{}]+\}`)

// template fills in the variables of a value; other braces stay. It is left out if a
// variable has no value and none is required.
func (f *filler) template(in input, where string) ([][]part, error) {
	value := string(in.Value)
	values := map[string][][]part{}
	times := 1
	for _, name := range braced.FindAllString(value, -1) {
		name = strings.Trim(name, "{}")
		variable, ok := in.Variables[name]
		if !ok || values[name] != nil {
			continue
		}
		variable.IsRequired = variable.IsRequired || in.IsRequired
		variable.IsSecret = variable.IsSecret || in.IsSecret
		within := where
		if within == InEnvironment { // its name is no name of a variable
			within = "part of a variable"
		}
		filled, err := f.parts(input{ // one level: nested variables are ignored
			Description: variable.Description, Placeholder: variable.Placeholder, Format: variable.Format, IsRequired: variable.IsRequired, IsSecret: variable.IsSecret,
			IsRepeated: in.IsRepeated, Default: orValue(variable), Choices: variable.Choices,
		}, name, within)
		if err != nil {
			return nil, err
		}
		if filled == nil {
			return nil, nil
		}
		values[name], times = filled, max(times, len(filled))
	}
	all := make([][]part, times)
	for i := range all {
		rest := value
		for _, at := range braced.FindAllString(value, -1) {
			before, after, _ := strings.Cut(rest, at)
			all[i], rest = append(all[i], part{text: before}), after
			if filled := values[strings.Trim(at, "{}")]; filled != nil {
				all[i] = append(all[i], filled[min(i, len(filled)-1)]...)
			} else {
				all[i] = append(all[i], part{text: at})
			}
		}
		all[i] = append(all[i], part{text: rest})
	}
	return all, nil
}

func orValue(variable input) text {
	if variable.Value != "" {
		return variable.Value
	}
	return variable.Default
}

// check refuses given texts that the input does not accept. A text with a variable passes,
// because its value is unknown here.
func (in input) check(name string, texts []string) error {
	if len(texts) > 1 && !in.IsRepeated {
		return fmt.Errorf("%s takes one value", name)
	}
	for _, given := range texts {
		switch {
		case strings.Contains(given, "${"):
		case len(in.Choices) > 0 && !slices.Contains(in.Choices, text(given)):
			return fmt.Errorf("%s is one of %s", name, in.choices())
		case in.Format == "boolean" && given != "true" && given != "false":
			return fmt.Errorf("%s is true or false", name)
		case in.Format == "number":
			if _, err := strconv.ParseFloat(given, 64); err != nil {
				return fmt.Errorf("%s is a number", name)
			}
		}
	}
	return nil
}

func (in input) choices() string {
	words := make([]string, len(in.Choices))
	for i, choice := range in.Choices {
		words[i] = string(choice)
	}
	return strings.Join(words, ", ")
}

// arguments returns the words of a command line.
func (f *filler) arguments(inputs []input) ([]string, error) {
	var words []string
	for _, in := range inputs {
		if in.Type != "named" {
			texts, err := f.texts(in, firstOf(in.ValueHint, in.Name, "argument"), InArgument)
			if err != nil {
				return nil, err
			}
			words = append(words, texts...)
			continue
		}
		if err := plain(in.Name); err != nil || in.Name == "" {
			return nil, unsupported("an argument has no name that can be used")
		}
		if in.isSwitch() {
			words = append(words, literal(in.Name))
			continue
		}
		texts, err := f.texts(in, strings.TrimLeft(in.Name, "-"), InArgument)
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			// As one word, --flag=value allows any first character of the value.
			if strings.HasPrefix(in.Name, "--") {
				words = append(words, literal(in.Name)+"="+text)
			} else {
				words = append(words, literal(in.Name), text)
			}
		}
	}
	return words, nil
}

// isSwitch reports whether a named argument takes no value.
func (in input) isSwitch() bool {
	return in.Value == "" && in.Default == "" && in.ValueHint == "" && in.Placeholder == "" && in.Format == "" && len(in.Choices) == 0 && in.Description == ""
}

func firstOf(texts ...string) string {
	return texts[slices.IndexFunc(texts, func(text string) bool { return text != "" })]
}

// pairs returns variables or headers with their values.
func (f *filler) pairs(inputs []input, where string, form *regexp.Regexp) (map[string]string, error) {
	var all map[string]string
	for _, in := range inputs {
		if !form.MatchString(in.Name) {
			return nil, unsupported("%q cannot be the name of a %s", rawjson.Clip(in.Name, 80), where)
		}
		texts, err := f.texts(in, in.Name, where)
		if err != nil {
			return nil, err
		}
		if len(texts) == 0 {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[in.Name] = texts[0]
	}
	return all, nil
}

// unknown refuses given values that no input used.
func (f *filler) unknown() error {
	var names []string
	for _, need := range f.needs {
		names = append(names, need.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(f.given)) {
		if slices.Contains(names, name) {
			continue
		}
		err := fmt.Errorf("it takes no %q", name)
		if near := nearest.Names(name, names, 3, nearest.Loose); len(near) > 0 {
			err = fmt.Errorf("%w; nearest: %s", err, strings.Join(near, ", "))
		} else if len(names) > 0 {
			err = fmt.Errorf("%w; it takes %s", err, strings.Join(names[:min(8, len(names))], ", "))
		}
		return err
	}
	return nil
}

// Unsupported says why a way cannot be used.
type Unsupported struct{ Reason string }

// Error returns the reason.
func (e *Unsupported) Error() string { return e.Reason }

func unsupported(format string, args ...any) error {
	return &Unsupported{Reason: fmt.Sprintf(format, args...)}
}

var (
	versionForm  = regexp.MustCompile(`^[A-Za-z0-9][\w.+!-]*$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerForm   = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
)

func variableOf(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, name)
}
