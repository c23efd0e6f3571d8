package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/proxy"
	"toolfinch/trust/audit"
	"toolfinch/trust/leaks"
)

func newAudit(s *settings) *cobra.Command {
	cmd := named("audit", newAuditRead(s))
	cmd.AddCommand(unlisted(newAuditRead(s))...)
	return cmd
}

type auditFilter struct {
	audit.Filter
	since string
}

func (f *auditFilter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Event, "event", "", "tool.call, login, ...; * matches anything, in this and the other filters")
	flags.StringVar(&f.Outcome, "outcome", "", "begun, success, tool_error, denied, failed, cancelled or timeout")
	flags.StringVar(&f.Principal, "principal", "", "who caused it, such as 'key|ci'")
	flags.StringVar(&f.Tool, "tool", "", "the tool, by its ID or by the name in the call")
	flags.StringVar(&f.since, "since", "", "how long ago, like 90m or 7d, or a `TIME` like 2026-11-01 or 2026-11-01T12:00:00Z")
	withJSON(cmd, "print the lines as they are")
}

// moment reads a time: a duration before now, a day of this time zone, or a time of RFC 3339.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= maxSince {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if day, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return day, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither how long ago, like 90m or 7d, nor a time like 2026-11-01 or 2026-11-01T12:00:00Z", text)
}

// open reads the filters. It returns the settings of the log, and a printer for its lines.
func (f *auditFilter) open(cmd *cobra.Command, s *settings) (settings *audit.Settings, _ *auditLines, err error) {
	if f.Since, err = moment(f.since, time.Now()); err != nil {
		return nil, nil, &exitError{exitUsage, fmt.Errorf("--since: %w", err)}
	}
	settings, err = s.auditSettings(cmd)
	return settings, &auditLines{out: cmd.OutOrStdout(), asJSON: asJSON(cmd)}, err
}

func newAuditRead(s *settings) *cobra.Command {
	var filter auditFilter
	var n int
	var follow bool
	cmd := &cobra.Command{
		Use:   "read",
		Short: "Show lines of the audit log",
		Long: `With audit in the configuration, toolfinch writes a line of JSON for every call, read,
prompt, search, login, session, process and change of the configuration.

Audit shows the last lines or, with a filter, all matching lines, also of rotated files.
If no line matches, the exit code is 1. -f follows the log until Ctrl-C. Send it to
another machine to protect it from users who can change files here.`,
		Example: `  toolfinch audit
  toolfinch audit --tool 'github.*' --outcome denied --since 7d
  toolfinch audit --event 'pin.*' --json | jq .details
  toolfinch audit -n 0 -f --json | logger --tcp --server logs.example.com --port 514`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, shown, err := filter.open(cmd, s)
			if err != nil {
				return err
			}
			followed, err := audit.Follow(settings.File) // before the scan: a line written during it appears twice, not never
			if err != nil {
				return err
			}
			filters := filter.Filter != audit.Filter{}
			if filters && !cmd.Flags().Changed("lines") {
				err = audit.Scan(audit.Files(settings.File), filter.Filter, func(l *audit.Line, text []byte) error {
					return errors.Join(cmd.Context().Err(), shown.show(l, text))
				})
			} else {
				err = audit.Last(audit.Files(settings.File), max(n, 0), filter.Filter, shown.show)
			}
			switch err = errors.Join(err, shown.print()); {
			case err != nil:
				return err
			case follow:
				shown.atOnce = true
				return followed.Run(cmd.Context(), filter.Filter, shown.show)
			case filters && shown.n == 0:
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "how many lines (default with a filter: all)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show lines as they are written, until Ctrl-C")
	filter.flags(cmd)
	return cmd
}

// auditLines prints lines raw, or as tables of up to 500 lines.
type auditLines struct {
	out    io.Writer
	asJSON bool
	atOnce bool // each line is printed when it comes
	n      int
	rows   [][]string
	headed bool
}

func (a *auditLines) show(l *audit.Line, text []byte) error {
	const most = 500
	a.n++
	if a.asJSON {
		_, err := fmt.Fprintf(a.out, "%s\n", printable.JSON(bytes.TrimSpace(text)))
		return err
	}
	a.rows = append(a.rows, cellsOf(l))
	if a.atOnce || len(a.rows) >= most {
		return a.print()
	}
	return nil
}

func cellsOf(l *audit.Line) []string {
	var who []string
	if l.Principal != nil {
		who = append(who, l.Principal.ID)
	}
	if l.Client != nil {
		who = append(who, l.Client.Name)
	}
	about := l.Tool
	switch {
	case about == "" && l.Name != "":
		about = l.Name
	case about == "":
		about = l.Server
	}
	var more []string
	if l.Reason != "" {
		more = append(more, l.Reason)
	}
	if l.Decision != nil && l.Decision.Policy != "" {
		more = append(more, "policy "+l.Decision.Policy)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Details)) {
		more = append(more, name+"="+l.Details[name])
	}
	took := ""
	if l.DurationMS > 0 {
		took = strconv.FormatFloat(l.DurationMS, 'f', 1, 64)
	}
	return []string{
		l.Time.Local().Format("2006-01-02 15:04:05"), strings.Repeat("  ", min(l.Depth, 8)) + l.Event, l.Outcome, took,
		strings.Join(who, " "), l.View, about, strings.Join(more, "; "),
	}
}

