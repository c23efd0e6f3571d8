package main

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"
)

func newSchema(s *settings) *cobra.Command {
	var server, view string
	var all bool
	cmd := &cobra.Command{
		Use:   "schema [SERVER.TOOL]",
		Short: "Print the definition of a tool as clients see it",
		Long: `Schema prints what a client is told of a tool, as JSON: its name, description, input
schema and all else, byte for byte as its server sent it where the configuration does
not change it. The tool is named by its ID or by the name that clients see. Without a
tool it prints an array: of the tools of a server, or with --json of all.`,
		Example: `  toolfinch schema github.search_code
  toolfinch schema github_search_code | jq .inputSchema
  toolfinch schema --server github
  toolfinch schema --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && server != "":
				return &exitError{exitUsage, errors.New("name a tool or --server, not both\nSee: toolfinch schema --help")}
			case len(args) == 0 && server == "" && !all:
				return &exitError{exitUsage, errors.New("name a tool, --server, or --json for all tools\nSee: toolfinch schema --help")}
			}
			return s.withView(cmd, view, func(d *desk) error {
				if len(args) == 1 {
					t, err := d.find(args[0])
					if err != nil {
						return err
					}
					return printJSON(cmd.OutOrStdout(), t.Listed())
				}
				tools, failed, err := d.tools(server)
				if err != nil {
					return err
				}
				all := []json.RawMessage{}
				for _, t := range tools {
					all = append(all, t.Listed())
				}
				if err := printJSON(cmd.OutOrStdout(), all); err != nil || !failed {
					return err
				}
				return &exitError{code: exitFailed}
			})
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "print all tools of this server")
	cmd.Flags().StringVar(&view, "view", "", "the view to look in (default: that of clients that name none)")
	cmd.Flags().BoolVar(&all, "json", false, "print all tools; what is printed is always JSON")
	return cmd
}
