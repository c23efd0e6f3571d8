package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/view/script"
)

// Bounds of an evaluation.
const (
	maxData        = 5 << 20   // bytes of JSON
	maxExpression  = 10_000    // bytes
	maxMemory      = 256 << 20 // bytes, of the process that evaluates
	maxExpressions = 2         // at a time, one of an owner: each takes maxMemory
	maxTime        = 5 * time.Second
	maxValue       = 5 << 20 // bytes of the values as JSON
)

// Evaluator evaluates models' jq expressions within its own limits; script.Sandbox is one. The result
// is the JSON array of the expression's values.
type Evaluator interface {
	Query(ctx context.Context, expression string, data []byte, limits script.Limits) (json.RawMessage, error)
}

// value is the result of an expression: a text itself, any other value as JSON.
type value struct{ text, kind string }

// evaluate evaluates a jq expression over the structured content of result, else
// over its text.
func (c *Cache) evaluate(ctx context.Context, owner, expression string, result tool.Result) (value, error) {
	raw := []byte(structured(result))
	if raw == nil {
		raw = []byte(textOf(result))
	}
	switch {
	case len(expression) > maxExpression:
		return value{}, fmt.Errorf("the jq expression has %d bytes, more than %d", len(expression), maxExpression)
	case len(raw) > maxData:
		return value{}, fmt.Errorf("jq reads at most %d bytes, and this has %d: read it with lines or offset", maxData, len(raw))
	case !json.Valid(raw):
		return value{}, errors.New("jq needs JSON, and the output is text: read it with lines or offset")
	}
	within, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	end, err := c.evaluating.Take(within, owner)
	if err != nil {
		return value{}, errors.New("too many expressions are evaluated at once: try again")
	}
	defer end()
	found, err := c.evaluator.Query(ctx, expression, raw, script.Limits{Memory: maxMemory, Time: leeway.Of(maxTime), Output: maxValue})
	if failed, ok := errors.AsType[*script.Error](err); ok {
		return value{}, errors.New("jq: " + failed.Message)
	}
	if err != nil {
		return value{}, fmt.Errorf("jq: %w", err)
	}
	return valueOf(found), nil
}

// valueOf returns an expression's values as text, one a line.
func valueOf(values json.RawMessage) value {
	var text []byte
	n := 0
	for one := range rawjson.Elements(values) {
		if n++; n > 1 {
			text = append(text, '\n')
		}
		text = append(text, one...)
	}
	switch {
	case n == 0:
		return value{"", "output of the expression, which found nothing"}
	case n > 1:
		return value{string(text), fmt.Sprintf("%d values of the expression, one a line", n)}
	case text[0] == '"':
		return value{rawjson.Text(text), "text that the expression found"}
	}
	return value{string(text), "JSON value of the expression"}
}
