package proxyclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

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
// asked for through it, and no answers to what an earlier call asked for be given.
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
	args := p.Arguments
	if len(p.RawArguments) > 0 { // as mcp-go sends them
		args = p.RawArguments
	}
	op := proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: p.Name}
	result, err := c.pass(ctx, op, args, p.Meta, p.MultiRoundTripParams, outbound(request.Header, request.Method))
	if err != nil {
		return nil, err
	}
	return parse(op, proxytool.ToolResultUnlabelled(result.Raw), mcp.ParseCallToolResult)
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
	result, err := c.pass(ctx, op, p.Arguments, p.Meta, p.MultiRoundTripParams, outbound(request.Header, request.Method))
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
	result, err := c.pass(ctx, op, p.Arguments, p.Meta, p.MultiRoundTripParams, outbound(request.Header, request.Method))
	if err != nil {
		return nil, err
	}
	raw, err := proxytool.ToolResultAsPrompt(result.Raw)
	if err != nil {
		return nil, fmt.Errorf("proxyclient: %s: %w", describe(op), err)
	}
	return parse(op, raw, mcp.ParseGetPromptResult)
}

// pass is runWith for a request of mcp-go's.
func (c *Client) pass(ctx context.Context, op proxytool.Operation, args any, meta *mcp.Meta, round mcp.MultiRoundTripParams, header http.Header) (*Result, error) {
	if round.InputResponses != nil || round.RequestState != "" {
		return nil, fmt.Errorf("proxyclient: %s: the proxy tool takes no answers to an earlier result; what a server asks for, the handlers of WithClientOptions answer", describe(op))
	}
	return c.runWith(ctx, op, args, meta, header)
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
	for seen := map[string]bool{op.Cursor: true}; len(seen) <= maxPages; seen[op.Cursor] = true {
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
	return nil, fmt.Errorf("proxyclient: %s: %w", describe(op), errEndless)
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
