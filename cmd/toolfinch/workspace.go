package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/internal/nearest"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/tool"
)

// workspace is a command's configuration, with the tools in its store.
type workspace struct {
	*proxy.Workspace
	cmd    *cobra.Command
	config *configs.Config
	view   *proxy.View // the view of the command
}

// withWorkspace calls do with a workspace. It audits actions such as starting a server, unless the command only looks.
func (s *settings) withWorkspace(cmd *cobra.Command, config *configs.Config, log *slog.Logger, looks bool, do func(*workspace) error) (err error) {
	if s.away != nil {
		return s.away
	}
	var options []proxy.Option
	if !looks {
		if options, err = audited(config, log); err != nil {
			return err
		}
	}
	w, err := proxy.OpenWorkspace(cmd.Context(), config, append(options, proxy.WithVersion(built().Version), proxy.WithLogger(log), proxy.WithVaultKey(s.vaultKey))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return do(&workspace{Workspace: w, cmd: cmd, config: config})
}

// withView calls do with a workspace for the named view; "" for the root.
func (s *settings) withView(cmd *cobra.Command, name string, do func(*workspace) error) error {
	config, err := s.read(cmd, nil)
	if err != nil {
		return err
	}
	if s.away != nil { // the reason why servers are left out
		return s.away
	}
	for _, broken := range config.Broken {
		fmt.Fprintln(cmd.ErrOrStderr(), "left out:", broken)
	}
	return s.withWorkspace(cmd, config, s.quietLog(cmd, config), false, func(d *workspace) error {
		if d.view, err = d.View(name); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--view: %w", err)}
		}
		err := do(d)
		if wrong := d.problems(); wrong > 0 && cmd.Context().Err() == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "the configuration of this view has %s: toolfinch validate shows more\n", plural(wrong, "problem"))
		}
		return err
	})
}

// quietLog returns the log of a command that prints its own errors. The log is silent unless a level is set.
func (s *settings) quietLog(cmd *cobra.Command, config *configs.Config) *slog.Logger {
	if !s.wantsLog() {
		return slog.New(slog.DiscardHandler)
	}
	return newLog(cmd.ErrOrStderr(), config)
}

// withStore calls do with the configuration's store. Without writes it changes nothing on disk. With writes it fails if
// Open falls back to a store in memory.
func (s *settings) withStore(cmd *cobra.Command, writes bool, do func(context.Context, *configs.Config, *store.Store) error) (err error) {
	config, log, err := s.loadStored(cmd)
	if err != nil {
		return err
	}
	open := store.OpenReadOnly
	if writes {
		open = store.Open
	}
	db, err := open(cmd.Context(), config.Places().Store, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if writes && !db.Durable() {
		return fmt.Errorf("the store in %s cannot be opened", config.Places().StoreName())
	}
	return do(cmd.Context(), config, db)
}

// problems counts the problems of the view and of its servers' tools.
func (d *workspace) problems() (n int) {
	for _, problem := range d.Problems() {
		if !problem.Warning && (problem.View == "" || problem.View == d.view.Settings.Name) {
			n++
		}
	}
	return n
}

// tools returns the view's tools of one server; "" stands for all servers. It first connects to servers that were never
// listed. failed reports that a connection failed.
func (d *workspace) tools(server string) (tools []*tool.Tool, failed bool, err error) {
	wanted := d.Unlisted()
	if server != "" {
		wanted = slices.DeleteFunc(wanted, func(s string) bool { return s != server })
	}
	failed = len(d.meet(wanted)) > 0
	if err := d.cmd.Context().Err(); err != nil {
		return nil, failed, err
	}
	tools = d.view.Tools()
	if server == "" {
		return tools, failed, nil
	}
	tools = slices.DeleteFunc(tools, func(t *tool.Tool) bool { return t.Def.ID.Server != server })
	if len(tools) == 0 {
		err = d.unknownServer(server)
	}
	return tools, failed, err
}

// unknownServer returns an error for a server that does not exist.
func (d *workspace) unknownServer(server string) error {
	names := serverNames(d.config)
	for _, t := range d.view.Tools() { // the server of a view's own tool is the view
		names = append(names, t.Def.ID.Server)
	}
	return among(names, d.config.Disabled, server)
}

// among returns an error unless the configured servers include all wanted ones, which are not disabled.
func among(configured, disabled []string, wanted ...string) error {
	for _, server := range wanted {
		switch {
		case slices.Contains(disabled, server):
			return &exitError{exitUsage, fmt.Errorf("server %q is disabled", server)}
		case !slices.Contains(configured, server):
			return &exitError{exitUsage, fmt.Errorf("no server %q%s", server, orNearest(server, unique(configured)))}
		}
	}
	return nil
}

// namedServers returns the servers that a command names, each once. All must be configured.
func namedServers(config *configs.Config, names []string) ([]string, error) {
	return unique(names), among(serverNames(config), config.Disabled, names...)
}

// find finds a tool of the view like View.Find. It first connects to servers that may have the tool and were never
// listed.
func (d *workspace) find(name string) (*tool.Tool, error) {
	namedBy := func(servers []string) (named []string) {
		for _, server := range servers {
			if strings.HasPrefix(name, server+".") || strings.HasPrefix(name, server+":") {
				named = append(named, server)
			}
		}
		return named
	}
	wanted, configured := d.Unlisted(), serverNames(d.config)
	switch t, err := d.view.Find(name); {
	case err == nil && slices.Contains(configured, t.Def.ID.Server):
		return t, nil
	case err == nil: // a view's own tool may call any server
	case len(namedBy(configured)) > 0:
		wanted = namedBy(wanted)
	}
	if slices.Contains(configured, name) {
		return nil, &exitError{exitUsage, fmt.Errorf("%q is a server, not a tool: toolfinch tool list --server %s lists its tools", name, name)}
	}
	silent := d.meet(wanted)
	if err := d.cmd.Context().Err(); err != nil {
		return nil, err
	}
	t, err := d.view.Find(name)
	if err == nil {
		return t, nil
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("%w, as far as is known: %s did not answer, see above", err, strings.Join(silent, ", "))
	}
	if disabled := namedBy(d.config.Disabled); disabled != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("%w: server %q is disabled", err, disabled[0])}
	}
	var candidates []string
	for _, t := range d.view.Tools() {
		if strings.ContainsAny(name, ".:") {
			candidates = append(candidates, t.Def.ID.String())
		} else {
			candidates = append(candidates, t.Name)
		}
	}
	return nil, &exitError{exitUsage, fmt.Errorf("%w%s", err, orNearest(name, candidates))}
}

