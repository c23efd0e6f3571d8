package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"toolfinch/rawjson"
)

// inputs are the parameters of a composite or custom tool.
type inputs struct {
	raw      json.RawMessage // the input schema
	schema   *jsonschema.Schema
	defaults []Input // those with a default; Schema is that
}

func newInputs(list []Input) (*inputs, error) {
	properties, required := []byte("{"), []string{}
	var in inputs
	for _, input := range list {
		if !isObject(input.Schema) {
			return nil, fmt.Errorf("the schema of input %q is not an object", input.Name)
		}
		properties = appendMember(properties, quoted(input.Name), input.Schema)
		if input.Required {
			required = append(required, input.Name)
		}
		if value := rawjson.Member(input.Schema, "default"); value != nil {
			in.defaults = append(in.defaults, Input{Name: input.Name, Schema: value})
		}
	}
	var err error
	in.raw, err = marshal(struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required,omitempty"`
		Additional bool            `json:"additionalProperties"`
	}{"object", append(properties, '}'), required, false})
	if err != nil {
		return nil, err
	}
	in.schema, err = compileSchema(in.raw)
	return &in, err
}

// read returns the arguments of a call with the defaults filled in. Its error is
// for the model.
func (in *inputs) read(arguments json.RawMessage) (json.RawMessage, error) {
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage(`{}`)
	}
	for _, missing := range in.defaults {
		if rawjson.Member(arguments, missing.Name) != nil {
			continue
		}
		with, err := rawjson.Set(arguments, missing.Name, missing.Schema)
		if err != nil {
			return nil, errors.New("the arguments are not an object")
		}
		arguments = with
	}
	if violations := violationsOf(in.schema, arguments); len(violations) > 0 {
		return nil, fmt.Errorf("the arguments do not fit:\n- %s\nThe input schema is:\n%s", strings.Join(violations, "\n- "), in.raw)
	}
	return arguments, nil
}

func compileSchema(raw json.RawMessage) (*jsonschema.Schema, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	const url = "tool:///schema"
	if err := compiler.AddResource(url, value); err != nil {
		return nil, err
	}
	schema, err := compiler.Compile(url)
	var wrong *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	if errors.As(err, &wrong) && errors.As(wrong.Err, &invalid) {
		return nil, errors.New("it is no JSON Schema: " + strings.Join(leaves(invalid, message.NewPrinter(language.English), nil), "; "))
	}
	return schema, err
}

// noLoader keeps a schema from making this program read files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %s is not followed", url)
}

// violationsOf returns what is wrong with a value.
func violationsOf(schema *jsonschema.Schema, raw json.RawMessage) []string {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return []string{err.Error()}
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(schema.Validate(value), &invalid) {
		return nil
	}
	return leaves(invalid, message.NewPrinter(language.English), nil)
}

// maxViolations is how many violations an answer names.
const maxViolations = 10

func leaves(e *jsonschema.ValidationError, p *message.Printer, to []string) []string {
	if len(to) >= maxViolations {
		return to
	}
	if len(e.Causes) == 0 {
		return append(to, "/"+strings.Join(e.InstanceLocation, "/")+": "+e.ErrorKind.LocalizedString(p))
	}
	for _, cause := range e.Causes {
		to = leaves(cause, p, to)
	}
	return to
}
