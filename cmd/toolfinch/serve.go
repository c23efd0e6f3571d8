package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy"
	"toolfinch/trust/inbound"
)

func newServe(s *settings) *cobra.Command {
	var transport, listen, view string
	var port int
	cmd := &cobra.Command{
		Use:         "serve",
		Annotations: map[string]string{whenInterrupted: "the proxy has stopped"},
		Short:       "Serve the proxy to an agent, over stdio or HTTP",
		Long: `Serve connects to the configured MCP servers and serves one MCP server in front
of them: over stdio to the agent that started it, or over HTTP at /mcp (streamable
HTTP) and /sse (for older clients), with /healthz and /readyz. Each view of
tool_views has its own endpoint, /mcp/NAME; --view serves only that view. Stored tools
can be searched at once, before servers connect. Logs go to stderr.

An edit of the configuration is applied at once, or after SIGHUP. Unchanged servers and
views continue. A broken edit is refused and logged.`,
		Example: `  toolfinch serve
  toolfinch serve --config ~/toolfinch.yaml
  toolfinch serve --view github
  toolfinch serve --port 9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := map[string]string{}
			if cmd.Flags().Changed("transport") {
				flags["transport"] = transport
			}
			for _, where := range []string{"listen", "port"} {
				switch {
				case !cmd.Flags().Changed(where):
					continue
				case flags["listen"] != "":
					return &exitError{exitUsage, errors.New("--listen and --port both say where to listen: leave out one")}
				case flags["transport"] == configs.TransportStdio:
					return &exitError{exitUsage, fmt.Errorf("--%s is for HTTP: leave out --transport stdio", where)}
				case where == "port" && (port < 0 || port > 65535):
					return &exitError{exitUsage, fmt.Errorf("--port must be from 0 to 65535, not %d", port)}
				case where == "port":
					listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
				}
				flags["listen"], flags["transport"] = listen, cmp.Or(flags["transport"], configs.TransportHTTP)
			}
			config, _, err := s.load(cmd, flags)
			if err != nil {
				return err
			}
			s.config, s.found = config.Path, config.Found // a reload reads this file, even if a search would now find another file
			lines := newBacklog(cmd.ErrOrStderr(), config)
			defer lines.close()
			log := newLog(lines, config)
			reload := func() (*configs.Config, error) { return s.read(cmd, flags) }
			audits, err := audited(config, log)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), config, view, reload, log, streamsOf(cmd), append(audits, proxy.WithVaultKey(s.vaultKey), proxy.WithLogLost(lines.lost)))
		},
	}
	cmd.Flags().StringVar(&transport, "transport", "stdio", "stdio or http")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "serve HTTP at this address")
	cmd.Flags().IntVar(&port, "port", 8080, "serve HTTP at this port of 127.0.0.1")
	cmd.Flags().StringVar(&view, "view", "", "serve only this view of tool_views")
	return cmd
}

// streams are the program's streams. out has no filter: it carries the protocol.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func streamsOf(cmd *cobra.Command) streams {
	return streams{in: cmd.InOrStdin(), out: unfiltered(cmd.OutOrStdout()), err: cmd.ErrOrStderr()}
}

// serve runs a proxy until its client leaves or ctx ends. viewName, if set, is the only served view;
// reload, if set, reads the configuration again.
func serve(ctx context.Context, config *configs.Config, viewName string, reload func() (*configs.Config, error), log *slog.Logger, std streams, options []proxy.Option) (err error) {
	keepPrivate()
	outlivePipes()
	hangup := make(chan os.Signal, 1)
	if reload != nil {
		signal.Notify(hangup, syscall.SIGHUP) // never reset: a late SIGHUP would end the process at once
	}
	terminal, closed := onTerminal(unfiltered(std.err)), false
	traces := telemetry.OpenTraces(ctx, built().Version, log)
	defer func() { // runs after the last span
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(flushWithin))
		defer cancel()
		if err := traces.Close(ctx); err != nil {
			log.Warn("traces were not delivered to the end", "error", err)
		}
	}()
	var listener net.Listener
	if config.Transport == "http" {
		if listener, err = net.Listen("tcp", config.Listen); err != nil {
			return fmt.Errorf("%w; choose another address with --listen", err)
		}
		defer listener.Close()
		if err := config.Auth.CheckListener(listener.Addr()); err != nil { // fails before anything is started
			return &exitError{exitUsage, err}
		}
		if config.Auth.Mode == inbound.None {
			log.Warn("anyone who reaches this address may call every tool: auth is none", "listen", listener.Addr().String())
		}
		options = append(options, proxy.WithConnector(newConnector(config, listener.Addr())), proxy.WithOwnPort(listener.Addr().(*net.TCPAddr).Port))
	}
	p, err := proxy.Open(ctx, config, append(options, proxy.WithVersion(built().Version), proxy.WithLogger(log), proxy.WithView(viewName), proxy.WithTraces(traces),
		// After indexing, less garbage is allowed: a call makes little, and many processes run all day.
		proxy.WhenIndexed(func() { collectGarbage(50) }), proxy.WhenIdle(giveBack))...)
	if errors.Is(err, proxy.ErrNoView) {
		return &exitError{exitUsage, fmt.Errorf("--view: %w", err)}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	said := log // for messages at the start
	greet := greets(config, std.in, std.err)
	if greet {
		said = slog.New(slog.DiscardHandler)
	}
	said.Info("serving", "config", config.Path, "transport", config.Transport, "servers", len(config.Servers), "tools_known", p.Tools(), "root", p.Root())
	err = p.Run(ctx, func(ctx context.Context) error {
		var following sync.WaitGroup
		defer following.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var refused atomic.Pointer[string]
		if reload != nil {
			following.Go(func() {
				follow(ctx, p, config, reload, hangup, &refused, log, func() {
					if closed = terminal && !onTerminal(unfiltered(std.err)); closed {
						cancel()
					}
				})
			})
		}
		at := configs.TransportStdio
		if listener != nil {
			at = listener.Addr().String()
		}
		following.Go(func() { answerLive(ctx, config.DataDir, liveOf(p, config, at, &refused), log) })
		if greet {
			greetingOf(p, config, at).print(std.err)
		}
		if listener == nil {
			return p.ServeStdio(ctx, std.in, std.out)
		}
		said.Info("listening", "url", "http://"+at+"/mcp")
		return p.ServeHTTP(ctx, listener)
	})
	reason := "the client has left"
	switch {
	case err != nil:
		reason = err.Error()
	case ctx.Err() != nil:
		reason = context.Cause(ctx).Error()
	case closed:
		reason = "the terminal was closed"
	}
	log.Info("stopped", "reason", reason)
	return err
}

// outlivePipes makes writes to a closed standard output or error fail instead of ending the process. An agent that
// leaves closes all pipes at once: without this, a log line would end the process during its work. Children start with
// the default.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// flushWithin bounds the wait until a collector has received the last spans.
const flushWithin = 3 * time.Second

// follow applies edits of the configuration until ctx ends: when one of its files changes, and on SIGHUP. hungUp is
// called first on SIGHUP, and may end ctx. refused gets the error of the last edit; nil if the edit is served.
func follow(ctx context.Context, p *proxy.Proxy, config *configs.Config, reload func() (*configs.Config, error), hangup <-chan os.Signal, refused *atomic.Pointer[string], log *slog.Logger, hungUp func()) {
	var named atomic.Pointer[[]string]
	watch := func(config *configs.Config) {
		all := append([]string{config.Path}, config.Modules()...)
		if list, err := configs.UserTrusted(); err == nil && config.Found {
			all = append(all, list.Path) // toolfinch trust lets an edit be served
		}
		named.Store(&all)
	}
	watch(config)
	changed, err := configs.Watch(ctx, func() []string { return slices.Concat(*named.Load(), p.Modules()) }, log)
	if err != nil {
		log.Warn("edits of the configuration are taken on SIGHUP alone", "error", err)
	} else {
		defer func() {
			for range changed { // waits until the watch has ended
			}
		}()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			if hungUp(); ctx.Err() != nil {
				return
			}
		case _, open := <-changed:
			if !open {
				return // ctx has ended
			}
		}
		next, err := reload()
		if err == nil {
			watch(next) // even if Reload refuses next: an edit of one of its files may repair it
			err = p.Reload(ctx, next)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			reason := err.Error()
			refused.Store(&reason)
			log.Error("the edited configuration is refused; the one before stays", "error", err)
		default:
			refused.Store(nil)
			logFaults(log, next)
			log.Info("configuration reloaded", "servers", len(next.Servers), "views", len(next.Views), "root", p.Root())
		}
	}
}
