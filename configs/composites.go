package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolfinch/view"
)

// compositeSettings are all keys of a composite tool. Its steps are read by
// (*decoder).composite: they need its inputs.
var compositeSettings = []field[view.Composite]{
	{key: "title", set: func(d *decoder, c *view.Composite, n *node, label string) {
		d.text(n, label, &c.Title)
	}},
	{key: "description", set: func(d *decoder, c *view.Composite, n *node, label string) {
		d.text(n, label, &c.Description)
	}},
	{key: "inputs", set: func(d *decoder, c *view.Composite, n *node, label string) {
		c.Inputs = d.inputs(n, label)
	}},
	{key: "parallel", set: func(*decoder, *view.Composite, *node, string) {}},
	{key: "on_error", set: func(d *decoder, c *view.Composite, n *node, label string) {
		var word string
		choose(d, n, label, onErrors, &word)
		c.FailFast = word == "fail"
	}},
	{key: "concurrency", set: func(d *decoder, c *view.Composite, n *node, label string) {
		d.number(n, label, 1, 100, &c.Concurrency)
	}},
	{key: "timeout", set: func(d *decoder, c *view.Composite, n *node, label string) {
		d.duration(n, label, &c.Timeout)
	}},
}

func (d *decoder) composites(n *node, label string, taken claims) []view.Composite {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of names to tools, not "+string(n.kind), "")
		return nil
	}
	var list []view.Composite
	for _, p := range d.unique(n, "tool") {
		item := label + "." + shorten(p.key.text)
		c := view.Composite{
			Name: p.key.text, At: placeOf(p.key),
			Concurrency: view.DefaultConcurrency, Timeout: view.DefaultStepTimeout,
		}
		d.claim(taken, p.key, item, c.Name)
		if d.composite(p.value, item, &c) {
			list = append(list, c)
		}
	}
	return list
}

// composite reads one composite tool. It reports whether there is one: not when
// all its steps are of disabled servers.
func (d *decoder) composite(n *node, label string, c *view.Composite) bool {
	if !fields(d, n, label, label+".", compositeSettings, c) {
		return false
	}
	steps := n.given("parallel")
	if steps == nil || steps.kind == kindMapping && len(steps.pairs) == 0 {
		d.fail(n, label+" has no steps", "write them under parallel: {key: {tool: server.tool, args: {...}}}")
		return false
	}
	if steps.kind != kindMapping {
		d.fail(steps, label+".parallel must be a mapping of keys to steps, not "+string(steps.kind), "")
		return false
	}
	inputs := make([]string, len(c.Inputs))
	for i, input := range c.Inputs {
		inputs[i] = input.Name
	}
	for _, p := range d.unique(steps, "step") {
		if step := d.step(p, label+".parallel."+shorten(p.key.text), inputs); step != nil {
			c.Steps = append(c.Steps, *step)
		} else {
			c.LeftOut++
		}
	}
	return len(c.Steps) > 0
}

// stepSettings are all keys of a step.
var stepSettings = []field[view.Step]{
	{key: "tool", set: func(d *decoder, s *view.Step, n *node, label string) {
		d.text(n, label, &s.Tool)
	}},
	{key: "args", set: func(d *decoder, s *view.Step, n *node, label string) {
		if n.kind != kindMapping {
			d.fail(n, label+" must be a mapping of parameters to values, not "+string(n.kind), "")
			return
		}
		s.Args, _ = d.value(n, label)
	}},
	{key: "timeout", set: func(d *decoder, s *view.Step, n *node, label string) {
		d.duration(n, label, &s.Timeout)
	}},
}

// step reads one step; nil when it cannot run.
func (d *decoder) step(p pair, label string, inputs []string) *view.Step {
	s := &view.Step{Key: p.key.text, At: placeOf(p.key)}
	if !fields(d, p.value, label, label+".", stepSettings, s) {
		return nil
	}
	if args := p.value.given("args"); args == nil {
		s.Args = []byte("{}")
	} else if s.Args != nil {
		d.checkTemplates(args, label+".args", inputs)
	}
	tool := p.value.given("tool")
	if tool == nil {
		d.fail(p.value, label+" has no tool", "write tool: server.tool")
		return nil
	}
	if tool.kind != kindText || s.Tool == "" && tool.hasVariables() {
		return nil // reported
	}
	server, _, ok := d.splitTool(s.Tool)
	switch {
	case ok && d.off[server]:
		d.warn(tool, fmt.Sprintf("%s: server %q is disabled: the step is left out", label, server), "")
		return nil
	case !ok && !(len(d.known) == 0 && len(d.errors) > 0):
		d.mustBe(tool, label+".tool", "server.tool, of a server that there is", d.stepHint(tool, s.Tool))
	}
	return s
}

