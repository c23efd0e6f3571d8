package proxyclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/proxytool"
	"toolfinch/rawjson"
)

// ListTools lists all tools, following pages from the cursor of the request on,
// as the ListTools of mcp-go's client does. In transparent mode they are the tools
// behind the proxy tool.
func (c *Client) ListTools(ctx context.Context, request mcp.ListToolsRequest) (*mcp.ListToolsResult, error) {
	if !c.transparent {
		return direct(ctx, c, "list tools", request, (*client.Client).ListTools)
	}
	tools, err := c.listAll(ctx, proxytool.TypeTool, request.PaginatedRequest, request.Header)
	if err != nil {
		return nil, err
	}
	return decode[mcp.ListToolsResult]("tools", tools)
}

// ListResources lists all resources, as ListTools does tools.
func (c *Client) ListResources(ctx context.Context, request mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error) {
	if !c.transparent {
		return direct(ctx, c, "list resources", request, (*client.Client).ListResources)
	}
	all, err := c.listAll(ctx, proxytool.TypeResource, request.PaginatedRequest, request.Header)
	if err != nil {
		return nil, err
	}
	resources, _ := parted(all)
	return decode[mcp.ListResourcesResult]("resources", resources)
}

// ListResourceTemplates lists all resource templates, as ListTools does tools.
func (c *Client) ListResourceTemplates(ctx context.Context, request mcp.ListResourceTemplatesRequest) (*mcp.ListResourceTemplatesResult, error) {
	if !c.transparent {
		return direct(ctx, c, "list resource templates", request, (*client.Client).ListResourceTemplates)
	}
	all, err := c.listAll(ctx, proxytool.TypeResource, request.PaginatedRequest, request.Header)
	if err != nil {
		return nil, err
	}
	_, templates := parted(all)
	return decode[mcp.ListResourceTemplatesResult]("resourceTemplates", templates)
}

// ListPrompts lists all prompts, as ListTools does tools.
func (c *Client) ListPrompts(ctx context.Context, request mcp.ListPromptsRequest) (*mcp.ListPromptsResult, error) {
	if !c.transparent {
		return direct(ctx, c, "list prompts", request, (*client.Client).ListPrompts)
	}
	prompts, err := c.listAll(ctx, proxytool.TypePrompt, request.PaginatedRequest, request.Header)
	if err != nil {
		return nil, err
	}
	return decode[mcp.ListPromptsResult]("prompts", prompts)
}

// CallTool calls a tool. In transparent mode that is one behind the proxy tool,
// and what the proxy tool adds to the content is taken off again; what it refuses,
// such as a tool that is not there, is a result that failed. A task cannot be
// asked for through it.
func (c *Client) CallTool(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	p := request.Params
	if !c.transparent {
		return called(ctx, c, "call tool "+p.Name, p.Meta, false, func(ctx context.Context, session *client.Client, meta *mcp.Meta) (*mcp.CallToolResult, error) {
			request := request
			request.Params.Meta = meta
			return session.CallTool(ctx, request)
		})
	}
	if p.Task != nil {
		return nil, fmt.Errorf("proxyclient: call tool %s: the proxy tool takes no task", p.Name)
	}
	op := proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: p.Name}
	result, err := c.runWith(ctx, op, p.Arguments, p.Meta, outbound(request.Header, request.Method))
	if err != nil {
		return nil, err
	}
	return parse(op, withoutLabels(result.Raw), mcp.ParseCallToolResult)
}

// ReadResource reads a resource. In transparent mode that is one behind the proxy
// tool: a text that is JSON comes without white space between its tokens.
func (c *Client) ReadResource(ctx context.Context, request mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	p := request.Params
	if !c.transparent {
		return called(ctx, c, "read resource "+p.URI, p.Meta, true, func(ctx context.Context, session *client.Client, meta *mcp.Meta) (*mcp.ReadResourceResult, error) {
			request := request
			request.Params.Meta = meta
			return session.ReadResource(ctx, request)
		})
	}
	op := proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeResource, Path: p.URI}
	result, err := c.runWith(ctx, op, p.Arguments, p.Meta, outbound(request.Header, request.Method))
	if err != nil {
		return nil, err
	}
	raw, err := proxytool.ToolResultAsResource(result.Raw)
	if err != nil {
		return nil, fmt.Errorf("proxyclient: %s: %w", describe(op), err)
	}
	return parse(op, raw, mcp.ParseReadResourceResult)
}

// GetPrompt gets a prompt, in transparent mode one behind the proxy tool.
func (c *Client) GetPrompt(ctx context.Context, request mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	p := request.Params
	if !c.transparent {
		return called(ctx, c, "get prompt "+p.Name, p.Meta, true, func(ctx context.Context, session *client.Client, meta *mcp.Meta) (*mcp.GetPromptResult, error) {
			request := request
			request.Params.Meta = meta
			return session.GetPrompt(ctx, request)
		})
	}
	op := proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypePrompt, Path: p.Name}
	result, err := c.runWith(ctx, op, p.Arguments, p.Meta, outbound(request.Header, request.Method))
	if err != nil {
		return nil, err
	}
	raw, err := proxytool.ToolResultAsPrompt(result.Raw)
	if err != nil {
		return nil, fmt.Errorf("proxyclient: %s: %w", describe(op), err)
	}
	return parse(op, raw, mcp.ParseGetPromptResult)
}