func (a *auditLines) print() error {
	if len(a.rows) == 0 {
		return nil
	}
	t := &table{rows: a.rows}
	if !a.headed {
		t.head = []string{"TIME", "EVENT", "OUTCOME", "MS", "WHO", "VIEW", "ABOUT", "MORE"}
	}
	t.paint = func(row, column int) string {
		switch outcome := t.rows[row][2]; {
		case column != 2 || outcome == identity.Success:
			return ""
		case outcome == identity.Denied || outcome == identity.Failed:
			return red
		}
		return yellow
	}
	a.rows, a.headed = nil, true
	return t.print(a.out)
}

func (s *settings) auditSettings(cmd *cobra.Command) (*audit.Settings, error) {
	config, err := s.read(cmd, nil)
	if err != nil {
		return nil, err
	}
	settings := config.AuditLog()
	if settings == nil {
		return nil, errors.New("there is no audit log: audit: true in the configuration has it written")
	}
	return settings, nil
}

// openAudit opens the audit log of a configuration; nil if it has none.
func openAudit(config *configs.Config, log *slog.Logger) (*audit.Log, error) {
	settings := config.AuditLog()
	if settings == nil {
		return nil, nil
	}
	return audit.Open(*settings, masked, log)
}

// masked hides likely secrets in content.
func masked(content []byte) []byte {
	without, _ := leaks.JSON(content)
	return without
}

// audited returns options for a proxy that writes its configuration's audit log.
func audited(config *configs.Config, log *slog.Logger) ([]proxy.Option, error) {
	to, err := openAudit(config, log)
	if to == nil || err != nil {
		return nil, err
	}
	return []proxy.Option{proxy.WithAudit(to, *config.AuditLog())}, nil
}

// record writes events of the owner's command to the audit log, after the command's change.
func record(ctx context.Context, config *configs.Config, events ...identity.Event) error {
	log, err := openAudit(config, slog.New(slog.DiscardHandler))
	if log == nil || err != nil {
		return err
	}
	for _, e := range events {
		log.Record(byCommand(ctx), e)
	}
	return log.Close()
}

// byCommand marks ctx as a command of the owner.
func byCommand(ctx context.Context) context.Context {
	if u, err := user.Current(); err == nil {
		ctx = identity.WithPrincipal(ctx, &identity.Principal{ID: "local|" + u.Username})
	}
	return identity.WithSource(ctx, identity.Source{Transport: "command"})
}
