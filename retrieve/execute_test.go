package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"toolfinch/tool"
	"toolfinch/upstream"
)

// answering is a retriever over one tool, github_create_issue, with that handler.
func answering(t testing.TB, handler tool.Handler) *Retriever {
	t.Helper()
	return New(newCatalog(t, fewServers(t, func(*tool.Def) tool.Handler { return handler })), Settings{})
}

func TestExecutionsThatFailSayHow(t *testing.T) {
	of := func(server string, err error) error {
		return &upstream.Error{Server: server, Op: "call create_issue", Err: err}
	}
	lost := fmt.Errorf("%w: the process ended (exit status 1)", upstream.ErrClosed)
	for _, test := range []struct {
		name, id, arguments string
		err                 error // of the tool
		failure             Failure
		server, want        string
	}{
		{"unknown", "github_creat_issue", `{}`, nil, FailureBadRequest, "", "Unknown tool: github_creat_issue. Nearest: github_create_issue"},
		{"unknown, as server.tool", "github.creat_issue", `{}`, nil, FailureBadRequest, "", "Unknown tool: github.creat_issue. Nearest: github_create_issue"},
		{"unknown, as server:tool", "gitlab:create_issue", `{}`, nil, FailureBadRequest, "", "Unknown tool: gitlab:create_issue"},
		{"no name of a tool", "create issue", `{}`, nil, FailureBadRequest, "", "Invalid tool ID format: create issue"},
		{"a server without a tool", "github.", `{}`, nil, FailureBadRequest, "", "Invalid tool ID format: github."},
		{"a meta-tool", "execute_tool", `{}`, nil, FailureBadRequest, "", "Unknown tool: execute_tool"},
		{"empty", "", `{}`, nil, FailureBadRequest, "", "Invalid tool ID format: "},
		{"arguments that are no object", "github_create_issue", `[1]`, nil, FailureBadRequest, "", "arguments must be an object"},
		{"arguments that are no JSON", "github_create_issue", `{"title":`, nil, FailureBadRequest, "", "arguments must be an object"},
		{"arguments that do not fit", "github_create_issue", `{"labels":1}`, nil, FailureBadRequest, "", `Its input schema is:` + "\n" + `{"type":"object"`},
		{"no connection", "github_create_issue", `{"title":"t"}`, of("github", fmt.Errorf("connect: %w: no such file", upstream.ErrNotConnected)), FailureConnection, "github", "Server github not connected: not connected: no such file"},
		{"no connection in time", "github_create_issue", `{"title":"t"}`, of("github", fmt.Errorf("connect: %w: %w", upstream.ErrTimeout, upstream.ErrNotConnected)), FailureConnection, "github", "Server github not connected: timed out"},
		{"a connection that is lost", "github_create_issue", `{"title":"t"}`, of("github", lost), FailureConnection, "github", "Server github not connected: the connection is closed: the process ended (exit status 1)"},
		{"of a step of a composite", "github_create_issue", `{"title":"t"}`, fmt.Errorf("step 1: %w", of("other", lost)), FailureConnection, "other", "Server other not connected: the connection is closed"},
		{"too late", "github_create_issue", `{"title":"t"}`, of("github", fmt.Errorf("%w after 60s", upstream.ErrTimeout)), FailureTimeout, "github", "Tool execution failed: upstream github: call create_issue: timed out after 60s"},
		{"the caller's deadline", "github_create_issue", `{"title":"t"}`, context.DeadlineExceeded, FailureTimeout, "github", "Tool execution failed: server github: context deadline exceeded (timed out)"},
		{"the upstream's error", "github_create_issue", `{"title":"t"}`, &tool.RPCError{Code: -32000, Message: "no"}, FailureExecution, "github", "Tool execution failed: server github: no (code -32000)"},
		{"anything else", "github_create_issue", `{"title":"t"}`, errors.New("odd"), FailureExecution, "github", "Tool execution failed: server github: odd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := answering(t, func(context.Context, *tool.Call) (tool.Result, error) {
				if test.err == nil {
					t.Error("the tool was called")
				}
				return nil, test.err
			})
			result, err := r.Execute(t.Context(), &tool.Call{}, test.id, json.RawMessage(test.arguments))
			var failed *ExecuteError
			if !errors.As(err, &failed) || failed.Failure != test.failure || failed.Server != test.server || failed.ID != test.id || result != nil {
				t.Fatalf("result %s, error %+v", result, err)
			}
			if got := err.Error(); !strings.Contains(got, test.want) || test.err != nil && got != test.want && !strings.HasPrefix(got, test.want+":") {
				t.Errorf("it says %q, want %q", got, test.want)
			}
			if test.err != nil && !errors.Is(err, test.err) {
				t.Errorf("%v is lost", test.err)
			}
		})
	}
}

