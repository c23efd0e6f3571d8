package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// composite is a compiled tool that calls several tools at once. A step waits for the steps whose results its arguments
// use.
type composite struct {
	name        string
	env         Env
	hooks       *hooks
	inputs      *inputs
	steps       []step
	order       []int // indices of steps, each after the steps that it waits for
	failFast    bool
	concurrency int
}

type step struct {
	key     string
	tool    string          // a name for Env.Find
	args    json.RawMessage // template of the arguments
	timeout time.Duration
	after   []int // indices of the steps that args refers to
}

// composites makes the composite tools of a view, without hooks. It leaves out composites with mistakes, but keeps
// composites whose tools are missing, because those tools may appear.
func composites(s Settings, env Env, h *hooks) ([]*tool.Tool, []Problem) {
	var tools []*tool.Tool
	var problems []Problem
	for _, settings := range s.Composites {
		c, wrong := newComposite(s, settings, env, h)
		if c == nil {
			problems = append(problems, wrong...)
			continue
		}
		var ids []string
		var places []Place
		for _, step := range settings.Steps {
			ids, places = append(ids, step.Tool), append(places, step.At)
		}
		least, _, wrong := checkCalls(s, env, "composite tool "+settings.Name, ids, places)
		problems = append(problems, wrong...)
		for _, step := range settings.Steps {
			problems = append(problems, unknownArguments(s, settings, step, env)...)
		}
		t, err := ownTool(s.Name, settings.Name, settings.Title, settings.Description, c.inputs.raw, nil, hints(least))
		if err != nil {
			problems = append(problems, Problem{View: s.Name, At: settings.At, Message: fmt.Sprintf("composite tool %s: %v", settings.Name, err)})
			continue
		}
		t.Handler = c.call
		h.owns(t.Def)
		tools = append(tools, t)
	}
	return tools, problems
}

func newComposite(s Settings, settings Composite, env Env, h *hooks) (*composite, []Problem) {
	var problems []Problem
	wrong := func(at Place, format string, args ...any) {
		problems = append(problems, Problem{View: s.Name, At: at, Message: "composite tool " + settings.Name + ": " + fmt.Sprintf(format, args...)})
	}
	c := &composite{
		name: settings.Name, env: env, hooks: h, failFast: settings.FailFast,
		concurrency: cmp.Or(settings.Concurrency, DefaultConcurrency),
	}
	var err error
	if c.inputs, err = newInputs(settings.Inputs); err != nil {
		wrong(settings.At, "inputs: %v", err)
	}
	if len(settings.Steps) == 0 {
		wrong(settings.At, "it has no steps")
	}
	var names, keys []string
	for _, input := range settings.Inputs {
		names = append(names, input.Name)
	}
	for _, step := range settings.Steps {
		keys = append(keys, step.Key)
	}
	for _, one := range settings.Steps {
		args := bytes.TrimSpace(one.Args)
		if len(args) == 0 {
			args = []byte(`{}`)
		}
		if !isObject(args) {
			wrong(one.At, "step %s: args is not an object", one.Key)
			continue
		}
		after, err := usedSteps(args, names, keys)
		if err != nil {
			wrong(one.At, "step %s: args: %v", one.Key, err)
		}
		c.steps = append(c.steps, step{one.Key, one.Tool, args, cmp.Or(one.Timeout, settings.Timeout, DefaultStepTimeout), after})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	var waiting []string
	if c.order, waiting = inOrder(c.steps); len(waiting) > 0 {
		wrong(settings.At, "the steps %s wait for each other", strings.Join(waiting, ", "))
		return nil, problems
	}
	return c, nil
}

// unknownArguments warns of arguments that the schema of a step's tool lacks. They are no errors, because some tools
// accept more arguments.
func unknownArguments(s Settings, by Composite, step Step, env Env) []Problem {
	t, found := env.Find(step.Tool)
	if !found {
		return nil
	}
	var names []string
	for name := range rawjson.Members(rawjson.Member(t.Def.InputSchema, "properties")) {
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil
	}
	var problems []Problem
	for name := range rawjson.Members(step.Args) {
		if !slices.Contains(names, name) {
			problems = append(problems, Problem{
				View: s.Name, At: step.At, Warning: true,
				Message: fmt.Sprintf("composite tool %s: step %s: the tool %s does not tell of an argument %q", by.Name, step.Key, step.Tool, name),
				Hint:    didYouMean(name, names),
			})
		}
	}
	return problems
}

// stepError is the failure of a step that makes the whole composite fail.
type stepError struct {
	key string
	err error
}

func (e *stepError) Error() string { return fmt.Sprintf("step %s failed: %v", e.key, e.err) }

// call is the handler of a composite.
func (c *composite) call(ctx context.Context, call *tool.Call) (tool.Result, error) {
	in, err := c.inputs.read(ctx, call.Arguments)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	progress := tool.NewProgress(call, len(c.steps))
	values := make([]json.RawMessage, len(c.steps)) // each element is written only by its step
	failures := make([]error, len(c.steps))
	done := make([]chan struct{}, len(c.steps))
	for i := range done {
		done[i] = make(chan struct{})
	}
	result := func(i int) (json.RawMessage, error) { return values[i], failures[i] }
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(c.concurrency)
	for _, i := range c.order {
		step := c.steps[i]
		group.Go(func() error {
			defer close(done[i])
			for _, earlier := range step.after {
				select {
				case <-done[earlier]:
					if failures[earlier] != nil && c.failFast { // the composite answers with the earlier failure
						failures[i] = failures[earlier]
						return nil
					}
				case <-running.Done():
				}
			}
			values[i], failures[i] = c.run(running, call, step, in, result, progress.Part(step.key))
			if failures[i] != nil && c.failFast {
				return &stepError{step.key, failures[i]}
			}
			return nil
		})
	}
	err = group.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", c.name, ctx.Err())
	case err != nil:
		return tool.ErrorResult(err.Error()), nil
	}
	answer, failed := rawjson.NewObject(0), 0
	for i, step := range c.steps {
		if failures[i] != nil {
			failed++
			values[i] = rawjson.Of(map[string]string{"error": failures[i].Error()})
		}
		answer.Add(step.key, values[i])
	}
	return valueResult(answer.JSON(), failed == len(c.steps))
}

// run calls a step's tool and returns the value of its result. The steps that s waits for are done.
func (c *composite) run(ctx context.Context, call *tool.Call, s step, in json.RawMessage, result func(int) (json.RawMessage, error), part *tool.Part) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("no answer within %s", s.timeout))
	defer cancel()
	id, handler, err := findHooked(c.env, c.hooks, s.tool)
	if err != nil {
		part.Finish(err)
		return nil, err
	}
	arguments, err := fillIn(s.args, func(place string) (json.RawMessage, error) {
		if name, isInput := strings.CutPrefix(place, "inputs."); isInput {
			return rawjson.Member(in, name), nil
		}
		return c.resultAt(place, result)
	})
	if err != nil {
		part.Finish(err)
		return nil, err
	}
	return callInner(ctx, call, handler, id, arguments, part)
}
