package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"toolfinch/proxy"
)

func newReindex(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reindex",
		Short: "Connect to every server once and bring the store up to date",
		Long: `Reindex connects to all configured servers in parallel, stores what their tools
are now, and prints a row for each. OTHER counts its prompts, resources and
resource templates. Servers that fail keep their last known tools.

Exit codes: 0 all servers succeeded, 1 some failed, 2 bad configuration.`,
		Example: `  toolfinch reindex
  toolfinch reindex --json | jq '.servers[] | select(.error)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			config, log, err := s.load(cmd, nil)
			if err != nil {
				return err
			}
			p, err := proxy.Open(cmd.Context(), config, version, log)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, p.Close()) }()
			bar := newBar(cmd.ErrOrStderr(), len(config.Servers))
			rows := p.Refresh(cmd.Context(), bar.step)
			bar.clear()
			if err := embedTools(cmd, p); err != nil {
				return err
			}
			if asJSON {
				err = printRowsJSON(cmd.OutOrStdout(), rows)
			} else {
				err = printRows(cmd.OutOrStdout(), rows)
			}
			if err != nil {
				return err
			}
			for _, row := range rows {
				if row.Err != nil {
					return &exitError{code: exitFailed}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printRows(w io.Writer, rows []proxy.Refreshed) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tTOOLS\tADDED\tCHANGED\tREMOVED\tOTHER\tTIME\tERROR")
	for _, row := range rows {
		tools, others, problem := fmt.Sprint(row.Diff.Total), fmt.Sprint(row.Diff.Others), ""
		if row.Err != nil {
			tools, others, problem = "-", "-", oneLine(row.Err.Error())
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", row.Server, tools,
			len(row.Diff.Added), len(row.Diff.Changed), len(row.Diff.Removed), others, row.Took.Round(time.Millisecond), problem)
	}
	return table.Flush()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func printRowsJSON(w io.Writer, rows []proxy.Refreshed) error {
	type row struct {
		Server  string `json:"server"`
		Tools   int    `json:"tools"`
		Added   int    `json:"added"`
		Changed int    `json:"changed"`
		Removed int    `json:"removed"`
		Others  int    `json:"others"`
		Millis  int64  `json:"ms"`
		Error   string `json:"error,omitempty"`
	}
	out := struct {
		Servers []row `json:"servers"`
	}{Servers: []row{}}
	for _, r := range rows {
		line := row{Server: r.Server, Tools: r.Diff.Total, Added: len(r.Diff.Added), Changed: len(r.Diff.Changed),
			Removed: len(r.Diff.Removed), Others: r.Diff.Others, Millis: r.Took.Milliseconds()}
		if r.Err != nil {
			line.Error = r.Err.Error()
		}
		out.Servers = append(out.Servers, line)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// bar is a progress bar, drawn on a terminal only.
type bar struct {
	w           io.Writer
	done, total int
}

func newBar(w io.Writer, total int) *bar {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) || total == 0 {
		w = nil
	}
	b := &bar{w: w, total: total}
	b.draw("")
	return b
}

func (b *bar) step(row proxy.Refreshed) {
	b.done++
	b.draw(row.Server)
}

func (b *bar) draw(last string) {
	if b.w == nil {
		return
	}
	const width = 30
	filled := width * b.done / b.total
	fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %d/%d %s", strings.Repeat("#", filled), strings.Repeat(".", width-filled), b.done, b.total, last)
}

func (b *bar) clear() {
	if b.w != nil {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