// stepHint names the nearest server with the tool that was asked for.
func (d *decoder) stepHint(n *node, id string) string {
	if n.hasVariables() || len(d.known) == 0 {
		return ""
	}
	if server, found := strings.CutSuffix(id, "."); found && slices.Contains(d.known, server) {
		return "the name of a tool is missing"
	}
	for i, r := range id {
		if r != '.' {
			continue
		}
		if near, ok := closest(id[:i], d.known); ok {
			return fmt.Sprintf("did you mean %q?", near+id[i:])
		}
	}
	server, _, _ := strings.Cut(id, ".")
	return d.serverHint(server)
}

// checkTemplates looks for braces that are no inputs in all texts below n, a
// value that has been read: its variables can be replaced, and its aliases end.
func (d *decoder) checkTemplates(n *node, label string, inputs []string) {
	for i, item := range n.items {
		d.checkTemplates(item, fmt.Sprintf("%s[%d]", label, i), inputs)
	}
	for _, p := range n.pairs {
		d.checkTemplates(p.value, label+"."+shorten(p.key.text), inputs)
	}
	if n.kind != kindText {
		return
	}
	text, _ := expand(n.text, d.env) // worked before
	message, hint := checkTemplate(text, inputs)
	switch {
	case message == "":
	case n.hasVariables(): // what is wrong may be a piece of a value
		d.fail(n, label+": "+n.String()+" is no text with inputs", "write {inputs.name} for an input, {{ and }} for braces")
	default:
		d.fail(n, label+": "+message, hint)
	}
}

// checkTemplate says what is wrong with a text in which {inputs.x} stands for an
// input, {{ and }} for braces; "" for nothing.
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
		switch {
		case text[0] == '}':
			return "a } closes nothing", "write }} for a brace"
		case !closed:
			return "a { is not closed", "write {{ for a brace"
		case !isInput:
			return fmt.Sprintf("%q is no input", "{"+shorten(inner)+"}"), "write {inputs.name} for an input, {{ and }} for braces"
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
var schemaTypes = []string{"string", "integer", "number", "boolean", "array", "object", "null"}

// inputs reads the parameters of a composite tool.
func (d *decoder) inputs(n *node, label string) []view.Input {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of names to types, not "+string(n.kind), "like query: {type: string, required: true}")
		return nil
	}
	var list []view.Input
	for _, p := range d.unique(n, "input") {
		item := label + "." + shorten(p.key.text)
		if p.key.text == "" || strings.ContainsAny(p.key.text, "{}") {
			d.fail(p.key, fmt.Sprintf("%s: %q cannot be the name of an input", label, shorten(p.key.text)), "")
		}
		// Listed even where it is wrong: what uses it is not.
		input := view.Input{Name: p.key.text, Schema: []byte("{}")}
		d.input(p.value, item, &input)
		list = append(list, input)
	}
	return list
}

// input reads a type, or a JSON Schema with required beside its keywords.
func (d *decoder) input(n *node, label string, to *view.Input) {
	switch n.kind {
	case kindNull: // anything
		return
	case kindText:
		var word string
		if choose(d, n, label, schemaTypes, &word) {
			to.Schema = slices.Concat([]byte(`{"type":`), jsonText(word), []byte("}"))
		}
		return
	case kindMapping:
	default:
		d.fail(n, label+" must be a type or a mapping, not "+string(n.kind), "like string, or {type: string, required: true}")
		return
	}
	schema := *n
	schema.pairs = nil
	for _, p := range n.pairs {
		item := label + "." + shorten(p.key.text)
		switch key, value := p.key.text, p.value; {
		case key == "required" && value.kind != kindList: // a list is that of an object's properties
			d.boolean(value, item, &to.Required)
			continue
		case key == "type" && value.kind == kindText:
			var word string
			choose(d, value, item, schemaTypes, &word)
		case key == "type" && value.kind != kindList, key == "enum" && value.kind != kindList,
			key == "properties" && value.kind != kindMapping:
			d.fail(value, item+" must not be "+string(value.kind), "the schema of an input is JSON Schema")
			continue
		case key == "description" && value.kind != kindText:
			d.fail(value, item+" must be text, not "+string(value.kind), "")
			continue
		}
		schema.pairs = append(schema.pairs, p)
	}
	if value, ok := d.value(&schema, label); ok && json.Valid(value) {
		to.Schema = bytes.Clone(value)
	}
}
