package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/demo"
	"toolfinch/proxy"
	"toolfinch/upstream"
)

func newDemo(s *settings) *cobra.Command {
	var serveIt bool
	var transport, listen string
	cmd := &cobra.Command{
		Use:         "demo",
		Annotations: map[string]string{whenInterrupted: "the demo has ended"},
		Short:       "Show toolfinch at work with built-in servers and a real client",
		Long: `Demo starts the built-in MCP servers (files, notes, clock, math, text) as child
processes, a proxy in front of them, and a client that retrieves, gets list_changed,
lists again and calls. It prints each step and the tokens saved. It needs no network
and no configuration, and works in a temporary folder.

With --serve the proxy keeps running for your own agent.`,
		Example: `  toolfinch demo
  toolfinch demo --serve                       # http://127.0.0.1:8080/mcp
  toolfinch demo --serve --transport stdio     # for an agent that starts it`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if transport != "stdio" && transport != "http" {
				return &exitError{exitUsage, fmt.Errorf("--transport is stdio or http, not %q", transport)}
			}
			for _, flag := range []string{"transport", "listen"} {
				switch {
				case !cmd.Flags().Changed(flag):
				case !serveIt:
					return &exitError{exitUsage, fmt.Errorf("--%s says how to serve: add --serve", flag)}
				case flag == "listen" && transport == configs.TransportStdio:
					return &exitError{exitUsage, errors.New("--listen is for HTTP: leave out --transport stdio")}
				}
			}
			dir, err := os.MkdirTemp("", "toolfinch-demo-")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			config, err := demoConfig(dir)
			if err != nil {
				return err
			}
			config.Transport, config.Listen = transport, listen
			log := slog.New(slog.DiscardHandler)
			if serveIt {
				config.LogLevel = slog.LevelInfo
				return serving{config: config, log: newLog(cmd.ErrOrStderr(), config), vaultKey: s.vaultKey}.run(cmd.Context(), streamsOf(cmd))
			}
			return play(cmd.Context(), config, log, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&serveIt, "serve", false, "keep the proxy running for your own agent")
	cmd.Flags().StringVar(&transport, "transport", "http", "with --serve: stdio or http")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "with --serve: address for http")
	return cmd
}

// demoConfig returns a configuration with the built-in servers, which this program runs, and a store in dir.
func demoConfig(dir string) (*configs.Config, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config := &configs.Config{
		DataDir:       filepath.Join(dir, "store"),
		Routing:       configs.RoutingAuto,
		CallTool:      configs.CallToolSingle,
		TopK:          5,
		MaxRegistered: 40,
		UI:            true,
	}
	for _, s := range demo.Servers() {
		config.Servers = append(config.Servers, upstream.Settings{
			Name:           s.Name,
			Description:    s.Description,
			Command:        program,
			Args:           []string{"demo-server", s.Name, filepath.Join(dir, s.Name)},
			ConnectTimeout: upstream.DefaultConnectTimeout,
			CallTimeout:    upstream.DefaultCallTimeout,
			Validate:       true,
		})
	}
	return config, nil
}

// play connects the proxy and the demo's client by pipes, like an agent that starts the proxy over stdio.
func play(ctx context.Context, config *configs.Config, log *slog.Logger, out io.Writer) (err error) {
	p, err := proxy.Open(ctx, config, proxy.WithVersion(built().Version), proxy.WithLogger(log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	played := make(chan error, 1)
	err = p.Run(ctx, func(ctx context.Context) error {
		go func() {
			played <- demo.Play(ctx, toClient, fromClient, out)
			fromClient.Close() // ends ServeStdio
		}()
		defer fromServer.Close()
		return p.ServeStdio(ctx, toServer, fromServer)
	})
	return errors.Join(err, <-played)
}

// newDemoServer returns the hidden command that runs a server of the demo.
func newDemoServer() *cobra.Command {
	return &cobra.Command{
		Use:     "demo-server NAME DIR",
		Short:   "Run one of the built-in MCP servers over stdio",
		Example: "  toolfinch demo-server notes ./notes",
		Hidden:  true,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := demo.Serve(cmd.Context(), args[0], args[1], cmd.InOrStdin(), unfiltered(cmd.OutOrStdout()))
			if errors.Is(err, demo.ErrUnknownServer) {
				return &exitError{exitUsage, err}
			}
			return err
		},
	}
}
