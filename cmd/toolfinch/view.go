package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view"
)

func newView(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "view",
		Short: "List, add and remove the views of the configuration",
		Long: `A view is a server made of chosen tools: it is served at /mcp/NAME over HTTP, and
with serve --view NAME on standard input and output. Add and remove edit the
configuration file in place: comments, order and everything else stay.`,
	}
	cmd.AddCommand(newViewList(s), newViewAdd(s), newViewRemove(s))
	return cmd
}

// viewRow is a view as it is listed.
type viewRow struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Exposure    string   `json:"exposure_mode"`
	IncludeAll  bool     `json:"include_all"`
	Tools       []string `json:"tools"` // server.tool or globs; those switched off are not among them
	Exclude     []string `json:"exclude,omitempty"`
	Composites  []string `json:"composite_tools,omitempty"`
	Customs     []string `json:"custom_tools,omitempty"`
	RunScript   bool     `json:"run_script"`
	Gated       bool     `json:"gated"`
	ProxyTool   string   `json:"proxy_tool,omitempty"`
}

func newViewList(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the views of the configuration",
		Example: "  toolfinch view list\n  toolfinch view list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, _, err := s.load(cmd, nil)
			if err != nil {
				return err
			}
			rows := make([]viewRow, len(config.Views))
			for i, v := range config.Views {
				rows[i] = rowOfView(v)
			}
			t := &table{head: []string{"VIEW", "EXPOSURE", "TOOLS", "DESCRIPTION"}}
			for _, row := range rows {
				exposure := row.Exposure
				if row.Gated {
					exposure += ", gated"
				}
				t.add(row.Name, exposure, row.summary(), row.Description)
			}
			return show(cmd, asJSON, map[string]any{"views": rows}, t, "no views are configured: toolfinch view add makes one")
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func rowOfView(v view.Settings) viewRow {
	row := viewRow{
		Name: v.Name, Description: v.Description, Exposure: string(cmp.Or(v.Exposure, view.ExposureAuto)),
		IncludeAll: v.IncludeAll, Tools: []string{}, RunScript: v.RunScript != nil,
		Gated: v.Gating != nil, ProxyTool: v.ProxyTool,
	}
	for _, server := range v.Tools {
		for _, tool := range server.Tools {
			if !tool.Disabled {
				row.Tools = append(row.Tools, server.Name+"."+tool.Tool)
			}
		}
	}
	for _, pattern := range v.Exclude {
		row.Exclude = append(row.Exclude, pattern.Glob)
	}
	for _, c := range v.Composites {
		row.Composites = append(row.Composites, c.Name)
	}
	for _, c := range v.Customs {
		row.Customs = append(row.Customs, c.CalledAs())
	}
	return row
}

// summary is the tools of the view in a few words.
func (r viewRow) summary() string {
	const most = 3
	var parts []string
	if r.IncludeAll {
		parts = append(parts, "all")
		if len(r.Exclude) > 0 {
			parts[0] += " but " + strings.Join(r.Exclude, " ")
		}
	} else {
		parts = append(parts, r.Tools...)
	}
	parts = append(append(parts, r.Composites...), r.Customs...)
	if r.RunScript {
		parts = append(parts, "run_script")
	}
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("%d more", len(parts)-most))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

func newViewAdd(s *settings) *cobra.Command {
	var v configs.NewView
	cmd := s.editing("add", func(cmd *cobra.Command, path, name string) (string, error) {
		if err := s.knowsTools(cmd, v.Tools); err != nil {
			return "", err
		}
		if err := configs.AddView(path, name, v); err != nil {
			return "", err
		}
		s.warnOfView(cmd, name)
		return fmt.Sprintf("added view %q to %s", name, shown(path)), nil
	})
	cmd.Use += " {--tool SERVER.GLOB... | --include-all}"
	cmd.Short = "Add a view to the configuration"
	cmd.Long = `Add writes a view into the configuration, behind those that are there. What else a
view can do (names, arguments, hooks, composite tools) is written into the file. A tool that
its server does not have is refused; a pattern that matches nothing, and a server whose
tools are not known yet, are warnings.`
	cmd.Example = `  toolfinch view add code --tool github.search_code --tool 'github.issue_*' --exposure search
  toolfinch view add most --include-all --exclude 'github.delete_*'`
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if len(v.Tools) == 0 && !v.IncludeAll {
			return &exitError{exitUsage, errors.New("say what is in the view: --tool or --include-all")}
		}
		return nil
	}
	flags := cmd.Flags()
	flags.StringVar(&v.Description, "description", "", "what the view is for: told to clients")
	flags.StringVar(&v.Exposure, "exposure", "", "how its tools are shown, `MODE`: "+strings.Join(exposures(), ", ")+" (default auto)")
	flags.StringArrayVar(&v.Tools, "tool", nil, "a tool or a glob of tools, `SERVER.GLOB`; may be repeated")
	flags.BoolVar(&v.IncludeAll, "include-all", false, "all tools of all servers")
	flags.StringArrayVar(&v.Exclude, "exclude", nil, "what of those is left out, a `GLOB` over server.tool; may be repeated")
	return cmd
}

