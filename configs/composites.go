package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
	"toolfinch/view"
)

// compositeKeys are the keys of a composite tool.
var compositeKeys = section[view.Composite]{keys: keys{
	{
		name:  "title",
		doc:   "display name",
		value: in(func(c *view.Composite) *string { return &c.Title }).is(prose),
	},
	{
		name:  "description",
		doc:   "what the tool is for",
		value: in(func(c *view.Composite) *string { return &c.Description }).is(prose),
	},
	{
		name:  "inputs",
		doc:   "by name: a type (`string`, `integer`, ...), or a JSON Schema with `required: true` or `false` (the default). An undeclared input is a required string",
		value: in(func(c *view.Composite) *[]view.Input { return &c.Inputs }).is(inputs),
	},
	{
		name:  "parallel",
		doc:   "the steps, by key: `tool` (`server.tool`), `args`, `timeout`",
		value: in(func(c *view.Composite) *[]view.Step { return &c.Steps }).is(steps),
	},
	{
		name:  "on_error",
		doc:   "reports a failed step under its key; `fail`: the tool fails",
		value: in(func(c *view.Composite) *bool { return &c.FailFast }).is(onError{on: "fail"}),
	},
	{
		name:  "concurrency",
		doc:   "steps at a time, up to 100",
		value: in(func(c *view.Composite) *int { return &c.Concurrency }).is(number[int]{1, 100}, view.DefaultConcurrency),
	},
	{
		name:  "timeout",
		doc:   "for each step without its own",
		value: in(func(c *view.Composite) *time.Duration { return &c.Timeout }).is(duration{}, view.DefaultStepTimeout),
	},
}}

// composites are the composite tools of a view.
var composites = named[view.Composite]{
	noun: "tool", of: "names to tools",
	item: composite{},
	fresh: func(p document.Pair) view.Composite {
		c := compositeKeys.fresh()
		c.Name, c.At = p.Key.Text, placeOf(p.Key)
		return c
	},
	name:  func(c *view.Composite) string { return c.Name },
	check: func(d *decoder, key *document.Node, label string) { d.claim(key, label, key.Text) },
}

// composite is a composite tool. It is left out if all its steps are of disabled servers.
type composite struct{}

func (composite) read(d *decoder, n *document.Node, label string, c *view.Composite) bool {
	if !compositeKeys.read(d, n, label, c) {
		return false
	}
	parallel := n.Given("parallel")
	if parallel == nil || parallel.Kind == document.Mapping && len(parallel.Pairs) == 0 {
		d.fail(n, label+" has no steps", "write them under parallel: {key: {tool: server.tool, args: {...}}}")
		return false
	}
	var names []string
	for _, input := range c.Inputs {
		names = append(names, input.Name)
	}
	names = d.declareUsed(c, names, parallel, label)
	for _, s := range c.Steps { // after all keys, because inputs may follow the steps
		if args := parallel.Find(s.Key).Given("args"); args != nil && s.Args != nil {
			d.checkTemplates(args, label+".parallel."+shorten(s.Key)+".args", names)
		}
	}
	c.LeftOut = len(parallel.Pairs) - len(c.Steps)
	return len(c.Steps) > 0
}

func (composite) show(s *secrets, c view.Composite) *document.Node { return compositeKeys.show(s, c) }
func (composite) schema() schema                                   { return compositeKeys.schema() }

// stepKeys are the keys of a step.
var stepKeys = section[view.Step]{keys: keys{
	{
		name:  "tool",
		doc:   "`server.tool`, `server:tool` or the name that clients see",
		value: in(func(s *view.Step) *string { return &s.Tool }).is(str{}),
	},
	{
		name:  "args",
		doc:   "with `{inputs.x}` and `{steps.x}`; see [views.md](views.md#composite-tools)",
		value: in(func(s *view.Step) *[]byte { return &s.Args }).is(arguments{}),
	},
	{
		name: "timeout", without: "the composite's",
		doc:   "limit for the step",
		value: in(func(s *view.Step) *time.Duration { return &s.Timeout }).is(duration{}),
	},
}}

// steps are the steps of a composite tool.
var steps = named[view.Step]{
	noun: "step", of: "keys to steps",
	item: step{},
	fresh: func(p document.Pair) view.Step {
		return view.Step{Key: p.Key.Text, At: placeOf(p.Key), Args: []byte("{}")}
	},
	name: func(s *view.Step) string { return s.Key },
}

// step is a step of a composite tool. It is left out if its server is disabled.
type step struct{}

