package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"
)

// declaration is the value of tool(...): a function with its description.
type declaration struct {
	fn       *starlark.Function
	declared *Declared
}

func (d *declaration) String() string        { return fmt.Sprintf("<tool %s>", d.fn.Name()) }
func (d *declaration) Type() string          { return "tool" }
func (d *declaration) Freeze()               { d.fn.Freeze() }
func (d *declaration) Truth() starlark.Bool  { return true }
func (d *declaration) Hash() (uint32, error) { return 0, errors.New("unhashable type: tool") }

// maxDeclared bounds each part of a declaration, as JSON.
const maxDeclared = 1 << 20

// toolFunction is tool(function, description=, title=, parameters=,
// annotations=, output_schema=, calls=).
var toolFunction = builtin("tool", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var fn *starlark.Function
	var parameters, annotations, outputSchema *starlark.Dict
	var calls *starlark.List
	d := &Declared{}
	if err := starlark.UnpackArgs("tool", args, kwargs, "function", &fn, "description?", &d.Description, "title?", &d.Title,
		"parameters?", &parameters, "annotations?", &annotations, "output_schema?", &outputSchema, "calls?", &calls); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name string
		of   *starlark.Dict
		to   *json.RawMessage
	}{{"annotations", annotations, &d.Annotations}, {"output_schema", outputSchema, &d.OutputSchema}} {
		if part.of == nil {
			continue
		}
		raw, err := encode(part.of, maxDeclared)
		if err != nil {
			return nil, fmt.Errorf("tool: %s: %w", part.name, err)
		}
		*part.to = raw
	}
	if calls != nil {
		d.Calls = make([]string, 0, calls.Len())
		for call := range calls.Elements() {
			name, ok := starlark.AsString(call)
			if !ok {
				return nil, fmt.Errorf(`tool: calls: want "server.tool", got %s`, call.Type())
			}
			d.Calls = append(d.Calls, name)
		}
	}
	if parameters != nil {
		if err := d.declare(fn, parameters); err != nil {
			return nil, fmt.Errorf("tool: %w", err)
		}
	}
	return &declaration{fn, d}, nil
})

// declare takes the declared parameters, which must match the function's.
func (d *Declared) declare(fn *starlark.Function, parameters *starlark.Dict) error {
	params := paramsOf(fn)
	names := make([]string, len(params))
	for i, param := range params {
		names[i] = param.Name
	}
	d.Parameters = []Parameter{}
	for key, schema := range parameters.Entries() {
		name, ok := starlark.AsString(key)
		if !ok {
			return fmt.Errorf("parameters: a name must be a string, this one is %s", key.Type())
		}
		at := slices.Index(names, name)
		if at < 0 && !fn.HasKwargs() {
			return fmt.Errorf("parameters: function %s has no parameter %s%s", fn.Name(), name, didYouMean(name, names))
		}
		parameter, err := declaredParameter(name, schema, at >= 0 && !params[at].Optional)
		if err != nil {
			return fmt.Errorf("parameters: %s: %w", name, err)
		}
		d.Parameters = append(d.Parameters, parameter)
	}
	for _, param := range params {
		declared := slices.ContainsFunc(d.Parameters, func(p Parameter) bool { return p.Name == param.Name })
		if !declared && !param.Optional {
			return fmt.Errorf("parameters: %s is missing: function %s needs it", param.Name, fn.Name())
		}
	}
	return nil
}

// declaredParameter reads "string" or {"type": "string", "required": True, ...}. By default a parameter
// is required if neither the function nor the schema has a default.
func declaredParameter(name string, schema starlark.Value, needed bool) (Parameter, error) {
	if kind, ok := starlark.AsString(schema); ok {
		raw, err := json.Marshal(map[string]string{"type": kind})
		return Parameter{Name: name, Required: needed, Schema: raw}, err
	}
	given, ok := schema.(*starlark.Dict)
	if !ok {
		return Parameter{}, fmt.Errorf("want a type or a JSON Schema, got %s", schema.Type())
	}
	parameter := Parameter{Name: name, Required: needed}
	members := new(starlark.Dict)
	for key, value := range given.Entries() {
		switch key {
		case starlark.String("required"):
			required, ok := value.(starlark.Bool)
			if _, list := value.(*starlark.List); list { // of an object's properties
				break
			}
			if !ok {
				return Parameter{}, errors.New("required must be True or False")
			}
			parameter.Required = bool(required)
			continue
		case starlark.String("default"):
			parameter.Required = false
		}
		if err := members.SetKey(key, value); err != nil {
			return Parameter{}, err
		}
	}
	raw, err := encode(members, maxDeclared)
	parameter.Schema = raw
	return parameter, err
}

// paramsOf returns the parameters of a function after ctx, without *args and **kwargs.
func paramsOf(fn *starlark.Function) []Param {
	n := fn.NumParams()
	if fn.HasKwargs() {
		n--
	}
	if fn.HasVarargs() {
		n--
	}
	var params []Param
	for i := 1; i < n; i++ {
		name, _ := fn.Param(i)
		param := Param{Name: name}
		if value := fn.ParamDefault(i); value != nil {
			param.Optional = true
			param.Default, _ = encode(value, maxDeclared) // nil for a value that is no JSON
		}
		params = append(params, param)
	}
	return params
}
