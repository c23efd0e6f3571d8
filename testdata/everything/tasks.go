package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// tasksExtension is the name of the tasks of 2026-07-28, which the library does
// not know: its tools answer with the task in structuredContent, and the front
// makes that the result.
const tasksExtension = "io.modelcontextprotocol/tasks"

// resultTypeTask marks such an answer.
const resultTypeTask = "task"

const (
	taskTTL      = 10 * time.Minute
	taskInterval = 100 * time.Millisecond // between two looks at a task
)

// tasks are all that were ever created. What has become of one follows from the
// time and from what the client did, so that nothing runs meanwhile.
type tasks struct {
	mu  sync.Mutex // guards what follows; not held over anything
	all map[string]*task
}

type task struct {
	id        string
	created   time.Time
	due       time.Time         // when it is done, unless it waits for input
	pending   mcp.InputRequests // what it still wants from the client
	result    map[string]any    // what it ends with, or
	failure   map[string]any    // the error that it ends with
	cancelled bool
}

func (t *task) status(now time.Time) string {
	switch {
	case t.cancelled:
		return "cancelled"
	case len(t.pending) > 0:
		return "input_required"
	case now.Before(t.due):
		return "working"
	case t.failure != nil:
		return "failed"
	}
	return "completed"
}

// state is what every answer about a task says.
func (t *task) state(now time.Time) map[string]any {
	return map[string]any{
		"taskId":         t.id,
		"status":         t.status(now),
		"createdAt":      t.created.Format(time.RFC3339Nano),
		"lastUpdatedAt":  now.UTC().Format(time.RFC3339Nano),
		"ttlMs":          taskTTL.Milliseconds(),
		"pollIntervalMs": taskInterval.Milliseconds(),
	}
}

// create adds a task that takes a while, and answers a call with it.
func (ts *tasks) create(t task, takes time.Duration) *mcp.CallToolResult {
	now := time.Now().UTC()
	t.created, t.due = now, now.Add(takes)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.id = fmt.Sprintf("task-%d", len(ts.all)+1)
	ts.all[t.id] = &t
	result := &mcp.CallToolResult{StructuredContent: t.state(now)}
	result.ResultType = resultTypeTask
	return result
}

// addTaskTools adds tools that become tasks for clients that know tasks. Some
// refuse the others; the front does so with the right code.
func addTaskTools(s *server.MCPServer, ts *tasks) {
	s.AddTool(mcp.NewTool("greet", mcp.WithDescription("Greets, and is never a task."), mcp.WithString("name", mcp.Description("Whom to greet."))),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(fmt.Sprintf("Hello, %s!", request.GetString("name", "World"))), nil
		})
	s.AddTool(mcp.NewTool("slow_compute", mcp.WithDescription("Takes as long as it is told."),
		mcp.WithNumber("seconds", mcp.Description("How long.")), mcp.WithString("label", mcp.Description("What for."))),
		func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			takes := time.Duration(request.GetFloat("seconds", 0) * float64(time.Second))
			if knowsTasks(ctx) {
				return ts.create(task{result: textResult("computed")}, takes), nil
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(takes):
				return mcp.NewToolResultText("computed"), nil
			}
		})
	s.AddTool(mcp.NewTool("confirm_delete", mcp.WithDescription("Asks before it goes on."), mcp.WithString("filename", mcp.Description("What to delete."))),
		func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if knowsTasks(ctx) {
				return ts.create(task{pending: questions("confirm"), result: textResult("deleted")}, 0), nil
			}
			if _, ok := answer(request.Params.InputResponses, "confirm", "confirm"); !ok {
				return ask("confirm", "Shall it be done?", "confirm", "boolean").ToolResult(), nil
			}
			return mcp.NewToolResultText("deleted"), nil
		})

	only := func(name, description string, run func(request mcp.CallToolRequest) *mcp.CallToolResult) {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription(description)),
			func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if !knowsTasks(ctx) {
					return nil, errors.New("this tool is a task, and the client knows none")
				}
				return run(request), nil
			})
	}
	failed := textResult("the job has failed")
	failed["isError"] = true
	only("failing_job", "Fails by its own word, as a task.", func(mcp.CallToolRequest) *mcp.CallToolResult {
		return ts.create(task{result: failed}, taskInterval)
	})
	only("protocol_error_job", "Ends in an error, as a task.", func(mcp.CallToolRequest) *mcp.CallToolResult {
		return ts.create(task{failure: map[string]any{"code": mcp.INTERNAL_ERROR, "message": "the job broke"}}, taskInterval)
	})
	only("multi_input", "Asks two things at once, as a task.", func(mcp.CallToolRequest) *mcp.CallToolResult {
		return ts.create(task{pending: questions("first", "second"), result: textResult("both answered")}, 0)
	})
	only("test_tool_with_task", "Asks for a name and goes on as a task.", func(request mcp.CallToolRequest) *mcp.CallToolResult {
		name, ok := answer(request.Params.InputResponses, "user_name", "name")
		if !ok {
			return ask("user_name", "What is your name?", "name", "string").ToolResult()
		}
		return ts.create(task{result: textResult(fmt.Sprintf("done for %v", name))}, taskInterval)
	})
}

