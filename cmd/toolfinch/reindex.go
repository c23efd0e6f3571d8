package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/proxy"
)

func newReindex(s *settings) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:         "reindex [SERVER...]",
		Annotations: map[string]string{whenInterrupted: "what was learned before is kept"},
		Short:       "Connect to every server once and bring the store up to date",
		Long: `Reindex connects to all configured servers, or to the named ones, stores their present
tools, and prints a row for each server. OTHER counts prompts, resources and resource
templates. A server that fails keeps its last known tools.

Exit codes: 0 all servers succeeded, 1 some failed or were not written to the store,
2 bad configuration.`,
		Example: `  toolfinch reindex
  toolfinch reindex github
  toolfinch reindex --json | jq '.servers[] | select(.error)'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return s.reindex(cmd, names)
		},
	}, "print one JSON object")
}

// reindex lists the named servers, by default all, and brings the store up to date.
func (s *settings) reindex(cmd *cobra.Command, names []string) error {
	config, log, err := s.loadStored(cmd)
	if err == nil {
		names, err = namedServers(config, names)
	}
	if err != nil {
		return err
	}
	return s.withWorkspace(cmd, config, log, false, func(d *workspace) error {
		if durable, err := d.Learn(cmd.Context()); err != nil || !durable {
			return cmp.Or(err, fmt.Errorf("the store in %s cannot be opened: nothing would be kept", config.Places().StoreName()))
		}
		rows, t := refreshed(d.refresh(cmd.Context(), names...))
		interrupted := d.embed()
		if err := show(cmd, map[string]any{"servers": rows}, t, "no server is configured"); err != nil {
			return err
		}
		for _, row := range rows {
			if row.Held > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", row.Server, heldText(row.Held))
			}
		}
		if len(names) == 0 {
			names = []string{""} // the warnings of all servers
		}
		for _, name := range names {
			for _, line := range warningsOf(d.Warnings(), name) {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", line)
			}
		}
		failed := slices.ContainsFunc(rows, func(row refreshedRow) bool { return row.Error != "" })
		if interrupted == nil && failed {
			return &exitError{code: exitFailed}
		}
		return interrupted
	})
}

// failureOf returns why a server's definitions in the store are outdated; nil if they are current.
func failureOf(row proxy.Refreshed) error {
	return cmp.Or(row.Err, row.Lost)
}

type refreshedRow struct {
	Server  string `json:"server"`
	Tools   int    `json:"tools"`
	Added   int    `json:"added"`
	Changed int    `json:"changed"`
	Removed int    `json:"removed"`
	Others  int    `json:"others"`
	Held    int    `json:"held,omitempty"` // definitions waiting for approval
	Millis  int64  `json:"ms"`
	Error   string `json:"error,omitempty"`
}

func refreshed(all []proxy.Refreshed) ([]refreshedRow, *table) {
	rows := []refreshedRow{}
	t := &table{head: []string{"SERVER", "TOOLS", "ADDED", "CHANGED", "REMOVED", "OTHER", "TIME", "ERROR"}, whole: true}
	for _, r := range all {
		row := refreshedRow{Server: r.Server, Tools: r.Diff.Total, Added: len(r.Diff.Added), Changed: len(r.Diff.Changed),
			Removed: len(r.Diff.Removed), Others: r.Diff.Others, Held: r.Held, Millis: r.Took.Milliseconds()}
		tools, others := strconv.Itoa(row.Tools), strconv.Itoa(row.Others)
		if err := failureOf(r); err != nil {
			tools, others, row.Error = "-", "-", err.Error()
		}
		rows = append(rows, row)
		t.add(row.Server, tools, strconv.Itoa(row.Added), strconv.Itoa(row.Changed), strconv.Itoa(row.Removed),
			others, r.Took.Round(time.Millisecond).String(), row.Error)
	}
	return rows, t
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

type bar struct {
	w           io.Writer // the terminal; nil if there is none
	done, total int
	waiting     []string // servers that have not answered
}

func newBar(w io.Writer, total int) *bar {
	b := &bar{total: total}
	if screenOf(w).terminal && total > 0 {
		b.w = unfiltered(w)
	}
	b.draw("")
	return b
}

func (b *bar) step(row proxy.Refreshed) {
	b.done++
	b.waitFor(slices.DeleteFunc(b.waiting, func(name string) bool { return name == row.Server }))
}

// waitFor draws the bar with the names of the servers that have not answered.
func (b *bar) waitFor(servers []string) {
	b.waiting = slices.Clone(servers)
	text := ""
	if len(servers) > 0 {
		text = "waiting for " + strings.Join(servers, ", ")
	}
	b.draw(text)
}

func (b *bar) draw(last string) {
	if b.w == nil {
		return
	}
	const width = 30
	filled := width * b.done / b.total
	fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %d/%d %s", strings.Repeat("#", filled), strings.Repeat(".", width-filled), b.done, b.total, cut(visible(oneLine(last)), width+8))
}

func (b *bar) clear() {
	if b.w != nil {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
