package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/itchyny/gojq"

	"toolfinch/internal/rawjson"
)

// query evaluates a jq expression over JSON. Its value is the JSON array of all values of the
// expression. Numbers that the expression does not compute keep their digits. The expression reaches no
// environment, no files and no other input.
//
// It must run in a process of its own: one operation of jq can take all memory, and cannot be stopped.
func query(ctx context.Context, expression string, data []byte, limits Limits) (json.RawMessage, error) {
	code, err := compileQuery(expression)
	if err != nil {
		return nil, err
	}
	var root any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&root); err != nil {
		return nil, fmt.Errorf("the data is not JSON: %w", err)
	}
	out := json.RawMessage{'['}
	values := code.RunWithContext(ctx, root)
	for value, more := values.Next(); more; value, more = values.Next() {
		if failed, ok := value.(error); ok {
			halt, ends := errors.AsType[*gojq.HaltError](failed)
			switch {
			case ctx.Err() != nil:
				return nil, limitError("%s of time: do less", limits.Time)
			case ends && halt.Value() == nil:
				return append(out, ']'), nil
			}
			return nil, errors.New(shorten(failed.Error()))
		}
		encoded, err := gojq.Marshal(value)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		if out = append(out, encoded...); len(out) >= limits.Output {
			return nil, limitError("%d bytes of values: select less", limits.Output)
		}
	}
	return append(out, ']'), nil
}

// compileQuery compiles an expression. Its errors name the position.
func compileQuery(expression string) (*gojq.Code, error) {
	parsed, err := gojq.Parse(expression)
	if wrong, ok := errors.AsType[*gojq.ParseError](err); ok {
		at := min(max(wrong.Offset-len(wrong.Token), 0), len(expression))
		return nil, fmt.Errorf("%w after %q", err, rawjson.Clip(expression[:at], maxMessage/2))
	}
	if err != nil {
		return nil, err
	}
	return gojq.Compile(parsed)
}
