package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/nearest"
	"toolfinch/proxy"
	"toolfinch/rawjson"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

func newTools(s *settings) *cobra.Command {
	var server, view string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that clients can find",
		Long: `Tools lists the tools of a view: the name that clients see, the tool's ID, which
configuration and commands use, and the first sentence of its description. What is
printed is what the store knows; only a server that was never listed is connected.`,
		Example: `  toolfinch tools
  toolfinch tools --server github
  toolfinch tools --view redis-expert
  toolfinch tools --json | jq -r '.[].id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withView(cmd, view, func(config *configs.Config, p *proxy.Workspace, v *proxy.View) error {
				tools, failed, err := toolsOf(cmd, config, p, v, server)
				if err != nil {
					return err
				}
				err = show(cmd, asJSON, toolRows(tools), toolTable(tools), "there are no tools")
				if err == nil && failed {
					err = &exitError{code: exitFailed}
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "list the tools of this server only")
	cmd.Flags().StringVar(&view, "view", "", "the view to list (default: that of clients that name none)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array with the whole definitions")
	return cmd
}

func toolTable(tools []*tool.Tool) *table {
	t := &table{head: []string{"NAME", "TOOL", "DESCRIPTION"}}
	for _, one := range tools {
		t.add(one.Name, one.Def.ID.String(), retrieve.FirstSentence(one.Def.Description))
	}
	return t
}

// toolRow is a tool as it is listed.
type toolRow struct {
	Name        string          `json:"name"` // as clients see it
	ID          string          `json:"id"`   // server.tool
	Server      string          `json:"server"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
	Definition  json.RawMessage `json:"definition"` // as clients see it
}

func toolRows(tools []*tool.Tool) []toolRow {
	rows := make([]toolRow, len(tools))
	for i, t := range tools {
		rows[i] = toolRow{
			Name: t.Name, ID: t.Def.ID.String(), Server: t.Def.ID.Server,
			Description: t.Def.Description, InputSchema: t.Def.InputSchema,
			Annotations: rawjson.Member(t.Def.Raw, "annotations"), Definition: register.Listed(t),
		}
	}
	return rows
}

// withView opens the workspace, and for do the view of that name, "" for the one that
// clients get who name none.
func (s *settings) withView(cmd *cobra.Command, name string, do func(*configs.Config, *proxy.Workspace, *proxy.View) error) (err error) {
	config, err := s.read(cmd, nil)
	if err != nil {
		return err
	}
	p, err := proxy.OpenWorkspace(cmd.Context(), config, proxy.WithVersion(version), proxy.WithLogger(s.quietLog(cmd, config)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	v, err := p.View(name)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--view: %w", err)}
	}
	err = do(config, p, v)
	if wrong := problemsOf(p, v); wrong > 0 && cmd.Context().Err() == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the configuration of this view has %s: toolfinch validate shows more\n", plural(wrong, "problem"))
	}
	return err
}

// problemsOf counts what is wrong with a view, and what it has of servers.
func problemsOf(p *proxy.Workspace, v *proxy.View) int {
	name, n := v.Settings().Name, 0
	for _, problem := range p.Problems() {
		if !problem.Warning && (problem.View == "" || problem.View == name) {
			n++
		}
	}
	return n
}

// quietLog is the log of a command that says itself what is wrong: there is none
// unless a level is asked for.
func (s *settings) quietLog(cmd *cobra.Command, config *configs.Config) *slog.Logger {
	if s.logLevel == "" && os.Getenv("MCPPROXY_LOG_LEVEL") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return newLog(cmd.ErrOrStderr(), config)
}

// toolsOf returns the tools of a view, of one server unless it is "". Servers
// that were never listed are connected; failed says that one of them could not be.
func toolsOf(cmd *cobra.Command, config *configs.Config, p *proxy.Workspace, v *proxy.View, server string) (tools []*tool.Tool, failed bool, err error) {
	wanted := p.Unlisted()
	if server != "" {
		wanted = slices.DeleteFunc(wanted, func(s string) bool { return s != server })
	}
	v, met := meet(cmd, p, v, wanted)
	failed = !met
	if err := cmd.Context().Err(); err != nil {
		return nil, failed, err
	}
	tools = v.Tools()
	if server == "" {
		return tools, failed, nil
	}
	tools = slices.DeleteFunc(tools, func(t *tool.Tool) bool { return t.Def.ID.Server != server })
	if len(tools) == 0 {
		err = unknownServer(config, v, server)
	}
	return tools, failed, err
}

