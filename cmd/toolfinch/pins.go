package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/printable"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/pins"
)

func newPins(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pins [SERVER | SERVER.NAME]...",
		Short: "Show and approve what servers changed after their first list",
		Long: `The first list of a server is its baseline. What it changes or adds later, in its
tools, prompts, resource templates, skills or instructions, is held until you approve
it: it is not listed, found, called or read. Pins lists what is held, with warnings; with names, it
shows each changed field, word by word: [-removed-] and {+added+}. Invisible characters
appear as \u{e0041}. A running toolfinch applies your decision within a second.

The server's key changes sets another policy: allow holds nothing, additive lets new
optional parameters pass, approve_all_first holds the first list, too.`,
		Example: `  toolfinch pins
  toolfinch pins github
  toolfinch pins approve github`,
		Args: cobra.ArbitraryArgs,
	}
	changes := newPinsDiff(s)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return runAs(cmd, changes, args)
		}
		return s.listPins(cmd)
	}
	withJSON(cmd, "print one JSON object")
	cmd.AddCommand(newPinsDecide(s, true), newPinsDecide(s, false))
	cmd.AddCommand(unlisted(changes)...)
	return cmd
}

func newPinsDiff(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [SERVER | SERVER.NAME]...",
		Short: "Show what changed, field by field",
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withPins(cmd, false, func(_ context.Context, _ *configs.Config, _ *store.Pins, all proxy.Pins) error {
				chosen, err := choosePins(all.Reports, args, len(args) == 0)
				if err != nil {
					return err
				}
				if len(chosen) == 0 {
					_, err := fmt.Fprintln(cmd.ErrOrStderr(), nothingHeld)
					return err
				}
				return printDiffs(cmd.OutOrStdout(), all, chosen)
			})
		},
	}
}

const nothingHeld = "nothing is held: every server has what you approved"

func newPinsDecide(s *settings, approve bool) *cobra.Command {
	var yes, everything bool
	cmd := &cobra.Command{
		Use:   "approve [SERVER | SERVER.NAME]...",
		Short: "Approve held definitions, after showing their changes",
		Long: `Approve shows what changed and asks. An approved definition is served as shown, and
later changes are compared with it. If the server has changed it again meanwhile,
nothing is approved.`,
		Example: `  toolfinch pins approve github
  toolfinch pins approve github.create_issue --yes
  toolfinch pins approve --all`,
		Annotations: map[string]string{whenInterrupted: "nothing was decided"},
	}
	if !approve {
		cmd.Use, cmd.Short = "reject [SERVER | SERVER.NAME]...", "Keep definitions held, without mention until they change"
		cmd.Long = `Reject keeps definitions held. Answers, logs and counts no longer mention them until the
server changes them again. You can approve them later.`
		cmd.Example = `  toolfinch pins reject github.create_issue`
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if everything == (len(args) > 0) {
			return &exitError{exitUsage, errors.New("name servers or definitions, or say --all")}
		}
		return s.withPins(cmd, true, func(ctx context.Context, config *configs.Config, stored *store.Pins, all proxy.Pins) (failed error) {
			chosen, err := choosePins(all.Reports, args, everything)
			if err != nil {
				return err
			}
			if !approve {
				chosen = slices.DeleteFunc(chosen, func(r pins.Report) bool { return r.WasRejected() })
			}
			if len(chosen) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), nothingHeld)
				return err
			}
			out := cmd.OutOrStdout()
			if approve {
				if err := printDiffs(out, all, chosen); err != nil {
					return err
				}
			}
			if approve && !yes {
				agreed, err := ask(cmd, fmt.Sprintf("Approve %s?", countOfPins(chosen)))
				switch {
				case err != nil:
					return err
				case !agreed:
					return &exitError{exitFailed, errors.New("nothing was approved")}
				}
			}
			log, err := openAudit(config, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer func() { failed = errors.Join(failed, log.Close()) }()
			if err := proxy.Decide(byCommand(ctx), stored, approve, chosen, log.Record); err != nil {
				if errors.Is(err, store.ErrStale) {
					err = fmt.Errorf("%w: nothing was decided; look at it again: toolfinch pins", err)
				}
				return err
			}
			done := "approved"
			if !approve {
				done = "rejected"
			}
			_, err = fmt.Fprintf(out, "%s %s\n", done, countOfPins(chosen))
			return err
		})
	}
	if approve {
		cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	}
	cmd.Flags().BoolVar(&everything, "all", false, "all that is held")
	return cmd
}

func (s *settings) withPins(cmd *cobra.Command, writes bool, do func(context.Context, *configs.Config, *store.Pins, proxy.Pins) error) error {
	return s.withStore(cmd, writes, func(ctx context.Context, config *configs.Config, db *store.Store) error {
		all, err := proxy.ReadPins(ctx, db, config, nil)
		if err != nil {
			return err
		}
		return do(ctx, config, db.Pins(), all)
	})
}