// exposures are the exposure modes that a view can have.
func exposures() []string {
	var modes []string
	for _, e := range view.Exposures {
		modes = append(modes, string(e))
	}
	return modes
}

// knowsTools refuses tools that their servers do not have, as far as the store knows
// the servers. What is a pattern, or not in the form server.tool, is not looked at.
func (s *settings) knowsTools(cmd *cobra.Command, ids []string) (err error) {
	config, err := s.read(cmd, nil)
	if err != nil {
		return nil // the edit says what is wrong
	}
	db, err := store.OpenReadOnly(cmd.Context(), config.Places().Store, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	defs, err := db.Tools(cmd.Context())
	if err != nil {
		return err
	}
	known := map[string][]string{} // names of tools by server
	for _, def := range defs {
		if def.ID.Kind == tool.KindTool {
			known[def.ID.Server] = append(known[def.ID.Server], def.ID.Name)
		}
	}
	for _, id := range ids {
		server := ""
		for _, name := range serverNames(config) {
			if strings.HasPrefix(id, name+".") && len(name) > len(server) {
				server = name
			}
		}
		name, names := strings.TrimPrefix(id, server+"."), known[server]
		if names != nil && !strings.ContainsAny(name, `*?[\`) && !slices.Contains(names, name) {
			return &exitError{exitUsage, fmt.Errorf("server %q has no tool %q%s", server, name, orNearest(name, names))}
		}
	}
	return nil
}

// warnOfView says what is wrong with a view over what the store knows. The view is
// written already, so that failing to look costs the warnings alone.
func (s *settings) warnOfView(cmd *cobra.Command, name string) {
	config, err := s.read(cmd, nil)
	if err != nil {
		return // a variable may be unset here
	}
	_ = s.withDesk(cmd, config, slog.New(slog.DiscardHandler), true, func(d *desk) error {
		for _, problem := range d.Problems() {
			if problem.View == name {
				problem.View = ""
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", problem.Error())
			}
		}
		if config.Root() == configs.RootViews && len(config.Views) == 1 {
			fmt.Fprintln(cmd.ErrOrStderr(), "/mcp, and serve without --view, now serve the views and no more; default_view: all serves everything there")
		}
		return nil
	})
}

func newViewRemove(s *settings) *cobra.Command {
	cmd := s.editing("remove", func(_ *cobra.Command, path, name string) (string, error) {
		return fmt.Sprintf("removed view %q from %s", name, shown(path)), configs.RemoveView(path, name)
	})
	cmd.Short = "Remove a view from the configuration"
	cmd.Long = `Remove takes a view out of the configuration, with the comments directly above it.`
	cmd.Example = "  toolfinch view remove code"
	return cmd
}