// unknownServer is the error for a server of which there is nothing to show
// because it is not there; nil when it is.
func unknownServer(config *configs.Config, v *proxy.View, server string) error {
	if slices.Contains(config.Disabled, server) {
		return &exitError{exitUsage, fmt.Errorf("server %q is disabled", server)}
	}
	names := serverNames(config)
	for _, t := range v.Tools() { // a view's own tools are of the view
		if !slices.Contains(names, t.Def.ID.Server) {
			names = append(names, t.Def.ID.Server)
		}
	}
	if slices.Contains(names, server) {
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("no server %q%s", server, orNearest(server, names))}
}

func serverNames(config *configs.Config) []string {
	var names []string
	for _, s := range config.Servers {
		names = append(names, s.Name)
	}
	return names
}

// orNearest names what looks like a name that there is not, or all when there are
// few.
func orNearest(name string, candidates []string) string {
	if near := nearest.Names(name, candidates, 3, nearest.Loose); len(near) > 0 {
		return "; nearest: " + strings.Join(near, ", ")
	}
	if len(candidates) == 0 || len(candidates) > 8 {
		return ""
	}
	return "; there are " + strings.Join(candidates, ", ")
}

// meet connects to servers for the first time, and says so. It returns the view with
// what they have, and whether all could be listed; those that could not be have been
// named.
func meet(cmd *cobra.Command, p *proxy.Workspace, v *proxy.View, servers []string) (after *proxy.View, all bool) {
	if len(servers) == 0 {
		return v, true
	}
	stderr := cmd.ErrOrStderr()
	fmt.Fprintf(stderr, "connecting to %s for the first time\n", strings.Join(servers, ", "))
	if _, err := p.Learn(cmd.Context()); err != nil {
		fmt.Fprintln(stderr, "warning: what is learned is not kept:", err)
	}
	bar := newBar(stderr, len(servers))
	rows := p.Refresh(cmd.Context(), bar.step, servers...)
	bar.clear()
	all = true
	for _, row := range rows {
		if row.Err != nil {
			all = false
			fmt.Fprintln(stderr, oneLine(row.Err.Error()))
		}
		if row.Lost != nil {
			fmt.Fprintln(stderr, "warning:", row.Lost)
		}
	}
	if now, err := p.View(v.Settings().Name); err == nil {
		v = now
	}
	return v, all
}

// findTool finds a tool of a view by the name clients see or by "server.tool". A
// server that was never listed, and that may have it, is connected first.
func findTool(cmd *cobra.Command, config *configs.Config, p *proxy.Workspace, v *proxy.View, name string) (*tool.Tool, error) {
	met := true
	if unlisted := p.Unlisted(); len(unlisted) > 0 {
		v, met = meet(cmd, p, v, mayHave(unlisted, config, v, name))
		if err := cmd.Context().Err(); err != nil {
			return nil, err
		}
	}
	t, err := v.Find(name)
	if err == nil {
		return t, nil
	}
	if !met {
		return nil, fmt.Errorf("%w: not all servers could be asked", err)
	}
	for _, server := range config.Disabled {
		if strings.HasPrefix(name, server+".") {
			return nil, &exitError{exitUsage, fmt.Errorf("%w: server %q is disabled", err, server)}
		}
	}
	var candidates []string
	for _, t := range v.Tools() {
		if strings.Contains(name, ".") {
			candidates = append(candidates, t.Def.ID.String())
		} else {
			candidates = append(candidates, t.Name)
		}
	}
	return nil, &exitError{exitUsage, fmt.Errorf("%w%s", err, orNearest(name, candidates))}
}

// mayHave returns those of the servers that are to be listed before a tool can be
// called: the one that the name begins with; all when it tells nothing, or for a
// tool of the view's own, which may call any; none for a known tool of another.
func mayHave(servers []string, config *configs.Config, v *proxy.View, name string) []string {
	if t, err := v.Find(name); err == nil {
		if slices.Contains(serverNames(config), t.Def.ID.Server) {
			return nil
		}
		return servers
	}
	var named []string
	for _, server := range servers {
		if strings.HasPrefix(name, server+".") {
			named = append(named, server)
		}
	}
	if named != nil {
		return named
	}
	for _, server := range serverNames(config) {
		if strings.HasPrefix(name, server+".") {
			return nil // it is known, and has no such tool
		}
	}
	return servers
}
