package view

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolfinch/tool"
)

// stepEnv has tools that answer with text, with JSON as text, and with structured content.
func stepEnv(t *testing.T) Env {
	t.Helper()
	answering := func(id, result string) *tool.Tool {
		return upstreamTool(t, id, `{}`, func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result(result), nil })
	}
	env, _ := envOf(
		answering("a.json", `{"content":[{"type":"text","text":" {\"items\": [{\"id\": 7}, {\"id\": 8, \"n\": 12345678901234567890}], \"json\": 1}\n"}]}`),
		answering("a.text", `{"content":[{"type":"text","text":"No results"}]}`),
		answering("a.data", `{"content":[],"structuredContent":{"items":["x"],"of":{"json":true}}}`),
		answering("a.image", `{"content":[{"type":"image","data":"AA=="}]}`),
		upstreamTool(t, "a.fails", `{}`, failing),
		upstreamTool(t, "a.echo", `{}`, echo),
	)
	return env
}

// A step whose arguments have a part of another's result waits for it.
func TestAStepTakesTheResultOfAnother(t *testing.T) {
	for _, test := range []struct{ tool, args, want string }{
		{"a.json", `{"x":"{steps.first.json.items}"}`, `{"x":[{"id":7},{"id":8,"n":12345678901234567890}]}`},
		{"a.json", `{"x":"{steps.first.json.items.1.n}"}`, `{"x":12345678901234567890}`},
		{"a.json", `{"x":"ids {steps.first.json.items.0.id} and {steps.first.json.items.1.id}, {{steps.first}}, {inputs.query}"}`, `{"x":"ids 7 and 8, {steps.first}, q"}`},
		{"a.json", `{"x":"{steps.first.json.json}"}`, `{"x":1}`},
		{"a.text", `{"x":"{steps.first}"}`, `{"x":"No results"}`},
		{"a.data", `{"x":"{steps.first.items.0}","y":["{steps.first.json.items}","{steps.first.of.json}"],"z":"{steps.first}"}`,
			`{"x":"x","y":[["x"],true],"z":{"items":["x"],"of":{"json":true}}}`},
		{"a.image", `{"x":"{steps.first.0.type}"}`, `{"x":"image"}`},

		{"a.text", `{"x":"{steps.first.json.items}"}`, `{"error":"x: {steps.first.json.items}: the result of step first is not JSON but text: \"No results\""}`},
		{"a.text", `{"x":"{steps.first.items}"}`, `{"error":"x: {steps.first.items}: the result of step first is text; where it is JSON, write .json.items"}`},
		{"a.json", `{"x":"{steps.first.json.itms}"}`, `{"error":"x: {steps.first.json.itms}: the result of step first.json has no \"itms\"; it has items, json"}`},
		{"a.json", `{"x":"{steps.first.json.items.2}"}`, `{"error":"x: {steps.first.json.items.2}: the result of step first.json.items is a list of 2, without a number 2"}`},
		{"a.json", `{"x":"{steps.first.json.items.0.id.deep}"}`, `{"error":"x: {steps.first.json.items.0.id.deep}: the result of step first.json.items.0.id has no \"deep\"; it has no members"}`},
		{"a.fails", `{"x":"{steps.first.json}"}`, `{"error":"x: it needs the result of step first, which failed"}`},
	} {
		s := everywhere(Step{Key: "second", Tool: "a.echo", Args: []byte(test.args)}, Step{Key: "first", Tool: test.tool})
		s.Composites[0].Concurrency = 1 // a step that waits is in nobody's way
		tools, problems := composites(s, stepEnv(t), nil)
		made := onlyTool(t, tools, problems)
		answer := mustCall(t, made.Handler, &tool.Call{Name: made.Name, Arguments: json.RawMessage(`{"query":"q"}`)})
		if want := `{"second":` + test.want + `,"first":`; !strings.HasPrefix(string(answer.Value()), want) {
			t.Errorf("%s of %s:\n got %s\nwant %s", test.args, test.tool, answer.Value(), want)
		}
	}
}

func TestStepsThatCannotTakeResultsAreTold(t *testing.T) {
	uses := func(key, of string) Step {
		return Step{Key: key, Tool: "a.echo", Args: fmt.Appendf(nil, `{"x":"{steps.%s}"}`, of), At: Place{Line: 3}}
	}
	for want, steps := range map[string][]Step{
		`step aa: args: x: unknown step "other" (known: aa, b)`:          {uses("aa", "other.json"), {Key: "b", Tool: "a.echo"}},
		`composite tool search_everywhere: the steps a, b wait for each`: {uses("a", "b"), uses("b", "a"), uses("d", "x.y"), {Key: "x.y", Tool: "a.echo"}},
		`the steps a wait for each other`:                                {uses("a", "a")},
	} {
		tools, problems := composites(everywhere(steps...), stepEnv(t), nil)
		wantProblems(t, problems, want)
		if len(tools) > 0 {
			t.Errorf("%s: it is there", want)
		}
	}
}

// Where one failure is the answer, a step that waits for another ends with it.
func TestAStepThatWaitsEndsWithTheOthers(t *testing.T) {
	s := everywhere(Step{Key: "second", Tool: "a.echo", Args: []byte(`{"x":"{steps.first}"}`)}, Step{Key: "first", Tool: "a.fails"})
	s.Composites[0].FailFast = true
	if got := said(answerOf(t, s, stepEnv(t))); got != "step first failed: no such repository" {
		t.Errorf("%s", got)
	}
}
