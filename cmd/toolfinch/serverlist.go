package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/upstream"
)

func newServerList(s *settings) *cobra.Command {
	var long bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the configured servers",
		Long: `List shows every configured server, with its counts at the last listing. If a
toolfinch runs with this configuration, over stdio or HTTP, list asks it for the present
states. RESOURCES includes resource templates and skills. FAULTS counts malformed and
held definitions (toolfinch pins). It connects to nothing: toolfinch reindex lists all
servers again, toolfinch validate checks them.`,
		Example: `  toolfinch server list
  toolfinch server list --json | jq -r '.servers[] | select(.enabled) | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.showServers(cmd, nil, long) },
	}
	withJSON(cmd, "print one JSON object")
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show each server as toolfinch server show does")
	_ = cmd.Flags().MarkHidden("long")
	return cmd
}

func newServerShow(s *settings) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "show [NAME]...",
		Short: "Show a server: its state, its faults, and how it is started",
		Long: `Show prints the state of servers, by default of all, warnings about their definitions,
and how each is started: program, absolute paths, folder, and the names of variables,
never their values.`,
		Example: `  toolfinch server show github
  toolfinch server show --json`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.showServers(cmd, args, true) },
	}, "print one JSON object")
}

// showServers prints the named servers, by default all: a table or, with long, the details of each.
func (s *settings) showServers(cmd *cobra.Command, names []string, long bool) error {
	return s.withStore(cmd, false, func(ctx context.Context, config *configs.Config, db *store.Store) error {
		rows, err := serverRows(ctx, config, db)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			if err := among(allServers(config), nil, names...); err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(r serverRow) bool { return !slices.Contains(names, r.Name) })
		}
		processes, _ := askLive(ctx, config.DataDir, config.Path)
		source := "as last indexed: no toolfinch runs with this configuration"
		if len(processes) > 0 {
			source = liveStates(rows, processes)
		}
		if long {
			warnings, err := proxy.Warnings(ctx, db, config)
			if err != nil {
				return err
			}
			for i := range rows {
				rows[i].Warnings = warningsOf(warnings, rows[i].Name)
			}
			if err := started(rows, config); err != nil {
				return err
			}
		}
		if asJSON(cmd) {
			running := []processRow{}
			for _, one := range processes {
				running = append(running, processRow{one.PID, one.Configuration, one.At, one.Started})
			}
			return printJSON(cmd.OutOrStdout(), map[string]any{"servers": rows, "source": map[bool]string{true: "live", false: "index"}[len(running) > 0], "running": running})
		}
		if len(rows) > 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), source)
		}
		if long {
			return printLong(cmd.OutOrStdout(), rows)
		}
		return show(cmd, nil, serverTable(rows), "no server is configured: toolfinch server add NAME COMMAND..., or toolfinch setup")
	})
}

// serverRow describes a server in the configuration and the store. Arguments and URLs are only shown with --long;
// likely secrets are ***.
type serverRow struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Enabled     bool       `json:"enabled"`
	Transport   string     `json:"transport,omitempty"` // "" for a disabled server
	Command     string     `json:"command,omitempty"`
	Host        string     `json:"host,omitempty"`
	Protocol    string     `json:"protocol,omitempty"` // its era, once known
	Tools       int        `json:"tools"`
	Prompts     int        `json:"prompts"`
	Resources   int        `json:"resources"`
	Templates   int        `json:"templates"`
	Skills      int        `json:"skills,omitempty"`
	LeftOut     int        `json:"left_out,omitempty"` // malformed definitions
	Mended      int        `json:"mended,omitempty"`   // malformed definitions that are served mended
	Held        int        `json:"held,omitempty"`     // definitions waiting for approval
	Warnings    []string   `json:"warnings,omitempty"` // about its definitions; only with --long
	Listed      *time.Time `json:"listed"`             // time of the last list; null: never
	Fault       string     `json:"fault,omitempty"`    // why its settings cannot be used
	Leader      string     `json:"leader,omitempty"`   // the replica that lists the server
	// State and Since come from the running toolfinch; empty if none runs.
	State upstream.State `json:"state,omitempty"`
	Since *time.Time     `json:"since,omitempty"`
	// Error and Failed are of its last failure, unless it was listed since.
	Error  string     `json:"error,omitempty"`
	Failed *time.Time `json:"failed_at,omitempty"`

	*launch
}

// launch says how a server is started or reached.
type launch struct {
	Runs      []string `json:"runs,omitempty"` // program and arguments, relative paths made absolute
	URL       string   `json:"url,omitempty"`
	Cwd       string   `json:"cwd,omitempty"`
	Gets      []string `json:"env,omitempty"`       // names of its variables
	Inherits  []string `json:"inherits,omitempty"`  // patterns of variables beside the minimal ones
	Touches   string   `json:"sandbox,omitempty"`   // what its process may access; "" for everything
	Variables []string `json:"variables,omitempty"` // variables that its entry uses
	Headers   []string `json:"headers,omitempty"`   // names only
	Stderr    string   `json:"stderr,omitempty"`    // destination
}

// serverRows returns the enabled servers and then the disabled servers, each in file order.
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
			return nil // the server is no longer in the configuration
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
	failures, err := db.Failures(ctx)
	if err != nil {
		return nil, err
	}
	for i := range failures {
		if row := at(failures[i].Server); row != nil && row.Enabled {
			row.Error, row.Failed = failures[i].Reason, &failures[i].At
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
		case tool.KindSkill:
			row.Skills++
		}
	}
	pins, err := proxy.ReadPins(ctx, db, config, nil)
	if err != nil {
		return nil, err
	}
	for _, report := range pins.Reports {
		if row := at(report.ID.Server); row != nil && !report.WasRejected() {
			row.Held++
		}
	}
	if all := db.Replicas(); all != nil { // nil for a store without replicas
		replicas, err := all.All(ctx)
		if err != nil {
			return nil, err
		}
		for _, one := range replicas {
			for _, server := range one.Leads {
				if row := at(server); row != nil {
					row.Leader = one.Name
				}
			}
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
		row.Host = u.Host // without user and password
	}
	return row
}

// faults says why the server is left out, and how many definitions are malformed.
func (r serverRow) faults() string {
	var parts []string
	if r.Fault != "" {
		parts = append(parts, r.Fault)
	} else if r.Error != "" {
		why := strings.TrimPrefix(r.Error, "upstream "+r.Name+": ")
		if r.Failed != nil {
			why = "failed " + minute(*r.Failed) + ": " + why
		}
		parts = append(parts, why)
	}
	if r.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("%d left out", r.LeftOut))
	}
	if r.Mended > 0 {
		parts = append(parts, fmt.Sprintf("%d mended", r.Mended))
	}
	if r.Held > 0 {
		parts = append(parts, fmt.Sprintf("%d held", r.Held))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func serverTable(rows []serverRow) *table {
	t := &table{head: []string{"SERVER", "TRANSPORT", "AT", "TOOLS", "PROMPTS", "RESOURCES", "LISTED", "ENABLED"}}
	running := slices.ContainsFunc(rows, func(r serverRow) bool { return r.State != "" })
	if running {
		t.head = append(t.head, "NOW")
	}
	// The column also says why a server is left out.
	faulty := slices.ContainsFunc(rows, func(r serverRow) bool { return r.faults() != "-" })
	if faulty {
		t.head = append(t.head, "FAULTS")
	}
	replicas := slices.ContainsFunc(rows, func(r serverRow) bool { return r.Leader != "" })
	if replicas {
		t.head = append(t.head, "LISTED BY")
	}
	for _, row := range rows {
		tools, prompts, resources, listed := "-", "-", "-", "never"
		if row.Listed != nil {
			tools, prompts, resources = strconv.Itoa(row.Tools), strconv.Itoa(row.Prompts), strconv.Itoa(row.Resources+row.Templates+row.Skills)
			listed = minute(*row.Listed)
		}
		enabled := "yes"
		if !row.Enabled {
			enabled = "no"
		}
		cells := []string{row.Name, cmp.Or(row.Transport, "-"), cmp.Or(row.Command, row.Host, "-"), tools, prompts, resources, listed, enabled}
		if running {
			cells = append(cells, cmp.Or(string(row.State), "-"))
		}
		if faulty {
			cells = append(cells, row.faults())
		}
		if replicas {
			cells = append(cells, orDash(row.Leader))
		}
		t.add(cells...)
	}
	t.paint = func(row, column int) string {
		switch {
		case !rows[row].Enabled:
			return faint
		case column == 6 && rows[row].Listed == nil:
			return yellow
		case column == 8 && running && (rows[row].State == upstream.StateFailed || rows[row].State == upstream.StateLogin):
			return red
		}
		return ""
	}
	return t
}

// liveStates copies the servers' states in the process that started last into the rows. It returns a description of
// this process.
func liveStates(rows []serverRow, processes []running) (source string) {
	newest := processes[0]
	for _, server := range newest.Servers {
		for i := range rows {
			if rows[i].Name == server.Name {
				rows[i].State, rows[i].Since = upstream.State(server.State), &server.Since
				if rows[i].Error, rows[i].Failed = server.Error, nil; !server.Failed.IsZero() {
					rows[i].Failed = &server.Failed
				}
			}
		}
	}
	source = fmt.Sprintf("live, from the toolfinch that runs as process %d (%s)", newest.PID, newest.At)
	if more := len(processes) - 1; more > 0 {
		source += fmt.Sprintf("; %d more run with this configuration", more)
	}
	return source
}

// processRow identifies a running toolfinch.
type processRow struct {
	PID           int       `json:"pid"`
	Configuration string    `json:"configuration"`
	At            string    `json:"at"`
	Started       time.Time `json:"started"`
}

func started(rows []serverRow, config *configs.Config) error {
	written, err := configs.Servers(config.Path)
	if err != nil {
		return err
	}
	for i := range rows {
		at := slices.IndexFunc(written, func(s clients.Server) bool { return s.Name == rows[i].Name })
		if at < 0 {
			continue // the server is not in the file
		}
		raw := written[at]
		l := &launch{Variables: configs.Named(textsOf(raw)...), Gets: slices.Sorted(maps.Keys(raw.Env)), Headers: slices.Sorted(maps.Keys(raw.Headers))}
		l.Runs, l.URL = configs.Shown(raw)
		if settings := config.Server(raw.Name); settings != nil && raw.Command != "" {
			l.Cwd, l.Inherits = settings.Cwd, settings.InheritEnv
			if settings.Sandbox.On() {
				l.Touches = settings.Sandbox.String()
			}
			l.Stderr = "the log of toolfinch, at level info; errors have its last lines"
			for n, word := range l.Runs {
				l.Runs[n] = clients.Absolute(word, l.Cwd)
			}
			l.Runs[0] = settings.Command // relative to the configuration's folder, not to l.Cwd
			if found, err := exec.LookPath(settings.Command); err == nil {
				l.Runs[0] = found
			}
		}
		rows[i].launch = l
	}
	return nil
}

// printLong prints the details of each server, one below the other.
func printLong(w io.Writer, rows []serverRow) error {
	for i, row := range rows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t := &table{indent: "  ", whole: true}
		line := func(what, text string) {
			if text != "" {
				t.add(what, text)
			}
		}
		if !row.Enabled {
			line("disabled", "yes")
		}
		line("about", row.Description)
		line("now", string(row.State))
		if faults := row.faults(); faults != "-" {
			line("faults", faults)
		}
		for _, warning := range row.Warnings {
			line("warning", warning)
		}
		if row.Listed != nil {
			line("listed", fmt.Sprintf("%s, %s, %s", minute(*row.Listed), plural(row.Tools, "tool"), row.Protocol))
		}
		if l := row.launch; l != nil {
			line("runs", strings.Join(l.Runs, " "))
			line("url", l.URL)
			line("in", l.Cwd)
			line("env", strings.Join(l.Gets, ", "))
			line("inherits", strings.Join(l.Inherits, ", "))
			line("sandbox", l.Touches)
			line("headers", strings.Join(l.Headers, ", "))
			line("variables", strings.Join(l.Variables, ", "))
			line("stderr", l.Stderr)
		}
		fmt.Fprintln(w, row.Name)
		if err := t.print(w); err != nil {
			return err
		}
	}
	return nil
}
