package main

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// pushing has the tools ask with requests of their own in the middle of a call, as
// servers on the library did before the 2026-07-28 era and most still do. The
// library refuses that for clients of the new era.
func pushing(of func() *server.MCPServer) server.ToolHandlerMiddleware {
	return func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
		return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for {
				result, err := next(ctx, request)
				if err != nil || len(result.InputRequests) == 0 {
					return result, err
				}
				request.Params.RequestState = result.RequestState
				request.Params.InputResponses = mcp.InputResponses{}
				for key, one := range result.InputRequests {
					if request.Params.InputResponses[key], err = push(ctx, of(), one); err != nil {
						return nil, fmt.Errorf("ask the client: %w", err)
					}
				}
			}
		}
	}
}

func push(ctx context.Context, s *server.MCPServer, one mcp.InputRequest) (response mcp.InputResponse, err error) {
	switch {
	case one.Elicitation != nil:
		response.Elicitation, err = s.RequestElicitation(ctx, mcp.ElicitationRequest{Params: *one.Elicitation})
	case one.Sampling != nil:
		//lint:ignore SA1019 servers of today ask so
		response.Sampling, err = s.RequestSampling(ctx, mcp.CreateMessageRequest{CreateMessageParams: *one.Sampling})
	default:
		response.Roots, err = s.RequestRoots(ctx, mcp.ListRootsRequest{})
	}
	return response, err
}