func TestExecuteToolIsAsCallingTheTool(t *testing.T) {
	const strange = `{"content":[{"type":"hologram","x":9007199254740993}],"structuredContent":{"f":1.0},"isError":true}`
	const params = `{"name":"execute_tool","arguments":{},"_meta":{"progressToken":12345678901234567890},"inputResponses":{"a":1},"requestState":"s"}`
	var got *tool.Call
	result := tool.Result(strange)
	r := answering(t, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		got = call
		return result, nil
	})
	execute := r.GateTools()[3].Handler
	outer := &tool.Call{
		Name: ExecuteTool, Params: json.RawMessage(params), Session: "s1", Principal: "ann", Depth: 2,
		Arguments: json.RawMessage(`{"tool_id":"github_create_issue","arguments":{"title":"t","big":12345678901234567890,"f":1.0,"a":{"z":1,"b":2}}}`),
		Client:    &tool.Client{Modern: true},
	}
	answer, err := execute(t.Context(), outer)
	if err != nil || string(answer) != strange {
		t.Errorf("answer %s, error %v", answer, err)
	}
	if got.Name != "github_create_issue" || string(got.Arguments) != `{"title":"t","big":12345678901234567890,"f":1.0,"a":{"z":1,"b":2}}` {
		t.Errorf("the tool was called as %s with %s", got.Name, got.Arguments)
	}
	if string(got.Params) != params || got.Session != "s1" || got.Principal != "ann" || got.Depth != 2 || got.Client != outer.Client {
		t.Errorf("the tool was called with %+v", got)
	}

	result = tool.Result(`{"resultType":"input_required","inputRequests":{},"requestState":"x"}`)
	if answer, err := execute(t.Context(), outer); err != nil || string(answer) != string(result) {
		t.Errorf("what the tool asks comes as %s, error %v", answer, err)
	}
	outer.Arguments = json.RawMessage(`{"tool_id":"github_create_issue","arguments":"{\"title\":\"t\"}"}`)
	if _, err := execute(t.Context(), outer); err != nil || string(got.Arguments) != `{"title":"t"}` {
		t.Errorf("arguments sent as text reach the tool as %s, error %v", got.Arguments, err)
	}

	result = tool.Result(strange)
	for _, shape := range []string{
		`{"tool_id":"github_create_issue","args":{"title":"t"}}`, `{"name":"github_create_issue","params":{"title":"t"}}`, `{"toolId":"github_create_issue","input":"{\"title\":\"t\"}"}`,
		`{"arguments":{"tool_id":"github_create_issue","arguments":{"title":"t"}}}`,
	} {
		got, outer.Arguments = nil, json.RawMessage(shape)
		if answer, err := execute(t.Context(), outer); err != nil || got == nil || string(got.Arguments) != `{"title":"t"}` {
			t.Errorf("%s answers %s, %v", shape, answer, err)
		}
	}

	sent := &tool.RPCError{Code: -32042, Message: "open this", Raw: json.RawMessage(`{"code":-32042,"message":"open this","more":1}`)}
	r = answering(t, func(context.Context, *tool.Call) (tool.Result, error) { return nil, sent })
	_, err = r.GateTools()[3].Handler(t.Context(), outer)
	var rpc *tool.RPCError
	if !errors.As(err, &rpc) || rpc != sent || err.Error() != sent.Error() {
		t.Errorf("the upstream's own error comes as %v", err)
	}
}
