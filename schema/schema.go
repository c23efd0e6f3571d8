// Package schema checks JSON values against JSON Schemas, which are anybody's: it
// reads no file and follows no URL for them. What is to be done about a violation
// is for others to decide.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// Compile compiles a schema, of draft 2020-12 unless it names another.
func Compile(raw json.RawMessage) (*Schema, error) {
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
	compiled, err := compiler.Compile(url)
	var wrong *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	switch {
	case errors.As(err, &wrong) && errors.As(wrong.Err, &invalid):
		return nil, errors.New("it is no JSON Schema: " + strings.Join(leaves(invalid, message.NewPrinter(language.English), nil), "; "))
	case err != nil:
		return nil, err
	}
	return &Schema{compiled}, nil
}

// noLoader keeps a schema from making this program read files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %s is not followed", url)
}

// Violations returns what is wrong with a value, one line each ("/path: what"),
// ten at most.
func (s *Schema) Violations(raw json.RawMessage) []string {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return []string{err.Error()}
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(s.compiled.Validate(value), &invalid) {
		return nil
	}
	return leaves(invalid, message.NewPrinter(language.English), nil)
}

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
