// Player is the client of the conformance suite's client scenarios: the suite
// starts it with the URL of a server, and it plays what the scenario asks for.
// With -through it does so through the named program, which is toolfinch, so
// that it is toolfinch that the suite's server sees. With -client another program
// plays, which gets the URL of the server, or of toolfinch in front of it. It
// judges nothing: the suite does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// patience bounds the whole play; the tests have the suite give up ten seconds later.
const patience = 170 * time.Second

func main() {
	through := flag.String("through", "", "the program to put between, instead of connecting directly")
	home := flag.String("home", "", "folder for its files")
	other := flag.String("client", "", "the program that plays, instead of this one")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	run := func() error { return play(ctx, flag.Arg(0), *through, *home) }
	if *other != "" {
		run = func() error { return have(ctx, *other, flag.Arg(0), *through, *home) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "player:", err)
		os.Exit(1)
	}
}

// play connects and does everything that a client can do with the server. That
// requests fail is part of some scenarios; that there is no server is not.
func play(ctx context.Context, url, through, home string) error {
	seen := &schemas{}
	c, config, err := connect(url, through, home, seen)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	hello, err := c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: version(),
		ClientInfo:      mcp.Implementation{Name: "player", Version: "1.0.0"},
	}})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if through != "" {
		if err := waitConnected(ctx, c, through, config); err != nil {
			return err
		}
	}
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	complain("list tools", err)
	if through == "" && err == nil {
		seen.only(tools.Tools) // what the library leaves out, toolfinch has to leave out itself
	}
	for _, call := range seen.calls() {
		for again := true; again; {
			result, err := c.CallTool(ctx, mcp.CallToolRequest{Params: call})
			complain("call "+call.Name, err)
			again = more(ctx, said(result, err))
		}
	}
	if hello.Capabilities.Resources != nil {
		resources, err := c.ListResources(ctx, mcp.ListResourcesRequest{})
		complain("list resources", err)
		if err == nil {
			for _, resource := range resources.Resources {
				_, err := c.ReadResource(ctx, mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: resource.URI}})
				complain("read "+resource.URI, err)
			}
		}
	}
	if hello.Capabilities.Prompts != nil {
		prompts, err := c.ListPrompts(ctx, mcp.ListPromptsRequest{})
		complain("list prompts", err)
		if err == nil {
			for _, prompt := range prompts.Prompts {
				_, err := c.GetPrompt(ctx, mcp.GetPromptRequest{Params: mcp.GetPromptParams{Name: prompt.Name}})
				complain("get "+prompt.Name, err)
			}
		}
	}
	return nil
}

// said is what a call that failed says.
func said(result *mcp.CallToolResult, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case result.IsError && len(result.Content) > 0:
		if text, ok := mcp.AsTextContent(result.Content[0]); ok {
			return text.Text
		}
	}
	return ""
}

func complain(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "player: %s: %v\n", what, err)
	}
}

// version is the newest protocol version of the scenario's era.
func version() string {
	if os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION") < mcp.LATEST_PROTOCOL_VERSION {
		return mcp.LATEST_LEGACY_PROTOCOL_VERSION
	}
	return mcp.LATEST_PROTOCOL_VERSION
}

// connect is a client of the URL, or of the program that it starts in front of it, with
// that configuration.
func connect(url, through, home string, seen *schemas) (c *client.Client, config string, err error) {
	options := []client.ClientOption{
		client.WithElicitationHandler(user{}),
		client.WithSamplingHandler(user{}),
		client.WithRootsHandler(user{}),
		client.WithProtocolVersion(version()),
	}
	if through == "" {
		var listen []transport.StreamableHTTPCOption
		if version() == mcp.LATEST_LEGACY_PROTOCOL_VERSION {
			//lint:ignore SA1019 requests of a legacy server come on the stream that it opens
			listen = append(listen, transport.WithContinuousListening())
		}
		http, err := transport.NewStreamableHTTP(url, listen...)
		if err != nil {
			return nil, "", err
		}
		return client.NewClient(overHTTP{http, seen}, options...), "", nil
	}
	config, err = configure(url, home, "pinned", []string{"*"})
	if err != nil {
		return nil, "", err
	}
	stdio := transport.NewStdioWithOptions(through, nil, []string{"serve", "--config", config}, transport.WithCommandStderrWriter(os.Stderr))
	return client.NewClient(overStdio{stdio, seen}, options...), config, nil
}

// configure writes a configuration for the suite's server, with one more key, and
// returns its path.
func configure(url, home, key string, value any) (string, error) {
	dir, err := os.MkdirTemp(home, "player-")
	if err != nil {
		return "", err
	}
	server := map[string]any{"url": url, "prefix": ""}
	if strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/") {
		server["oauth"] = oauth()
	}
	text, err := json.Marshal(map[string]any{
		"data_dir":    filepath.Join(dir, "data"),
		"log_format":  "json",
		key:           value,
		"mcp_servers": map[string]any{"suite": server},
	})
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "toolfinch.json")
	return config, os.WriteFile(config, text, 0o600)
}

// waitConnected waits until the program has connected to its only server, and logs in
// where that wants it.
func waitConnected(ctx context.Context, c *client.Client, through, config string) error {
	done := logins{}
	for {
		result, err := c.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{
			Name:      "retrieve_tools",
			Arguments: map[string]any{"query": "qqqq", "limit": 1, "detail": "full"}, // which alone tells the state
		}})
		if err != nil {
			return fmt.Errorf("retrieve_tools: %w", err)
		}
		state, said, err := indexOf(result)
		if err != nil {
			return fmt.Errorf("retrieve_tools: %w", err)
		}
		switch {
		case state.Ready == 1:
			return nil
		case state.Failed == 1 && strings.Contains(said, "needs login"):
			if err := done.logIn(ctx, said, through, config); err != nil {
				return fmt.Errorf("toolfinch server login: %w", err)
			}
		case state.Failed == 1:
			return errors.New("toolfinch cannot connect to the suite's server")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type index struct {
	Ready   int `json:"servers_ready"`
	Pending int `json:"servers_pending"`
	Failed  int `json:"servers_failed"`
}

// indexOf is the state in an answer of retrieve_tools. An answer that names no
// server is an error: waiting for another would take all the patience there is.
func indexOf(result *mcp.CallToolResult) (state index, said string, err error) {
	if len(result.Content) != 1 {
		return index{}, "", fmt.Errorf("%d contents", len(result.Content))
	}
	text, ok := mcp.AsTextContent(result.Content[0])
	if !ok {
		return index{}, "", fmt.Errorf("the answer is a %T", result.Content[0])
	}
	var answer struct{ Index index }
	if err := json.Unmarshal([]byte(text.Text), &answer); err != nil {
		return index{}, "", fmt.Errorf("%w in %s", err, text.Text)
	}
	if answer.Index == (index{}) {
		return index{}, "", fmt.Errorf("no state of a server in %s", text.Text)
	}
	return answer.Index, text.Text, nil
}
