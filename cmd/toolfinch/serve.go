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
	"runtime/debug"
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
	var alone, background, found bool
	var beside []string
	cmd := &cobra.Command{
		Use:         "serve",
		Annotations: map[string]string{whenInterrupted: "the proxy has stopped"},
		Short:       "Serve the proxy to an agent, over stdio or HTTP",
		Long: `Serve connects to the configured MCP servers and serves one MCP server in front
of them: over stdio to the agent that started it, or over HTTP at /mcp (streamable
HTTP) and /sse (for older clients), with /healthz and /readyz. Each view of
tool_views has its own endpoint, /mcp/NAME; --view serves only that view. Stored tools
can be searched at once, before servers connect. Logs go to stderr.

Over stdio, all agents of a user share one toolfinch: the first agent starts it in the
background, with its log in the data directory, and it ends 10 minutes after the last
agent (keep_running). --alone, or shared: false in the configuration, gives this agent
a toolfinch of its own.

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
			s.found = found
			config, _, err := s.load(cmd, flags)
			if err != nil {
				return err
			}
			s.config, s.found = config.Path, config.Found // a reload reads this file, even if a search would now find another file
			reload := func() (*configs.Config, error) { return s.read(cmd, flags) }
			if !background && shares(cmd, config, alone) {
				j := joining{read: reload, view: view, vaultKey: s.vaultKey, log: newLog(cmd.ErrOrStderr(), config)}
				for _, flag := range []string{"log-level", "log-format"} {
					if f := cmd.Flag(flag); f.Changed {
						j.flags = append(j.flags, "--"+flag, f.Value.String())
					}
				}
				return j.relay(cmd.Context(), streamsOf(cmd))
			}
			to := cmd.ErrOrStderr()
			if background {
				if _, err := makeSocketDir(config.DataDir); err != nil {
					return err
				}
				file, err := openRotated(logFile(config.DataDir))
				if err != nil {
					return err
				}
				defer file.Close()
				_ = debug.SetCrashOutput(file.file, debug.CrashOptions{}) // fails only where there is no such thing
				to = file
			}
			lines := newBacklog(to, config)
			defer lines.close()
			log := newLog(lines, config)
			audits, err := audited(config, log)
			if err != nil {
				return err
			}
			return serving{
				config: config, view: view, reload: reload, log: log, vaultKey: s.vaultKey, background: background, beside: beside,
				options: append(audits, proxy.WithLogLost(lines.lost)),
			}.run(cmd.Context(), streamsOf(cmd))
		},
	}
	cmd.Flags().StringVar(&transport, "transport", "stdio", "stdio or http")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "serve HTTP at this address")
	cmd.Flags().IntVar(&port, "port", 8080, "serve HTTP at this port of 127.0.0.1")
	cmd.Flags().StringVar(&view, "view", "", "serve only this view of tool_views")
	cmd.Flags().BoolVar(&alone, "alone", false, "over stdio, share no toolfinch with other agents")
	cmd.Flags().BoolVar(&background, "background", false, "serve agents that connect through relays, over stdio")
	cmd.Flags().StringArrayVar(&beside, "beside", nil, "why a toolfinch that runs already is not shared")
	cmd.Flags().BoolVar(&found, "found", false, "the configuration was found in a working folder: edits need trust")
	for _, flag := range []string{"background", "beside", "found"} { // what a relay passes to the toolfinch that it starts
		cmd.Flag(flag).Hidden = true
	}
	return cmd
}

// serving is what a proxy is run with.
type serving struct {
	config     *configs.Config
	view       string                          // the only served view; "" for all
	reload     func() (*configs.Config, error) // reads the configuration again; nil if it has no file
	log        *slog.Logger
	vaultKey   string
	background bool     // agents connect through relays
	beside     []string // why other processes of the configuration are not shared
	options    []proxy.Option
}

// run runs a proxy until its client leaves, until no agent uses a background process, or until ctx ends.
func (s serving) run(ctx context.Context, std streams) (err error) {
	keepPrivate()
	outlivePipes()
	config, log := s.config, s.log
	hangup := make(chan os.Signal, 1)
	if s.reload != nil {
		signal.Notify(hangup, syscall.SIGHUP) // never reset: a late SIGHUP would end the process at once
	}
	terminal := onTerminal(unfiltered(std.err))
	traces := telemetry.OpenTraces(ctx, built().Version, log)
	defer func() { // runs after the last span
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(flushWithin))
		defer cancel()
		if err := traces.Close(ctx); err != nil {
			log.Warn("traces were not delivered to the end", "error", err)
		}
	}()
	options := append(s.options, proxy.WithVaultKey(s.vaultKey))
	var listener net.Listener
	if config.Transport == configs.TransportHTTP {
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
	} else {
		options = append(options, proxy.WithConnector(connector{settings: &settings{config: config.Path}}))
	}
	p, err := proxy.Open(ctx, config, append(options, proxy.WithVersion(built().Version), proxy.WithLogger(log), proxy.WithView(s.view), proxy.WithTraces(traces),
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
	greeted := !s.background && greets(config, std.in, std.err)
	if greeted {
		said = slog.New(slog.DiscardHandler)
	}
	said.Info("serving", "config", config.Path, "transport", config.Transport, "servers", len(config.Servers), "tools_known", p.Tools(), "root", p.Root())
	ending := context.Cause
	err = p.Run(ctx, func(outer context.Context) error {
		var following sync.WaitGroup
		defer following.Wait()
		ctx, end := context.WithCancelCause(outer)
		ending = func(context.Context) error { return context.Cause(ctx) }
		var refused atomic.Pointer[string]
		at := configs.TransportStdio
		if listener != nil {
			at = listener.Addr().String()
		}
		rereads := make(chan chan struct{})
		agents := &sharing{proxy: p, vaultKey: s.vaultKey, reread: func(ctx context.Context) { reread(ctx, rereads) }, life: ctx, log: log}
		if s.background {
			agents.idle = func() { end(errUnused) }
		}
		agents.serves(config)
		defer agents.running.Wait()
		defer end(nil)
		if s.reload != nil {
			following.Go(func() {
				s.follow(ctx, p, hangup, rereads, &refused, agents, func() {
					if terminal && !onTerminal(unfiltered(std.err)) {
						end(errors.New("the terminal was closed"))
					}
				})
			})
		}
		answers := liveOf(p, config, at, &refused)
		answers.beside, answers.shared = s.beside, s.background
		answers.stop = func() { end(errors.New("toolfinch stop was called")) }
		port := &pagePort{proxy: p, at: at, life: ctx, serving: &following}
		answers.page = port.link
		if (s.background || listener != nil) && config.Shared && s.view == "" && s.reload != nil {
			answers.attach = agents.attach
		}
		live, err := listenLive(config.DataDir)
		switch {
		case err == nil:
			following.Go(func() { answerLive(ctx, live, answers, log) })
		case s.background:
			return fmt.Errorf("no agent can connect: %w; toolfinch serve --alone needs no socket", err)
		default:
			log.Debug("toolfinch status cannot ask this process", "error", err)
		}
		switch {
		case s.background:
			if _, err := io.WriteString(std.out, readyLine); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		case greeted:
			greet(std.err, p, config, at)
		}
		if listener == nil {
			return p.ServeStdio(ctx, std.in, std.out)
		}
		said.Info("listening", "url", "http://"+at+"/mcp")
		return p.ServeHTTP(ctx, listener)
	})
	reason := "the client has left"
	if err != nil {
		reason = err.Error()
	} else if cause := cmp.Or(context.Cause(ctx), ending(ctx)); cause != nil && !errors.Is(cause, context.Canceled) {
		reason = cause.Error()
	}
	log.Info("stopped", "reason", reason)
	return err
}

// errUnused is why a toolfinch in the background ends by itself.
var errUnused = errors.New("no agent uses it any more")

// flushWithin bounds the wait until a collector has received the last spans.
const flushWithin = 3 * time.Second

// reread asks for the configuration to be read now, and waits until it is served or refused.
func reread(ctx context.Context, rereads chan<- chan struct{}) {
	done := make(chan struct{})
	select {
	case rereads <- done:
		select {
		case <-done:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}

// follow applies edits of the configuration until ctx ends: when one of its files changes, on SIGHUP, and for each of
// rereads, which it closes then. hungUp is called first on SIGHUP, and may end ctx. refused gets the error of the last
// edit; nil if the edit is served.
func (s serving) follow(ctx context.Context, p *proxy.Proxy, hangup <-chan os.Signal, rereads <-chan chan struct{}, refused *atomic.Pointer[string], agents *sharing, hungUp func()) {
	log := s.log
	var named atomic.Pointer[[]string]
	watch := func(config *configs.Config) {
		all := append([]string{config.Path}, config.Modules()...)
		if list, err := configs.UserTrusted(); err == nil && config.Found {
			all = append(all, list.Path) // toolfinch trust lets an edit be served
		}
		named.Store(&all)
	}
	watch(s.config)
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
		var done chan struct{}
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
		case done = <-rereads:
		}
		next, err := s.reload()
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
			agents.serves(next)
			logFaults(log, next)
			log.Info("configuration reloaded", "servers", len(next.Servers), "views", len(next.Views), "root", p.Root())
		}
		if done != nil {
			close(done)
		}
	}
}
