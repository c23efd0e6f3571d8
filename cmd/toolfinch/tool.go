package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

func newTool(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tool",
		Short: "List, show, hide and unhide tools",
	}
	cmd.AddCommand(newToolList(s), newToolShow(s), newToolHide(s), newToolUnhide(s))
	return cmd
}

func newToolList(s *settings) *cobra.Command {
	var server, view string
	var hidden bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tools that clients can find",
		Long: `List shows the tools of a view: the name that clients see, the ID for configuration and
commands, and the first sentence of the description. It reads the store, and connects
only to servers that were never listed. --hidden lists the tools that the configuration
hides from every view.`,
		Example: `  toolfinch tool list
  toolfinch tool list --server github
  toolfinch tool list --hidden
  toolfinch tool list --json | jq -r '.[].id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if hidden {
				if view != "" {
					return &exitError{exitUsage, errors.New("a hidden tool is in no view: leave out --view")}
				}
				return s.listHidden(cmd, server)
			}
			return s.withView(cmd, view, func(d *workspace) error {
				tools, failed, err := d.tools(server)
				if err != nil {
					return err
				}
				err = show(cmd, toolRows(tools), toolTable(tools), "there are no tools")
				if err == nil && failed {
					err = &exitError{code: exitFailed}
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "list only the tools of this server")
	cmd.Flags().StringVar(&view, "view", "", "the view to look in (default: the one at /mcp)")
	cmd.Flags().BoolVar(&hidden, "hidden", false, "list the tools that toolfinch tool hide, or the configuration, hides")
	withJSON(cmd, "print a JSON array with the whole definitions")
	return cmd
}

func newToolShow(s *settings) *cobra.Command {
	var view string
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what a tool does, its arguments and its result",
		Long: `Show takes the ID of a tool, SERVER.TOOL, or the name that clients see. It prints what
the tool does and changes, its arguments as toolfinch call takes them, its structured
result, and the tools of its server that it needs and produces for; with --json its definition as clients see it.`,
		Example: `  toolfinch tool show github.search_code
  toolfinch tool show github_search_code --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withView(cmd, view, func(d *workspace) error { return d.showTool(args[0]) })
		},
	}
	cmd.Flags().StringVar(&view, "view", "", "the view to look in (default: the one at /mcp)")
	withJSON(cmd, "print the definition of the tool")
	return cmd
}

// showTool prints a tool's definition as clients see it.
func (d *workspace) showTool(name string) error {
	t, err := d.find(name)
	if err != nil {
		return err
	}
	out := d.cmd.OutOrStdout()
	if asJSON(d.cmd) {
		return printJSON(out, t.Listed())
	}
	if err := printTool(out, t); err != nil {
		return err
	}
	needs, producesFor := d.view.Catalog.Related(t)
	for _, n := range needs {
		fmt.Fprintf(out, "\nNeeds %s for %s", n.Name, strings.Join(n.For, ", "))
	}
	if len(producesFor) > 0 {
		fmt.Fprintf(out, "\nProduces what these need: %s", strings.Join(producesFor, ", "))
	}
	if len(needs)+len(producesFor) > 0 {
		fmt.Fprintln(out)
	}
	return nil
}

func toolTable(tools []*tool.Tool) *table {
	t := &table{head: []string{"NAME", "TOOL", "DESCRIPTION"}}
	for _, one := range tools {
		t.add(one.Name, one.Def.ID.String(), summaryOf(one.Def))
	}
	return t
}

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
			Annotations: rawjson.Member(t.Def.Raw, "annotations"), Definition: t.Listed(),
		}
	}
	return rows
}

// printTool prints a definition for people.
func printTool(w io.Writer, t *tool.Tool) error {
	title := ""
	if t.Def.Title != "" && t.Def.Title != t.Def.ID.Name {
		title = ": " + oneLine(t.Def.Title)
	}
	fmt.Fprintf(w, "%s%s\n", t.Def.ID, title)
	fmt.Fprintf(w, "clients see %s; %s\n\n", t.Name, effects(t.Def))
	if about := strings.TrimSpace(t.Def.Description); about != "" {
		fmt.Fprintf(w, "%s\n\n", about)
	}
	noFlags := func(string) bool { return false }
	if err := printFlags(w, t, toolFlags(t.Def.InputSchema, noFlags)); err != nil {
		return err
	}
	results := &table{indent: "  "}
	for _, f := range toolFlags(t.Def.OutputSchema, noFlags) {
		results.add(f.argument, f.shape.kind(), f.about)
	}
	if len(results.rows) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nStructured result:")
	return results.print(w)
}

func effects(def *tool.Def) string {
	var words []string
	if deprecated(def) {
		words = append(words, "deprecated")
	}
	hints := def.Annotations
	switch {
	case rawjson.Member(def.Raw, "annotations") == nil:
		words = append(words, "does not say whether it changes anything")
	case hints.ReadOnly:
		words = append(words, "only reads")
	case hints.Destructive:
		words = append(words, "may change and delete")
	default:
		words = append(words, "adds, and deletes nothing")
	}
	if hints.Idempotent && !hints.ReadOnly {
		words = append(words, "a second call with the same arguments changes nothing")
	}
	return strings.Join(words, "; ")
}