// taskTools may answer with a task. Those that are true refuse clients that know
// none.
var taskTools = map[string]bool{
	"slow_compute":        false,
	"confirm_delete":      false,
	"failing_job":         true,
	"protocol_error_job":  true,
	"multi_input":         true,
	"test_tool_with_task": true,
}

func knowsTasks(ctx context.Context) bool {
	_, known := declared(ctx).Extensions[tasksExtension]
	return known
}

func textResult(text string) map[string]any {
	return map[string]any{"resultType": "complete", "content": []any{map[string]any{"type": "text", "text": text}}}
}

func questions(keys ...string) mcp.InputRequests {
	all := mcp.InputRequests{}
	for _, key := range keys {
		all[key] = mcp.NewElicitationInputRequest(mcp.ElicitationParams{
			Message: "Shall it be done?",
			RequestedSchema: map[string]any{
				"type":       "object",
				"properties": map[string]any{"confirm": map[string]any{"type": "boolean"}},
			},
		})
	}
	return all
}

// serve answers tasks/get, tasks/update and tasks/cancel.
func (ts *tasks) serve(w http.ResponseWriter, r *http.Request, m message) {
	id := m.Params.TaskID
	if r.Header.Get("Mcp-Method") != m.Method || r.Header.Get("Mcp-Name") != id {
		sendError(w, http.StatusBadRequest, m.ID, mcp.HEADER_MISMATCH, "the headers do not say what the request does", nil)
		return
	}
	if _, known := m.Params.Meta.Capabilities.Extensions[tasksExtension]; !known {
		refuse(w, m.ID, needsTasks)
		return
	}
	result, ok := ts.do(m)
	if !ok {
		sendError(w, http.StatusOK, m.ID, mcp.INVALID_PARAMS, "there is no such task", nil)
		return
	}
	result["resultType"] = "complete"
	send(w, http.StatusOK, map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

// do does what a request asks of a task; it is not ok when there is no such task.
func (ts *tasks) do(m message) (result map[string]any, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.all[m.Params.TaskID]
	if t == nil {
		return nil, false
	}
	now, result := time.Now(), map[string]any{}
	switch m.Method {
	case "tasks/get":
		result = t.state(now)
		switch result["status"] {
		case "completed":
			result["result"] = t.result
		case "failed":
			result["error"] = t.failure
		case "input_required":
			result["inputRequests"] = maps.Clone(t.pending)
		}
	case "tasks/update":
		for key := range m.Params.InputResponses {
			delete(t.pending, key)
		}
	case "tasks/cancel":
		if status := t.status(now); status == "working" || status == "input_required" {
			t.cancelled = true
		}
	}
	return result, true
}

// asTask makes the task in an answer its result. It returns the body unchanged
// when there is none.
func asTask(body []byte) []byte {
	var answer struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  struct {
			ResultType        string         `json:"resultType"`
			StructuredContent map[string]any `json:"structuredContent"`
		} `json:"result"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Result.ResultType != resultTypeTask {
		return body
	}
	result := answer.Result.StructuredContent
	result["resultType"] = resultTypeTask
	out, err := json.Marshal(map[string]any{"jsonrpc": answer.JSONRPC, "id": answer.ID, "result": result})
	if err != nil {
		return body
	}
	return out
}
