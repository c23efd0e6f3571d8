package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
)

// ListTools lists all tools, following pages from the cursor of the request on,
// as the ListTools of mcp-go's client does. In transparent mode they are the tools
// behind the proxy tool.
func (c *Client) ListTools(ctx context.Context, request mcp.ListToolsRequest) (*mcp.ListToolsResult, error) {
	return list(ctx, c, "tools", proxytool.TypeTool, request, request.PaginatedRequest, request.Header, (*client.Client).ListTools)
}

// ListResources lists all resources, as ListTools does tools.
func (c *Client) ListResources(ctx context.Context, request mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error) {
	return list(ctx, c, "resources", proxytool.TypeResource, request, request.PaginatedRequest, request.Header, (*client.Client).ListResources)
}

// ListResourceTemplates lists all resource templates, as ListTools does tools.
func (c *Client) ListResourceTemplates(ctx context.Context, request mcp.ListResourceTemplatesRequest) (*mcp.ListResourceTemplatesResult, error) {
	return list(ctx, c, templates, proxytool.TypeResource, request, request.PaginatedRequest, request.Header, (*client.Client).ListResourceTemplates)
}

// ListPrompts lists all prompts, as ListTools does tools.
func (c *Client) ListPrompts(ctx context.Context, request mcp.ListPromptsRequest) (*mcp.ListPromptsResult, error) {
	return list(ctx, c, "prompts", proxytool.TypePrompt, request, request.PaginatedRequest, request.Header, (*client.Client).ListPrompts)
}

// CallTool calls a tool. In transparent mode that is one behind the proxy tool,
// and what the proxy tool adds to the content is taken off again; what it refuses,
// such as a tool that is not there, is a result that failed. A task cannot be
// asked for through it, and no answers to what an earlier call asked for be given.
func (c *Client) CallTool(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	p := request.Params
	if !c.transparent {
		return called(ctx, c, "call tool "+p.Name, false, &request.Params.Meta, func(ctx context.Context, session *client.Client) (*mcp.CallToolResult, error) {
			return session.CallTool(ctx, request)
		})
	}
	if p.Task != nil {
		return nil, fmt.Errorf("proxytool: call tool %s: the proxy tool takes no task", p.Name)
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
		return called(ctx, c, "read resource "+p.URI, true, &request.Params.Meta, func(ctx context.Context, session *client.Client) (*mcp.ReadResourceResult, error) {
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
		return nil, fmt.Errorf("proxytool: %s: %w", describe(op), err)
	}
	return parse(op, raw, mcp.ParseReadResourceResult)
}

// GetPrompt gets a prompt, in transparent mode one behind the proxy tool.
func (c *Client) GetPrompt(ctx context.Context, request mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	p := request.Params
	if !c.transparent {
		return called(ctx, c, "get prompt "+p.Name, true, &request.Params.Meta, func(ctx context.Context, session *client.Client) (*mcp.GetPromptResult, error) {
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
		return nil, fmt.Errorf("proxytool: %s: %w", describe(op), err)
	}
	return parse(op, raw, mcp.ParseGetPromptResult)
}

// pass is runWith for a request of mcp-go's.
func (c *Client) pass(ctx context.Context, op proxytool.Operation, args any, meta *mcp.Meta, round mcp.MultiRoundTripParams, header http.Header) (*Result, error) {
	if round.InputResponses != nil || round.RequestState != "" {
		return nil, fmt.Errorf("proxytool: %s: the proxy tool takes no answers to an earlier result; what a server asks for, the handlers of WithClientOptions answer", describe(op))
	}
	return c.runWith(ctx, op, args, meta, header)
}

// templates is the member of a result with resource templates. The proxy tool lists
// them among the resources.
const templates = "resourceTemplates"

// list lists what stands under member in the result: from the server itself, or in
// transparent mode through the proxy tool, where it is of typ.
func list[Request, Result any](ctx context.Context, c *Client, member string, typ proxytool.Type, request Request,
	page mcp.PaginatedRequest, header http.Header, send func(*client.Client, context.Context, Request) (*Result, error)) (*Result, error) {
	var result *Result
	if !c.transparent {
		err := c.do(ctx, "list "+member, true, func(ctx context.Context, conn *conn) (err error) {
			result, err = send(conn.mcp, ctx, request)
			return err
		})
		return result, err
	}
	all, err := c.listAll(ctx, typ, page, header)
	if err != nil {
		return nil, err
	}
	items := slices.DeleteFunc(all, func(item json.RawMessage) bool {
		isTemplate := typ == proxytool.TypeResource && rawjson.Member(item, "uriTemplate") != nil
		return isTemplate != (member == templates)
	})
	raw := rawjson.NewObject(0)
	raw.Add(member, rawjson.Array(items))
	if err := json.Unmarshal(raw.JSON(), &result); err != nil {
		return nil, fmt.Errorf("proxytool: list %s: %w", member, err)
	}
	return result, nil
}

// called sends a request to the server itself. meta is the _meta of the request, for
// the token of its progress.
func called[Result any](ctx context.Context, c *Client, what string, repeatable bool, meta **mcp.Meta, send func(context.Context, *client.Client) (*Result, error)) (*Result, error) {
	var result *Result
	own := *meta
	err := c.do(ctx, what, repeatable, func(ctx context.Context, conn *conn) (err error) {
		with, done := c.withProgress(ctx, own)
		defer done()
		*meta = with
		result, err = send(ctx, conn.mcp)
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
			return nil, fmt.Errorf("proxytool: %s: %w", describe(op), err)
		}
		all = append(all, list.Items...)
		if list.Label.Page == nil || list.Label.Page.Next == "" {
			return all, nil
		}
		op.Cursor = list.Label.Page.Next
		if seen[op.Cursor] {
			return nil, fmt.Errorf("proxytool: %s: %w", describe(op), client.ErrRepeatedListCursor)
		}
	}
	return nil, fmt.Errorf("proxytool: %s: %w", describe(op), errEndless)
}

// parse makes mcp-go's type of a result.
func parse[Result any](op proxytool.Operation, raw json.RawMessage, by func(*json.RawMessage) (*Result, error)) (*Result, error) {
	result, err := by(&raw)
	if err != nil {
		return nil, fmt.Errorf("proxytool: %s: %w", describe(op), err)
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
