package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// runScriptName is the name of the meta-tool for models' scripts.
const runScriptName = "run_script"

const runScriptDescription = "Run a Starlark script (a Python subset) that calls several tools and returns only what you need of their answers; " +
	"better than many calls when answers are large or one call feeds the next. Assign what you want back to `result`, or define main() and return it.\n" +
	"- call_tool(\"name\", arg=value) returns the tool's structured content, else its text; a failing tool ends the script\n" +
	"- parallel([{\"tool\": \"name\", \"args\": {...}}, ...]) returns a list of {\"result\": ...} or {\"error\": \"text\"}, in order\n" +
	"- retrieve(\"what it should do\") finds tools\n" +
	"- json, re, time, hash, math; no files, network, import, while, try or classes\n" +
	"Example:\n" +
	"found = call_tool(\"github_search_issues\", query=\"crash\")\n" +
	"result = [i[\"title\"] for i in found[\"items\"] if i[\"comments\"] > 5]"

// runScript makes the meta-tool run_script, nil if the view does not offer it. Tools that a script calls have the view's
// hooks.
func runScript(s Settings, env Env) *tool.Tool {
	if s.RunScript == nil {
		return nil
	}
	limits := limitsOf(*s.RunScript)
	t, err := metaTool(runScriptName, runScriptDescription,
		`{"type":"object","properties":{"script":{"type":"string"}},"required":["script"],"additionalProperties":false}`)
	if err != nil { // cannot happen: the text is constant
		panic("view: " + err.Error())
	}
	t.Handler = func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		var source string
		if json.Unmarshal(rawjson.Member(call.Arguments, "script"), &source) != nil || source == "" {
			return tool.ErrorResult(`script is missing: send {"script": "result = call_tool(\"name\", arg=1)"}`), nil
		}
		host := &host{call: call, progress: tool.NewProgress(call, 0), retrieve: env.Search, find: func(name string) (string, tool.Handler, error) {
			t, err := env.Within(ctx, name)
			switch {
			case err != nil:
				return "", nil, err
			case t.Name == runScriptName:
				return "", nil, errors.New("a script cannot run scripts")
			}
			return t.Name, t.Handler, nil
		}}
		says := func(text string) {
			env.Log.InfoContext(ctx, "script says", "view", s.Name, "tool", runScriptName, "text", text)
		}
		if env.Scripts == nil {
			return tool.ErrorResult("scripts are not run here"), nil
		}
		value, err := env.Scripts.Run(ctx, source, newInfo(s.Name, env, runScriptName, "", call), host, limits, says)
		return scriptResult(ctx, runScriptName, value, err)
	}
	return t
}

// metaTool makes a meta-tool. Its _meta tells clients that have their own tool search to keep it loaded.
func metaTool(name, description, input string) (*tool.Tool, error) {
	raw, err := rawjson.Encode(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Meta        json.RawMessage `json:"_meta"`
	}{name, description, json.RawMessage(input), json.RawMessage(`{"anthropic/alwaysLoad":true}`)})
	if err != nil {
		return nil, err
	}
	def, err := tool.ParseDef("toolfinch", raw)
	if err != nil {
		return nil, fmt.Errorf("meta-tool %s: %w", name, err)
	}
	return &tool.Tool{Name: name, Def: def}, nil
}
