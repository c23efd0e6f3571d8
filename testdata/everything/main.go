// Everything is the MCP server that the conformance suite asks for: one of
// each feature, in both protocol eras, on a free port or on stdio. It is no
// example of how to write a server: what it offers has no use but to be tested.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve HTTP on; the URL is the first line of the output")
	stdio := flag.Bool("stdio", false, "serve on standard input and output instead")
	push := flag.Bool("push", false, "ask clients in the middle of a call, which only those of the legacy era take")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := func() error { return serveHTTP(ctx, *listen, *push) }
	if *stdio {
		run = func() error { return server.NewStdioServer(everything(nil, *push)).Listen(ctx, os.Stdin, os.Stdout) }
	}
	if err := run(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "everything:", err)
		os.Exit(1)
	}
}

// everything is the server with all it offers; tasks only where there are any,
// which is behind the front.
func everything(ts *tasks, push bool) *server.MCPServer {
	var s *server.MCPServer
	options := []server.ServerOption{
		server.WithTitle("Everything"),
		server.WithInstructions("Offers one of each feature of the protocol."),
		server.WithToolCapabilities(true),
		server.WithPromptCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithCompletions(),
		server.WithPromptCompletionProvider(completer{}),
		server.WithResourceCompletionProvider(completer{}),
		server.WithLogging(),
		server.WithElicitation(),
		server.WithRoots(),
		server.WithCacheHints(1000, mcp.CacheScopePrivate),
	}
	if ts != nil {
		options = append(options, server.WithExtensions(map[string]any{tasksExtension: map[string]any{}}))
	}
	if push {
		options = append(options, server.WithToolHandlerMiddleware(pushing(func() *server.MCPServer { return s })))
	}
	s = server.NewMCPServer("everything", "1.0.0", options...)
	s.EnableSampling()
	addTools(s)
	addInputTools(s)
	addResources(s)
	addPrompts(s)
	if ts != nil {
		addTaskTools(s, ts)
	}
	return s
}

// serveHTTP serves at /mcp until ctx ends.
func serveHTTP(ctx context.Context, address string, push bool) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	ts := &tasks{all: map[string]*task{}}
	transport := server.NewStreamableHTTPServer(everything(ts, push),
		server.WithStateful(true),
		server.WithEventStore(server.NewInMemoryEventStore()),
	)
	mux := http.NewServeMux()
	mux.Handle("/mcp", newFront(transport, ts))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		_ = s.Close() // streams never end by themselves
	}()
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	err = s.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-ended
		return nil
	}
	return err
}