func (step) show(s *secrets, one view.Step) *document.Node { return stepKeys.show(s, one) }
func (step) schema() schema                                { return stepKeys.schema() }

// arguments are the arguments of a step, kept as JSON.
type arguments struct{}

func (arguments) read(d *decoder, n *document.Node, label string, to *[]byte) (ok bool) {
	if !d.isMapping(n, label, "parameters to values", "") {
		return false
	}
	*to, ok = d.value(n, label)
	return ok
}

func (arguments) show(s *secrets, args []byte) *document.Node {
	if n := s.json(args, "", ofData); n != nil && len(n.Pairs) > 0 {
		return n
	}
	return nil
}

func (arguments) schema() schema { return schema{"type": "object"} }

func (step) read(d *decoder, n *document.Node, label string, s *view.Step) bool {
	if !stepKeys.read(d, n, label, s) {
		return false
	}
	tool := n.Given("tool")
	if tool == nil {
		d.fail(n, label+" has no tool", "write tool: server.tool")
		return false
	}
	if tool.Kind != document.Text || s.Tool == "" && hasVariables(tool) {
		return false // reported
	}
	server, exposed := d.serverOf(s.Tool), exposedName.MatchString(s.Tool) // package view resolves exposed names
	if server == "" && exposed {
		server = d.switchedOff(s.Tool)
	}
	switch {
	case d.off[server]:
		d.warn(tool, fmt.Sprintf("%s: server %q is disabled: the step is left out", label, server), "")
		return false
	case server == "" && !exposed && !(len(d.known) == 0 && len(d.errors) > 0):
		d.noServer(tool, label+".tool must be server.tool, of a server that there is, not "+asWritten(tool), d.stepHint(tool, s.Tool))
	}
	return true
}

// stepHint hints at the nearest server for the tool of a step.
func (d *decoder) stepHint(n *document.Node, id string) string {
	if hasVariables(n) || len(d.known) == 0 {
		return ""
	}
	if server := strings.TrimRight(id, ".:"); server != id && slices.Contains(d.known, server) {
		return "the name of a tool is missing"
	}
	for i, r := range id {
		if r != '.' && r != ':' {
			continue
		}
		if near, ok := closest(id[:i], d.known); ok {
			return fmt.Sprintf("did you mean %q?", near+id[i:])
		}
	}
	server, _, _ := strings.Cut(id, ".")
	return d.serverHint(server)
}

// usedInput matches an input in a text of a step's arguments.
var usedInput = regexp.MustCompile(`\{inputs\.([^{}]+)\}`)

// declareUsed declares undeclared inputs of the steps as required strings, and returns the
// names of all inputs. A name near a declared name is left to checkTemplates.
func (d *decoder) declareUsed(c *view.Composite, declared []string, parallel *document.Node, label string) []string {
	names := slices.Clone(declared)
	var visit func(n *document.Node)
	visit = func(n *document.Node) {
		for _, item := range n.Items {
			visit(item)
		}
		for _, p := range n.Pairs {
			visit(p.Value)
		}
		if n.Kind != document.Text || hasVariables(n) {
			return
		}
		for _, found := range usedInput.FindAllStringSubmatch(strings.NewReplacer("{{", "", "}}", "").Replace(n.Text), -1) {
			name := found[1]
			if _, near := closest(name, declared); near || slices.Contains(names, name) {
				continue
			}
			names = append(names, name)
			c.Inputs = append(c.Inputs, view.Input{Name: name, Required: true, Schema: []byte(`{"type":"string"}`)})
			d.warn(n, fmt.Sprintf("%s: the input %q is not declared: it is a required string", label, shorten(name)), "write inputs: {"+shorten(name)+": string}")
		}
	}
	for _, s := range c.Steps {
		if args := parallel.Find(s.Key).Given("args"); args != nil && s.Args != nil {
			visit(args)
		}
	}
	return names
}

// checkTemplates looks for braces without an input in all texts below n. The value was read
// before, so its variables are set and its aliases end.
func (d *decoder) checkTemplates(n *document.Node, label string, inputs []string) {
	for i, item := range n.Items {
		d.checkTemplates(item, fmt.Sprintf("%s[%d]", label, i), inputs)
	}
	for _, p := range n.Pairs {
		d.checkTemplates(p.Value, label+"."+shorten(p.Key.Text), inputs)
	}
	if n.Kind != document.Text {
		return
	}
	text, _ := expand(n.Text, d.env) // succeeded before
	message, hint := checkTemplate(text, inputs)
	switch {
	case message == "":
	case hasVariables(n): // message may hold a part of a variable's value
		d.fail(n, label+": "+asWritten(n)+" is no text with inputs", "write {inputs.name} for an input, {{ and }} for braces")
	default:
		d.fail(n, label+": "+message, hint)
	}
}

