package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
)

// inputs are the parameters of a composite or custom tool.
type inputs struct {
	raw      json.RawMessage // input schema of the tool
	schema   *schema.Schema
	defaults []Input // inputs with a default; Schema is the default value
}

func newInputs(list []Input) (*inputs, error) {
	properties, required := rawjson.NewObject(0), []string{}
	var in inputs
	for _, input := range list {
		if !isObject(input.Schema) {
			return nil, fmt.Errorf("the schema of input %q is not an object", input.Name)
		}
		properties.Add(input.Name, input.Schema)
		if input.Required {
			required = append(required, input.Name)
		}
		if value := rawjson.Member(input.Schema, "default"); value != nil {
			in.defaults = append(in.defaults, Input{Name: input.Name, Schema: value})
		}
	}
	var err error
	in.raw, err = rawjson.Encode(struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required,omitempty"`
		Additional bool            `json:"additionalProperties"`
	}{"object", properties.JSON(), required, false})
	if err != nil {
		return nil, err
	}
	in.schema, err = schema.Compile(in.raw)
	return &in, err
}

// read checks the arguments of a call and adds default values. The model is shown the error.
func (in *inputs) read(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
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
	violations, err := in.schema.Check(ctx, arguments)
	if err != nil {
		return nil, fmt.Errorf("the arguments cannot be checked: %w", err)
	}
	if len(violations) > 0 {
		return nil, fmt.Errorf("the arguments do not fit:\n- %s\nThe input schema is:\n%s", strings.Join(violations, "\n- "), in.raw)
	}
	return arguments, nil
}
