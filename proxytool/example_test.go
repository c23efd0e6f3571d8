package proxytool_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/proxytool"
)

// Any mcp-go server gets the proxy tool with one line.
func ExampleAttach() {
	s := server.NewMCPServer("calculator", "1.0.0", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("add", mcp.WithNumber("a"), mcp.WithNumber("b")),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(fmt.Sprint(r.GetFloat("a", 0) + r.GetFloat("b", 0))), nil
		})
	if err := proxytool.Attach(s); err != nil {
		fmt.Println(err)
		return
	}
	response := s.HandleMessage(context.Background(), json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
		{"name":"proxy","arguments":{"action":"call","type":"tool","path":"add","args":{"a":5,"b":3}}}}`))
	out, _ := json.Marshal(response.(mcp.JSONRPCResponse).Result.(*mcp.CallToolResult).Content[0])
	fmt.Println(string(out))
	// Output: {"annotations":{"proxyAction":"call","proxyType":"tool","proxyPath":"add"},"_meta":{"proxyAction":"call","proxyType":"tool","proxyPath":"add"},"type":"text","text":"8"}
}

// Check refuses what a server would, before anything is sent.
func ExampleOperation_Check() {
	op := proxytool.Operation{Action: proxytool.ActionInfo, Type: proxytool.TypeTool}
	fmt.Println(op.Check())
	op.Path = "add"
	fmt.Println(op.Check(), string(op.Arguments()))
	// Output:
	// path is required for action info: the name of a tool or prompt, the URI of a resource
	// <nil> {"action":"info","type":"tool","path":"add"}
}

// Decode reads what the proxy tool of some server answered to a list.
func ExampleDecode() {
	d, err := proxytool.Decode(json.RawMessage(`{"content":[{"type":"resource",
		"resource":{"uri":"proxy:list/resource","mimeType":"application/json","text":"[{\"uri\":\"file:///a\",\"name\":\"a\"},{\"uriTemplate\":\"log://{day}\",\"name\":\"log\"}]"},
		"annotations":{"proxyAction":"list","proxyType":"resource","pythonType":"Resource|ResourceTemplate","many":true}}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Label.Data)
	for _, item := range d.Items {
		fmt.Println(string(item))
	}
	// Output:
	// Resource | ResourceTemplate
	// {"uri":"file:///a","name":"a"}
	// {"uriTemplate":"log://{day}","name":"log"}
}