// meet connects to servers for the first time, and stores their tools. It prints errors, and returns the servers that
// were not listed.
func (d *workspace) meet(servers []string) (silent []string) {
	if len(servers) == 0 {
		return nil
	}
	stderr := d.cmd.ErrOrStderr()
	fmt.Fprintf(stderr, "connecting to %s for the first time\n", strings.Join(servers, ", "))
	if _, err := d.Learn(d.cmd.Context()); err != nil {
		fmt.Fprintln(stderr, "warning: nothing can be stored:", err)
	}
	for _, row := range d.refresh(d.cmd.Context(), servers...) {
		if row.Err != nil {
			silent = append(silent, row.Server)
			fmt.Fprintln(stderr, oneLine(row.Err.Error()))
		}
		if row.Lost != nil {
			fmt.Fprintln(stderr, "warning:", row.Lost)
		}
	}
	if now, err := d.View(d.view.Settings.Name); err == nil {
		d.view = now
	}
	return silent
}

// refresh lists the named servers, by default all, and shows its progress.
func (d *workspace) refresh(ctx context.Context, servers ...string) []proxy.Refreshed {
	waiting := servers
	if len(servers) == 0 {
		waiting = serverNames(d.config)
	}
	bar := newBar(d.cmd.ErrOrStderr(), len(waiting))
	defer bar.clear()
	bar.waitFor(waiting)
	return d.Refresh(ctx, bar.step, servers...)
}

// embed adds vectors to the search if the configuration asks for them. After a failure, search goes by words alone. The
// error is the cause of ctx's end.
func (d *workspace) embed() error {
	bar := newBar(d.cmd.ErrOrStderr(), 1)
	err := d.Embed(d.cmd.Context(), func(done, total int) {
		bar.done, bar.total = done, max(1, total)
		bar.draw("embedding tools")
	})
	bar.clear()
	if d.cmd.Context().Err() != nil {
		return context.Cause(d.cmd.Context())
	}
	switch {
	case errors.Is(err, embed.ErrVectors):
		fmt.Fprintln(d.cmd.ErrOrStderr(), "warning: vectors are not read or stored:", err)
	case err != nil:
		fmt.Fprintln(d.cmd.ErrOrStderr(), "warning: words alone decide:", err)
	}
	return nil
}

func serverNames(config *configs.Config) (names []string) {
	for _, s := range config.Servers {
		names = append(names, s.Name)
	}
	return names
}

// allServers returns the names of the configured servers, disabled ones last.
func allServers(config *configs.Config) []string {
	return slices.Concat(serverNames(config), config.Disabled)
}

// orNearest lists the candidates similar to an unknown name, or all candidates if they are few.
func orNearest(name string, candidates []string) string {
	if near := nearest.Names(name, candidates, 3, nearest.Loose); len(near) > 0 {
		return "; nearest: " + strings.Join(near, ", ")
	}
	if len(candidates) == 0 || len(candidates) > 8 {
		return ""
	}
	return "; there are " + strings.Join(candidates, ", ")
}