func (s *settings) listPins(cmd *cobra.Command) error {
	return s.withPins(cmd, false, func(_ context.Context, _ *configs.Config, _ *store.Pins, all proxy.Pins) error {
		t := &table{head: []string{"SERVER", "DEFINITION", "WHAT", "WARNINGS"}, whole: true}
		for _, r := range all.Reports {
			var warnings []string
			for _, w := range r.Warnings {
				warnings = append(warnings, w.String())
			}
			t.add(r.ID.Server, pinName(r), r.What(), strings.Join(warnings, "; "))
		}
		rows := all.Reports
		if rows == nil {
			rows = []pins.Report{}
		}
		if err := show(cmd, map[string]any{"held": rows}, t, nothingHeld); err != nil || asJSON(cmd) || len(rows) == 0 {
			return err
		}
		for _, server := range slices.Sorted(maps.Keys(all.Versions)) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s went from %s\n", server, all.Versions[server])
		}
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "See what changed: toolfinch pins. Approve it: toolfinch pins approve SERVER")
		return err
	})
}

// pinName returns the definition's name within its server. It adds the kind, except for tools.
func pinName(r pins.Report) string {
	switch name := pins.Visible(r.ID.Name); {
	case r.ID.Kind.String() == r.ID.Name:
		return "(" + name + ")"
	case r.ID.Kind.String() != "tool":
		return name + " (" + r.ID.Kind.String() + ")"
	default:
		return name
	}
}

func countOfPins(chosen []pins.Report) string {
	var servers []string
	for _, r := range chosen {
		servers = append(servers, r.ID.Server)
	}
	servers = unique(servers)
	return fmt.Sprintf("%s of %s", plural(len(chosen), "definition"), strings.Join(servers, ", "))
}

// choosePins returns the reports of the named servers and definitions.
func choosePins(reports []pins.Report, names []string, everything bool) ([]pins.Report, error) {
	if everything {
		return reports, nil
	}
	wanted := map[int]bool{}
	for _, name := range names {
		found := false
		for i, r := range reports {
			if r.ID.Server == name || r.ID.String() == name || r.ID.Server+":"+r.ID.Name == name {
				wanted[i], found = true, true
			}
		}
		if !found {
			var candidates []string
			for _, r := range reports {
				candidates = append(candidates, r.ID.Server, r.ID.String())
			}
			return nil, &exitError{exitUsage, fmt.Errorf("nothing of %q is held%s", printable.Line(name), orNearest(name, unique(candidates)))}
		}
	}
	var chosen []pins.Report
	for i, r := range reports {
		if wanted[i] {
			chosen = append(chosen, r)
		}
	}
	return chosen, nil
}

func printDiffs(w io.Writer, all proxy.Pins, chosen []pins.Report) error {
	on := screenOf(w)
	var out strings.Builder
	server := ""
	for _, r := range chosen {
		if r.ID.Server != server {
			server = r.ID.Server
			fmt.Fprint(&out, on.paint(bold, server))
			if versions := all.Versions[server]; versions != "" {
				fmt.Fprintf(&out, " (%s)", versions)
			}
			out.WriteString("\n")
		}
		what := "changed"
		if r.New() {
			what = r.What()
		} else if r.WasRejected() {
			what = "rejected"
		}
		fmt.Fprintf(&out, "  %s: %s\n", on.paint(bold, pinName(r)), what)
		for _, warning := range r.Warnings {
			fmt.Fprintf(&out, "    %s\n", on.paint(yellow, "warning: "+warning.String()))
		}
		for _, change := range r.Changes() {
			fmt.Fprintf(&out, "    %s: %s\n", change.Field, pieces(on, change))
		}
	}
	_, err := io.WriteString(unfiltered(w), out.String())
	return err
}

// pieces renders a changed field, word by word.
func pieces(on screen, change pins.Change) string {
	var parts []string
	for _, p := range change.Words() {
		switch {
		case p.Sign == '-':
			parts = append(parts, on.paint(red, "[-"+p.Text+"-]"))
		case p.Sign == '+' && change.Before == nil:
			parts = append(parts, on.paint(green, p.Text))
		case p.Sign == '+':
			parts = append(parts, on.paint(green, "{+"+p.Text+"+}"))
		default:
			parts = append(parts, p.Text)
		}
	}
	if len(parts) == 0 || len(parts) == 1 && change.Words()[0].Sign == ' ' {
		return "only white space differs"
	}
	return strings.Join(parts, " ")
}

func heldText(n int) string {
	what := plural(n, "definition")
	if n == 1 {
		return what + " is held, new or changed by the server: toolfinch pins"
	}
	return what + " are held, new or changed by the server: toolfinch pins"
}

// maxWarnings bounds the lines of warningsOf.
const maxWarnings = 5

// warningsOf returns the warnings about a server's definitions; "" stands for all servers.
func warningsOf(warnings map[tool.ID][]pins.Warning, server string) (lines []string) {
	more := 0
	for _, id := range slices.SortedFunc(maps.Keys(warnings), func(a, b tool.ID) int { return strings.Compare(a.String(), b.String()) }) {
		if server != "" && id.Server != server {
			continue
		}
		for _, w := range warnings[id] {
			if len(lines) == maxWarnings {
				more++
				continue
			}
			lines = append(lines, pins.Visible(id.String())+": "+w.String())
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %s: toolfinch server show", plural(more, "more warning")))
	}
	return lines
}

// pinNames returns possible arguments of pins: servers with held definitions, and these definitions.
func (d *workspace) pinNames() (names []string) {
	for _, r := range d.Held(d.cmd.Context()) {
		names = append(names, r.ID.Server, r.ID.String())
	}
	return unique(names)
}
