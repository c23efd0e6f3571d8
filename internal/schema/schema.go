// Package schema owns the checks of JSON values against JSON Schemas. It trusts neither: it reads no
// file, follows no URL, and bounds the cost. It does not decide about violations.
package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

var (
	// ErrSchema marks an unusable schema: it is invalid, refers to another document, or costs too much.
	ErrSchema = errors.New("the schema cannot be used")
	// ErrValue marks a value that is not checked, because any check of it costs too much.
	ErrValue = errors.New("the value cannot be checked")
)

// fault is an ErrSchema or ErrValue whose text is only the reason.
type fault struct {
	error
	is error
}

func (f fault) Unwrap() error        { return f.error }
func (f fault) Is(target error) bool { return target == f.is }

func unusable(format string, args ...any) error { return fault{fmt.Errorf(format, args...), ErrSchema} }

func tooMuch(format string, args ...any) error { return fault{fmt.Errorf(format, args...), ErrValue} }

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	compiled    *jsonschema.Schema
	unevaluated bool // it has unevaluatedProperties or unevaluatedItems
}

// Compile compiles a schema, of draft 2020-12 unless it names another. Its errors are ErrSchema. It
// takes up to about a second, for the largest schemas.
func Compile(raw json.RawMessage) (schema *Schema, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			schema, err = nil, unusable("compiling it failed: %v", cause)
		}
	}()
	read, err := readSchema(raw)
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	compiler.UseRegexpEngine(compilePattern)
	const url = "tool:///schema"
	if err := compiler.AddResource(url, read.root); err != nil {
		return nil, unusable("%w", err)
	}
	compiled, err := compiler.Compile(url)
	var wrong *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	switch {
	case errors.As(err, &wrong) && errors.As(wrong.Err, &invalid):
		return nil, unusable("it is no JSON Schema: %s", strings.Join(leaves(invalid, message.NewPrinter(language.English), nil), "; "))
	case err != nil:
		return nil, unusable("%w", err)
	}
	schema = &Schema{compiled: compiled}
	all := map[*jsonschema.Schema]bool{}
	reach(compiled, all)
	for s := range all {
		if (s.DynamicRef != nil || s.RecursiveRef != nil) && !read.single() {
			return nil, unusable("it has a dynamic reference that may lead to several places")
		}
		schema.unevaluated = schema.unevaluated || s.UnevaluatedItems != nil || s.UnevaluatedProperties != nil
	}
	return schema, nil
}

// readSchema decodes a schema within the bounds.
func readSchema(raw json.RawMessage) (*survey, error) {
	if len(raw) > maxSchemaBytes {
		return nil, unusable("it is longer than %d kB", maxSchemaBytes>>10)
	}
	switch e := extentOf(raw); {
	case e.depth > maxSchemaDepth:
		return nil, unusable("it nests deeper than %d", maxSchemaDepth)
	case e.values > maxSchemaValues:
		return nil, unusable("it has more than %d values", maxSchemaValues)
	case e.number != "":
		return nil, unusable("it has the number %s..., which is too long", e.number)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, unusable("%v", err)
	}
	s := &survey{root: value, values: count(value), refs: map[string]bool{}}
	return s, s.walk(value)
}

// noLoader refuses to load files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %.200s is not followed", url)
}

// pattern is a regular expression and its size.
type pattern struct {
	*regexp.Regexp
	instructions int
}

// compilePattern also compiles values of the format "regex".
func compilePattern(text string) (jsonschema.Regexp, error) {
	n := instructions(text)
	if n > maxPattern {
		return nil, errors.New("the regular expression is too large")
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return pattern{compiled, n}, nil
}

// Check returns the violations of a value, one line each ("/path: what"), at most ten. Without an
// answer its error is ErrValue for the value with any schema, ErrSchema for the schema with this value,
// or ctx's. It takes up to about half a second.
func (s *Schema) Check(ctx context.Context, raw json.RawMessage) (violations []string, err error) {
	return s.check(ctx, raw, nil)
}

// check is Check, with a slot for an expensive check unless slots is nil.
func (s *Schema) check(ctx context.Context, raw json.RawMessage, slots chan struct{}) (violations []string, err error) {
	invalid, err := s.validate(ctx, raw, slots)
	var malformed notJSON
	switch {
	case errors.As(err, &malformed):
		return []string{malformed.Error()}, nil
	case invalid == nil || err != nil:
		return nil, err
	}
	return leaves(invalid, message.NewPrinter(language.English), nil), nil
}

// notJSON says why a value is no JSON, which is a violation.
type notJSON struct{ error }

// validate is check for the violations as they are found.
func (s *Schema) validate(ctx context.Context, raw json.RawMessage, slots chan struct{}) (invalid *jsonschema.ValidationError, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			invalid, err = nil, unusable("checking against it failed: %v", cause)
		}
	}()
	e := extentOf(raw)
	switch {
	case e.depth > maxValueDepth:
		return nil, tooMuch("the value nests deeper than %d", maxValueDepth)
	case e.values > maxValues:
		return nil, tooMuch("the value has more than %d values", maxValues)
	case e.number != "":
		return nil, tooMuch("the value has the number %s..., which is too long: %d digits and exponents up to %d are", e.number, maxDigits, maxExponent)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, notJSON{err}
	}
	work, affordable := s.work(ctx, value, e.values, len(raw))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !affordable:
		return nil, unusable("checking this value against it would cost too much")
	}
	if slots != nil && work > expensive {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	errors.As(s.compiled.Validate(value), &invalid)
	return invalid, nil
}

// Bounds of the violations of a value.
const (
	maxViolations = 10
	maxViolation  = 500 // bytes of one
)

func leaves(e *jsonschema.ValidationError, p *message.Printer, to []string) []string {
	if len(to) >= maxViolations {
		return to
	}
	if len(e.Causes) == 0 {
		text := "/" + strings.Join(e.InstanceLocation, "/") + ": " + e.ErrorKind.LocalizedString(p)
		if len(text) > maxViolation {
			text = strings.ToValidUTF8(text[:maxViolation], "") + "..."
		}
		return append(to, text)
	}
	for _, cause := range e.Causes {
		to = leaves(cause, p, to)
	}
	return to
}
