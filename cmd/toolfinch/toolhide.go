package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view"
)

func newToolHide(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "hide NAME",
		Short: "Hide a tool: no client can list, find or call it",
		Long: `Hide takes the ID of a tool, SERVER.TOOL, or the name that clients see. It writes
enabled: false for the tool into the configuration, under its server, so the tool is in no
view, also not for composite and custom tools. A running toolfinch applies it at once.
toolfinch tool list --hidden lists what is hidden; toolfinch tool unhide shows it again.`,
		Example: `  toolfinch tool hide github.delete_repo`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return s.setHidden(cmd, args[0], true) },
	}
}

func newToolUnhide(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "unhide NAME",
		Short:   "Show a hidden tool again",
		Long:    `Unhide undoes toolfinch tool hide: the configuration is as it was before.`,
		Example: `  toolfinch tool unhide github.delete_repo`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return s.setHidden(cmd, args[0], false) },
	}
}

// setHidden hides a tool in the configuration, or shows it again.
func (s *settings) setHidden(cmd *cobra.Command, name string, hidden bool) error {
	return s.withStore(cmd, false, func(ctx context.Context, config *configs.Config, db *store.Store) error {
		id, err := s.toolNamed(cmd, config, db, name)
		if err != nil {
			return err
		}
		changed, err := configs.SetHidden(config.Path, id.Server, id.Name, hidden)
		text := map[bool]string{true: "hid", false: "unhid"}[hidden] + " %s in " + shown(config.Path)
		switch {
		case errors.Is(err, configs.ErrPattern):
			return &exitError{exitUsage, err}
		case err != nil:
			return editError(err)
		case !changed && hidden:
			text = "%s is hidden already"
		case !changed:
			text = "%s is not hidden"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), text+"\n", id)
		for _, v := range config.Views {
			if hidden && namesTool(v, id) {
				fmt.Fprintf(cmd.ErrOrStderr(), "view %s names %s: it is left out there, too\n", v.Name, id)
			}
		}
		return err
	})
}

// namesTool reports whether a view names the tool itself, not by a pattern.
func namesTool(v view.Settings, id tool.ID) bool {
	return slices.ContainsFunc(v.Tools, func(s view.UpstreamTools) bool {
		return s.Name == id.Server && slices.ContainsFunc(s.Tools, func(o view.Override) bool { return o.Tool == id.Name && !o.Disabled })
	})
}

// withoutHidden returns a copy of the configuration in which no server hides a tool: hidden tools have names, too.
func withoutHidden(config *configs.Config) *configs.Config {
	all := *config
	all.Tools = slices.Clone(config.Tools)
	for i := range all.Tools {
		all.Tools[i].Tools = slices.DeleteFunc(slices.Clone(all.Tools[i].Tools), func(o view.Override) bool { return o.Disabled })
	}
	return &all
}

// toolNamed finds a server's tool by its ID, or by its name in a view. It connects to nothing: a tool of a server that
// was never listed is found by its ID only.
func (s *settings) toolNamed(cmd *cobra.Command, config *configs.Config, db *store.Store, name string) (id tool.ID, err error) {
	servers := allServers(config)
	for _, server := range servers {
		of, ok := strings.CutPrefix(name, server)
		if ok && len(of) > 1 && strings.ContainsRune(".:", rune(of[0])) && len(server) > len(id.Server) {
			id = tool.ID{Kind: tool.KindTool, Server: server, Name: of[1:]}
		}
	}
	if id.Server == "" {
		err = s.withWorkspace(cmd, withoutHidden(config), s.quietLog(cmd, config), true, func(d *workspace) error {
			id, err = d.toolOfServer(name, servers)
			return err
		})
		return id, err
	}
	defs, err := db.Tools(cmd.Context())
	if err != nil {
		return id, err
	}
	var names []string
	for _, def := range defs {
		if def.ID.Kind == tool.KindTool && def.ID.Server == id.Server {
			names = append(names, def.ID.Name)
		}
	}
	switch {
	case len(names) == 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "the tools of %s were never listed: the name is not checked\n", id.Server)
	case !slices.Contains(names, id.Name):
		err = &exitError{exitUsage, fmt.Errorf("server %q has no tool %q%s", id.Server, id.Name, orNearest(id.Name, names))}
	}
	return id, err
}

// toolOfServer returns the ID of the tool that has the name in a view.
func (d *workspace) toolOfServer(name string, servers []string) (id tool.ID, _ error) {
	var names []string
	for _, v := range d.Views() {
		t, err := v.Find(name)
		switch {
		case err == nil && slices.Contains(servers, t.Def.ID.Server):
			return t.Def.ID, nil
		case err == nil:
			return id, &exitError{exitUsage, fmt.Errorf("%q is a composite or custom tool of view %s: remove it there", name, v.Settings.Name)}
		}
		for _, t := range v.Tools() {
			names = append(names, t.Name)
		}
	}
	return id, &exitError{exitUsage, fmt.Errorf("no such tool: %q%s", name, orNearest(name, unique(names)))}
}

// hiddenRow is a tool that the configuration hides from all views.
type hiddenRow struct {
	ID          string `json:"id"` // server.tool
	Server      string `json:"server"`
	By          string `json:"by"` // the name or the pattern in the server's tools block
	Description string `json:"description,omitempty"`
}

// listHidden prints the hidden tools: those that the store knows, and hidden names that it does not.
func (s *settings) listHidden(cmd *cobra.Command, server string) error {
	return s.withStore(cmd, false, func(ctx context.Context, config *configs.Config, db *store.Store) error {
		if server != "" {
			if err := among(allServers(config), nil, server); err != nil {
				return err
			}
		}
		defs, err := db.Tools(ctx)
		if err != nil {
			return err
		}
		rows := []hiddenRow{}
		t := &table{head: []string{"TOOL", "HIDDEN BY", "DESCRIPTION"}}
		add := func(id tool.ID, by, about string) {
			rows = append(rows, hiddenRow{id.String(), id.Server, by, about})
			t.add(id.String(), by, about)
		}
		for _, of := range config.Tools {
			if server != "" && of.Name != server {
				continue
			}
			seen := map[string]bool{}
			for _, def := range defs {
				if by := view.HiddenBy(of.Tools, def.ID.Name); by != nil && def.ID.Server == of.Name && def.ID.Kind == tool.KindTool {
					add(def.ID, by.Tool, summaryOf(def))
					seen[by.Tool] = true
				}
			}
			for _, o := range of.Tools {
				if o.Disabled && !seen[o.Tool] {
					add(tool.ID{Server: of.Name, Name: o.Tool}, o.Tool, "")
				}
			}
		}
		return show(cmd, rows, t, "no tool is hidden")
	})
}

// hiddenTools returns the IDs of the tools that the configuration hides by name.
func (d *workspace) hiddenTools() (names []string) {
	for _, of := range d.config.Tools {
		for _, o := range of.Tools {
			if o.Disabled {
				names = append(names, of.Name+"."+o.Tool)
			}
		}
	}
	return names
}
