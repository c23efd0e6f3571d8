package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/upstream"
)

func newServers(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "servers",
		Short: "List the configured servers and what is known of them",
		Long: `Servers lists every configured server, with what it had when it was listed last.
RESOURCES counts resource templates too, FAULTS, shown where there are any, malformed
definitions: clients would refuse the whole list. Nothing is connected: toolfinch reindex asks
all servers anew, toolfinch validate checks them.`,
		Example: `  toolfinch servers
  toolfinch servers --json | jq -r '.servers[] | select(.enabled) | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd, false, func(ctx context.Context, config *configs.Config, db *store.Store) error {
				rows, err := serverRows(ctx, config, db)
				if err != nil {
					return err
				}
				return show(cmd, asJSON, map[string]any{"servers": rows}, serverTable(rows), "no server is configured")
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// serverRow is a server as it is configured, and what the store knows of it.
// Neither arguments nor URLs are in it: they may hold secrets.
type serverRow struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Enabled     bool       `json:"enabled"`
	Transport   string     `json:"transport,omitempty"` // "" of a disabled server
	Command     string     `json:"command,omitempty"`
	Host        string     `json:"host,omitempty"`
	Protocol    string     `json:"protocol,omitempty"` // its era, once it is known
	Tools       int        `json:"tools"`
	Prompts     int        `json:"prompts"`
	Resources   int        `json:"resources"`
	Templates   int        `json:"templates"`
	LeftOut     int        `json:"left_out,omitempty"` // malformed definitions that are not served
	Mended      int        `json:"mended,omitempty"`   // malformed definitions that are served mended
	Listed      *time.Time `json:"listed"`             // null: never
	Fault       string     `json:"fault,omitempty"`    // why it cannot be used as it is configured
}

// serverRows returns the enabled servers and then the others, both in file order.
func serverRows(ctx context.Context, config *configs.Config, db *store.Store) ([]serverRow, error) {
	rows := []serverRow{}
	for _, s := range config.Servers {
		rows = append(rows, configuredRow(s))
	}
	for _, name := range config.Disabled {
		rows = append(rows, serverRow{Name: name})
	}
	at := func(server string) *serverRow {
		i := slices.IndexFunc(rows, func(r serverRow) bool { return r.Name == server })
		if i < 0 {
			return nil // it has left the configuration
		}
		return &rows[i]
	}
	servers, err := db.Servers(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		if row := at(s.Name); row != nil {
			row.Protocol, row.Listed = s.Era, &s.UpdatedAt
			row.LeftOut, row.Mended = s.LeftOut, s.Mended
		}
	}
	defs, err := db.Tools(ctx)
	if err != nil {
		return nil, err
	}
	for _, def := range defs {
		row := at(def.ID.Server)
		if row == nil {
			continue
		}
		switch def.ID.Kind {
		case tool.KindTool:
			row.Tools++
		case tool.KindPrompt:
			row.Prompts++
		case tool.KindResource:
			row.Resources++
		case tool.KindTemplate:
			row.Templates++
		}
	}
	return rows, nil
}

func configuredRow(s upstream.Settings) serverRow {
	row := serverRow{Name: s.Name, Description: s.Description, Enabled: true, Fault: s.Fault, Transport: string(cmp.Or(s.Transport, upstream.TransportAuto))}
	if s.Command != "" {
		row.Transport = string(upstream.TransportStdio)
		row.Command = filepath.Base(s.Command)
	} else if u, err := url.Parse(s.URL); err == nil {
		row.Host = u.Host // without the user and password
	}
	return row
}

// faults says why the server is left out, and how many definitions are malformed.
func (r serverRow) faults() string {
	var parts []string
	if r.Fault != "" {
		parts = append(parts, r.Fault)
	}
	if r.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("%d left out", r.LeftOut))
	}
	if r.Mended > 0 {
		parts = append(parts, fmt.Sprintf("%d mended", r.Mended))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func serverTable(rows []serverRow) *table {
	t := &table{head: []string{"SERVER", "TRANSPORT", "AT", "TOOLS", "PROMPTS", "RESOURCES", "LISTED", "ENABLED"}}
	// Beside malformed definitions, why a server is left out.
	faulty := slices.ContainsFunc(rows, func(r serverRow) bool { return r.faults() != "-" })
	if faulty {
		t.head = append(t.head, "FAULTS")
	}
	for _, row := range rows {
		tools, prompts, resources, listed := "-", "-", "-", "never"
		if row.Listed != nil {
			tools, prompts, resources = strconv.Itoa(row.Tools), strconv.Itoa(row.Prompts), strconv.Itoa(row.Resources+row.Templates)
			listed = row.Listed.Local().Format("2006-01-02 15:04")
		}
		enabled := "yes"
		if !row.Enabled {
			enabled = "no"
		}
		cells := []string{row.Name, cmp.Or(row.Transport, "-"), cmp.Or(row.Command, row.Host, "-"), tools, prompts, resources, listed, enabled}
		if faulty {
			cells = append(cells, row.faults())
		}
		t.add(cells...)
	}
	t.paint = func(row, column int) string {
		switch {
		case !rows[row].Enabled:
			return faint
		case column == 6 && rows[row].Listed == nil:
			return yellow
		}
		return ""
	}
	return t
}
