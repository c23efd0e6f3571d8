package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/proxy"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
	scripts "toolfinch/view/script"
)

// A program that embeds toolfinch opens a proxy, runs it, and serves its handler. The
// hooks see every call of a tool: one refuses those that delete, the other hides a name
// in results.
func ExampleOpen() {
	files := httptest.NewServer(fileServer())
	defer files.Close()
	dir, err := os.MkdirTemp("", "embedded-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	config := &configs.Config{
		DataDir: dir, Routing: configs.RoutingAuto, TopK: configs.DefaultTopK, MaxRegistered: configs.DefaultMaxRegistered,
		Servers: []upstream.Settings{{
			Name: "files", URL: files.URL, Transport: upstream.TransportHTTP,
			ConnectTimeout: upstream.DefaultConnectTimeout, CallTimeout: upstream.DefaultCallTimeout,
		}},
	}
	guard := func(_ context.Context, call *scripts.Info, arguments json.RawMessage) (json.RawMessage, error) {
		if call.Tool == "delete_file" {
			return nil, &view.AbortError{Reason: "this program deletes nothing"}
		}
		return arguments, nil
	}
	redact := func(_ context.Context, _ *scripts.Info, _ json.RawMessage, result tool.Result) (tool.Result, error) {
		return bytes.ReplaceAll(result, []byte("notes.txt"), []byte("a file")), nil
	}

	ctx := context.Background()
	p, err := proxy.Open(ctx, config, proxy.WithVersion("1.0"), proxy.WithPreCall(guard), proxy.WithPostCall(redact))
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	err = p.Run(ctx, func(ctx context.Context) error {
		// A server would call http.Serve(listener, p.Handler()) here.
		<-p.Ready()
		v, err := p.View(view.Default)
		if err != nil {
			return err
		}
		for _, name := range []string{"files_read_file", "files_delete_file"} {
			t, err := v.Find(name)
			if err != nil {
				return err
			}
			result, err := v.Call(ctx, t, json.RawMessage(`{"path":"notes.txt"}`), nil)
			if err != nil {
				return err
			}
			fmt.Printf("%s: %s\n", name, result.Value())
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// files_read_file: "the text of a file"
	// files_delete_file: "refused: this program deletes nothing"
}

// fileServer is an MCP server with two tools.
func fileServer() http.Handler {
	s := server.NewMCPServer("files", "1.0")
	path := mcp.WithString("path", mcp.Required())
	s.AddTool(mcp.NewTool("read_file", path), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("the text of " + r.GetString("path", "")), nil
	})
	s.AddTool(mcp.NewTool("delete_file", path), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("deleted"), nil
	})
	return server.NewStreamableHTTPServer(s)
}
