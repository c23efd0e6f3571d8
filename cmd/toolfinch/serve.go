package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/proxy"
)

func newServe(s *settings) *cobra.Command {
	var transport, listen string
	var port int
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the proxy to an agent, over stdio or HTTP",
		Long: `Serve connects to the configured MCP servers and serves one MCP server in front
of them: over stdio to the agent that started it, or over HTTP at /mcp (streamable
HTTP) and /sse (for older clients), with /healthz and /readyz beside. What was
learned before can be searched at once; connections follow. Logs go to stderr.`,
		Example: `  toolfinch serve
  toolfinch serve --config ~/toolfinch.yaml
  toolfinch serve --transport http --port 9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := map[string]string{}
			if cmd.Flags().Changed("transport") {
				flags["transport"] = transport
			}
			if cmd.Flags().Changed("listen") {
				flags["listen"] = listen
			}
			if cmd.Flags().Changed("port") {
				flags["listen"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			}
			config, log, err := s.load(cmd, flags)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), config, log, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&transport, "transport", "stdio", "stdio or http")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address for --transport http")
	cmd.Flags().IntVar(&port, "port", 8080, "port on 127.0.0.1 for --transport http")
	cmd.MarkFlagsMutuallyExclusive("listen", "port")
	return cmd
}

// serve runs a proxy until its client leaves or ctx ends.
func serve(ctx context.Context, config *configs.Config, log *slog.Logger, stdin io.Reader, stdout io.Writer) (err error) {
	var listener net.Listener
	if config.Transport == "http" {
		if listener, err = net.Listen("tcp", config.Listen); err != nil {
			return fmt.Errorf("%w; choose another address with --listen", err)
		}
		defer listener.Close()
	}
	p, err := proxy.Open(ctx, config, version, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	log.Info("serving", "config", config.Path, "transport", config.Transport, "servers", len(config.Servers), "tools_known", p.Tools())
	// Many of these run beside an agent all day, and the garbage of a call is small.
	p.Completed = func() { collectGarbage(50) }
	return p.Run(ctx, func(ctx context.Context) error {
		if listener == nil {
			return p.ServeStdio(ctx, stdin, stdout)
		}
		log.Info("listening", "url", "http://"+listener.Addr().String()+"/mcp")
		return p.ServeHTTP(ctx, listener)
	})
}