// checkTemplate returns the error of a text, or "". {inputs.x} is an input, {steps.x} the
// result of a step, {{ and }} are braces.
func checkTemplate(text string, inputs []string) (message, hint string) {
	for {
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			return "", ""
		}
		text = text[at:]
		if strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "}}") {
			text = text[2:]
			continue
		}
		inner, rest, closed := strings.Cut(text[1:], "}")
		name, isInput := strings.CutPrefix(inner, "inputs.")
		isResult := strings.HasPrefix(inner, "steps.") // package view checks the step
		switch {
		case text[0] == '}':
			return "a } closes nothing", "write }} for a brace"
		case !closed:
			return "a { is not closed", "write {{ for a brace"
		case isResult:
		case !isInput:
			return fmt.Sprintf("%q is no input", "{"+shorten(inner)+"}"), "write {inputs.name} for an input, {steps.key} for the result of a step, {{ and }} for braces"
		case !slices.Contains(inputs, name):
			return fmt.Sprintf("there is no input %q", shorten(name)), noneHint(name, inputs)
		}
		text = rest
	}
}

func noneHint(name string, inputs []string) string {
	if len(inputs) == 0 {
		return "the tool has no inputs"
	}
	return didYouMean(name, inputs)
}

// schemaTypes are the types of JSON Schema.
var schemaTypes = choice[string]{words: []string{"string", "integer", "number", "boolean", "array", "object", "null"}}

// inputs are the parameters of a composite tool.
var inputs = named[view.Input]{
	noun: "input", of: "names to types", hint: "like query: {type: string, required: true}",
	item:  input{},
	fresh: func(p document.Pair) view.Input { return view.Input{Name: p.Key.Text, Schema: []byte("{}")} },
	name:  func(i *view.Input) string { return i.Name },
	check: func(d *decoder, key *document.Node, label string) {
		if key.Text == "" || strings.ContainsAny(key.Text, "{}") {
			d.fail(key, fmt.Sprintf("%s: %q cannot be the name of an input", strings.TrimSuffix(label, "."+shorten(key.Text)), shorten(key.Text)), "")
		}
	},
}

// input is a type, or a JSON Schema with required beside its keywords.
type input struct{}

func (input) show(s *secrets, i view.Input) *document.Node {
	n := s.json(i.Schema, i.Name, ofSchema)
	if i.Required {
		n.Pairs = append([]document.Pair{{Key: document.NewText("required"), Value: document.NewBool(true)}}, n.Pairs...)
	}
	return n
}

func (input) schema() schema { return anyOf(schemaTypes.schema(), schema{"type": "object"}, null) }

func (input) read(d *decoder, n *document.Node, label string, to *view.Input) bool {
	switch n.Kind {
	case document.Null: // anything
		return true
	case document.Text:
		var word string
		if schemaTypes.read(d, n, label, &word) {
			to.Schema = slices.Concat([]byte(`{"type":`), rawjson.Quote(word), []byte("}"))
		}
		return true // a declared input, even if its type is wrong
	case document.Mapping:
	default:
		d.fail(n, label+" must be a type or a mapping, not "+string(n.Kind), "like string, or {type: string, required: true}")
		return true
	}
	keywords := *n
	keywords.Pairs = nil
	for _, p := range n.Pairs {
		item := label + "." + shorten(p.Key.Text)
		switch key, value := p.Key.Text, p.Value; {
		case key == "required" && value.Kind != document.List: // a list names required properties of an object
			boolean{}.read(d, value, item, &to.Required)
			continue
		case key == "type" && value.Kind == document.Text:
			var word string
			schemaTypes.read(d, value, item, &word)
		case key == "type" && value.Kind != document.List, key == "enum" && value.Kind != document.List,
			key == "properties" && value.Kind != document.Mapping:
			d.fail(value, item+" must not be "+string(value.Kind), "the schema of an input is JSON Schema")
			continue
		case key == "description" && value.Kind != document.Text:
			d.fail(value, item+" must be text, not "+string(value.Kind), "")
			continue
		}
		keywords.Pairs = append(keywords.Pairs, p)
	}
	if value, ok := d.value(&keywords, label); ok && json.Valid(value) {
		to.Schema = bytes.Clone(value)
	}
	return true
}
