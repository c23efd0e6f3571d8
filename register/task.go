package register

import (
	"context"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/tool"
	"toolfinch/wire"
)

// task answers a request of the tasks extension of 2026-07-28 at the upstream
// whose task it is (SEP-2663).
func (l *Live) task(ctx context.Context, served *Served, x *wire.Exchange, call *tool.Call) (tool.Result, error) {
	client := call.Client
	if client == nil || !client.Modern || l.settings.Task == nil || !served.Offered.Tasks {
		return nil, methodNotFound(x.Method)
	}
	if rawjson.Member(rawjson.Member(client.Capabilities, "extensions"), tool.ExtensionTasks) == nil {
		return nil, &tool.RPCError{
			Code: tool.CodeMissingCapability, Message: "the client has not declared the tasks extension",
			Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tool.ExtensionTasks + `":{}}}}`),
		}
	}
	if name, _ := mcp.DecodeHeaderValue(x.Header.Get(mcp.HeaderName)); x.Header != nil && name != call.Name {
		return nil, &tool.RPCError{Code: mcp.HEADER_MISMATCH, Message: "the " + mcp.HeaderName + " header does not name the task"}
	}
	return l.settings.Task(ctx, x.Method, call)
}
