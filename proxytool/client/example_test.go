package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

// dialShop connects to an ordinary server that was given the proxy tool. For one
// over HTTP a Dial returns transport.NewStreamableHTTP(url), for one on stdio
// transport.NewStdio(command, environment, arguments...).
func dialShop(context.Context) (transport.Interface, error) {
	shop := server.NewMCPServer("shop", "1.0.0", server.WithToolCapabilities(true), server.WithResourceCapabilities(false, false))
	shop.AddTool(mcp.NewTool("price", mcp.WithDescription("Price of an article"), mcp.WithString("article", mcp.Required())),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(r.GetString("article", "") + ": 12 crowns"), nil
		})
	shop.AddResource(mcp.NewResource("shop://hours", "hours", mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "shop://hours", MIMEType: "text/plain", Text: "9 to 5"}}, nil
		})
	if err := proxytool.Attach(shop); err != nil {
		return nil, err
	}
	return transport.NewInProcessTransport(shop), nil
}

func ExampleClient_Proxy() {
	ctx := context.Background()
	c, err := proxyclient.Open(ctx, dialShop)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	list, err := c.Proxy(ctx, proxytool.TypeTool, proxytool.ActionList, "", nil)
	if err != nil {
		log.Fatal(err)
	}
	tools, err := list.Decode()
	if err != nil {
		log.Fatal(err)
	}
	for _, def := range tools.Items {
		fmt.Println(string(def))
	}

	price, err := c.Proxy(ctx, proxytool.TypeTool, proxytool.ActionCall, "price", map[string]string{"article": "kite"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(price.Text())

	// Refused before anything is sent.
	_, err = c.Proxy(ctx, proxytool.TypeTool, proxytool.ActionCall, "", nil)
	fmt.Println(err)
	// Output:
	// {"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true},"description":"Price of an article","inputSchema":{"properties":{"article":{"type":"string"}},"required":["article"],"type":"object"},"name":"price"}
	// kite: 12 crowns
	// proxytool: call tool: path is required for action call: the name of a tool or prompt, the URI of a resource
}

// A transparent client is used as mcp-go's own.
func ExampleWithTransparent() {
	ctx := context.Background()
	c, err := proxyclient.Open(ctx, dialShop, proxyclient.WithTransparent())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		log.Fatal(err)
	}
	for _, tool := range tools.Tools {
		fmt.Println(tool.Name, "-", tool.Description)
	}

	request := mcp.ReadResourceRequest{}
	request.Params.URI = "shop://hours"
	hours, err := c.ReadResource(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	for _, part := range hours.Contents {
		fmt.Println(part.(mcp.TextResourceContents).Text)
	}
	// Output:
	// price - Price of an article
	// 9 to 5
}

// Several operations at once; one that fails does not stop the others.
func ExampleClient_Do() {
	ctx := context.Background()
	c, err := proxyclient.Open(ctx, dialShop)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	answer, err := c.Do(ctx, proxytool.Operation{Action: proxytool.ActionBatch, Operations: []proxytool.Operation{
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "price", Args: []byte(`{"article":"kite"}`)},
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "weight"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	batch, err := answer.Decode()
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range batch.Items {
		result := proxyclient.Result{Raw: item}
		fmt.Println(result.Failed(), result.Text())
	}
	// Output:
	// false kite: 12 crowns
	// true tool 'weight' not found: tool not found
}