// direct sends a request to the server itself that may be repeated.
func direct[Request, Result any](ctx context.Context, c *Client, what string, request Request, send func(*client.Client, context.Context, Request) (*Result, error)) (*Result, error) {
	var result *Result
	err := c.do(ctx, what, true, func(ctx context.Context, conn *conn) (err error) {
		result, err = send(conn.mcp, ctx, request)
		return err
	})
	return result, err
}

// called sends a request with _meta to the server itself.
func called[Result any](ctx context.Context, c *Client, what string, meta *mcp.Meta, repeatable bool, send func(context.Context, *client.Client, *mcp.Meta) (*Result, error)) (*Result, error) {
	var result *Result
	err := c.do(ctx, what, repeatable, func(ctx context.Context, conn *conn) (err error) {
		meta, done := c.withProgress(ctx, meta)
		defer done()
		result, err = send(ctx, conn.mcp, meta)
		return err
	})
	return result, err
}

// listAll lists through the proxy tool, page after page if the server pages.
func (c *Client) listAll(ctx context.Context, typ proxytool.Type, request mcp.PaginatedRequest, header http.Header) ([]json.RawMessage, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	op := proxytool.Operation{Action: proxytool.ActionList, Type: typ, Cursor: string(request.Params.Cursor)}
	var all []json.RawMessage
	for seen := map[string]bool{op.Cursor: true}; ; seen[op.Cursor] = true {
		result, err := c.run(ctx, op, request.Params.Meta, outbound(header, request.Method))
		if err != nil {
			return nil, err
		}
		list, err := result.Decode()
		if err != nil {
			return nil, fmt.Errorf("proxyclient: %s: %w", describe(op), err)
		}
		all = append(all, list.Items...)
		if list.Label.Page == nil || list.Label.Page.Next == "" {
			return all, nil
		}
		op.Cursor = list.Label.Page.Next
		if seen[op.Cursor] {
			return nil, fmt.Errorf("proxyclient: %s: %w", describe(op), client.ErrRepeatedListCursor)
		}
	}
}

// parted tells resources from the templates among them.
func parted(all []json.RawMessage) (resources, templates []json.RawMessage) {
	for _, item := range all {
		if rawjson.Member(item, "uriTemplate") != nil {
			templates = append(templates, item)
		} else {
			resources = append(resources, item)
		}
	}
	return resources, templates
}

// decode makes mcp-go's type of a list.
func decode[Result any](name string, items []json.RawMessage) (*Result, error) {
	if items == nil {
		items = []json.RawMessage{} // as a server answers, not null
	}
	raw, err := json.Marshal(map[string][]json.RawMessage{name: items})
	if err != nil {
		return nil, fmt.Errorf("proxyclient: list %s: %w", name, err)
	}
	result := new(Result)
	if err := json.Unmarshal(raw, result); err != nil {
		return nil, fmt.Errorf("proxyclient: list %s: %w", name, err)
	}
	return result, nil
}

// parse makes mcp-go's type of a result.
func parse[Result any](op proxytool.Operation, raw json.RawMessage, by func(*json.RawMessage) (*Result, error)) (*Result, error) {
	result, err := by(&raw)
	if err != nil {
		return nil, fmt.Errorf("proxyclient: %s: %w", describe(op), err)
	}
	return result, nil
}

// outbound leaves out the headers of a request that was received, as mcp-go does:
// they are somebody else's.
func outbound(header http.Header, method string) http.Header {
	if method != "" {
		return nil
	}
	return header
}

// labels are what the proxy tool adds to annotations and _meta of the content of
// a tool's result.
var labels = []string{"proxyAction", "proxyType", "proxyPath"}

// withoutLabels is the result of a tool as it was before the proxy tool.
func withoutLabels(result json.RawMessage) json.RawMessage {
	return rebuild(result, func(name string, value json.RawMessage) json.RawMessage {
		if name != "content" || value[0] != '[' {
			return value
		}
		var items [][]byte
		for item := range rawjson.Elements(value) {
			items = append(items, rebuild(item, withoutLabel))
		}
		return slices.Concat([]byte("["), bytes.Join(items, []byte(",")), []byte("]"))
	})
}

func withoutLabel(name string, value json.RawMessage) json.RawMessage {
	if name != "annotations" && name != "_meta" {
		return value
	}
	cut := false
	rest := rebuild(value, func(name string, value json.RawMessage) json.RawMessage {
		if slices.Contains(labels, name) {
			cut = true
			return nil
		}
		return value
	})
	switch {
	case !cut:
		return value
	case string(rest) == "{}": // it is there for the labels alone
		return nil
	}
	return rest
}

// rebuild is an object with the values that member returns, without those of nil.
// What is no object stays as it is.
func rebuild(object json.RawMessage, member func(name string, value json.RawMessage) json.RawMessage) json.RawMessage {
	if len(object) == 0 || object[0] != '{' {
		return object
	}
	out := []byte{'{'}
	for name, value := range rawjson.Members(object) {
		if value = member(name, value); value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, _ := json.Marshal(name) // a string can be encoded
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}')
}
