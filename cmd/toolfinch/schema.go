package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

func newSchema(s *settings) *cobra.Command {
	var server, view string
	var asJSON, asText bool
	cmd := &cobra.Command{
		Use:   "schema [SERVER.TOOL]",
		Short: "Print the definition of a tool as clients see it",
		Long: `Schema prints what a client is told of a tool: its name, description, input schema
and all else. On a terminal, or with --text, it prints them for people, the arguments as
toolfinch call takes them. In a pipe, or with --json, it prints the JSON, byte for byte as
the server sent it where the configuration does not change it. The tool is named by its
ID or by the name that clients see. With --server it prints the tools of a server; with
--json and no tool, an array of all.`,
		Example: `  toolfinch schema github.search_code
  toolfinch schema github_search_code | jq .inputSchema
  toolfinch schema --server github
  toolfinch schema --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && server != "":
				return &exitError{exitUsage, errors.New("name a tool or --server, not both\nSee: toolfinch schema --help")}
			case asJSON && asText:
				return &exitError{exitUsage, errors.New("--json and --text say how to print: leave out one")}
			case len(args) == 0 && server == "" && !asJSON:
				return &exitError{exitUsage, errors.New("name a tool, --server, or --json for all tools\nSee: toolfinch schema --help")}
			}
			readable := asText || !asJSON && screenOf(cmd.OutOrStdout()).terminal
			return s.withView(cmd, view, func(d *desk) error {
				if len(args) == 1 {
					t, err := d.find(args[0])
					if err != nil {
						return err
					}
					if readable {
						return printTool(cmd.OutOrStdout(), t)
					}
					return printJSON(cmd.OutOrStdout(), t.Listed())
				}
				tools, failed, err := d.tools(server)
				if err != nil {
					return err
				}
				if err := printDefinitions(cmd.OutOrStdout(), tools, readable); err != nil || !failed {
					return err
				}
				return &exitError{code: exitFailed}
			})
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "print all tools of this server")
	cmd.Flags().StringVar(&view, "view", "", "the view to look in (default: that of clients that name none)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, also on a terminal; without a tool, of all tools")
	cmd.Flags().BoolVar(&asText, "text", false, "print text for people, also in a pipe")
	return cmd
}

func printDefinitions(w io.Writer, tools []*tool.Tool, readable bool) error {
	all := []json.RawMessage{}
	for i, t := range tools {
		all = append(all, t.Listed())
		if !readable {
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := printTool(w, t); err != nil {
			return err
		}
	}
	if readable {
		return nil
	}
	return printJSON(w, all)
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

// effects is what a tool says that it does to the world.
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
