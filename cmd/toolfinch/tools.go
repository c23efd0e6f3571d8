package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"toolfinch/rawjson"
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
			return s.withView(cmd, view, func(d *desk) error {
				tools, failed, err := d.tools(server)
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
		t.add(one.Name, one.Def.ID.String(), summaryOf(one.Def))
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
			Annotations: rawjson.Member(t.Def.Raw, "annotations"), Definition: t.Listed(),
		}
	}
	return rows
}
