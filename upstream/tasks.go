package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// The tasks extension of 2026-07-28 passes through between a client and a
// server of that era: a result of type task names a task, and later requests
// name it again. To find its server then, the ID that clients see begins with
// the server's name.

// Task sends a tasks/get, tasks/update or tasks/cancel to the server whose task
// it is, which call.Name says. Errors are as of Call.
func (p *Pool) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	escaped, id, ok := strings.Cut(call.Name, "/")
	name, err := url.PathUnescape(escaped)
	var s *server
	if ok && err == nil {
		s = p.enter(name)
	}
	if s == nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	defer s.exit()
	f := takeOff(ctx, call, s.limits.Load().call)
	defer f.land()
	result, _, err := s.deliver(f, request{method: method, op: method, task: id, repeatable: method != "tasks/update"})
	if err != nil {
		return nil, err
	}
	return s.exposeTask(result), nil
}

// becameTask reports whether a result says that a call goes on as a task.
func becameTask(result json.RawMessage) bool {
	return bytes.Contains(result, []byte(`"task"`)) && rawjson.Text(rawjson.Member(result, "resultType")) == "task"
}

// exposeTask is a result with the ID of its task, if it has one, as clients see it.
func (s *server) exposeTask(result json.RawMessage) tool.Result {
	id := rawjson.Text(rawjson.Member(result, "taskId"))
	if id == "" {
		return tool.Result(result)
	}
	quoted, _ := json.Marshal(url.PathEscape(s.settings.Name) + "/" + id)
	if exposed, err := rawjson.Set(result, "taskId", quoted); err == nil {
		return exposed
	}
	return tool.Result(result)
}
