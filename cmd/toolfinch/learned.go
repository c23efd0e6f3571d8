package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/retrieve"
	"toolfinch/store"
)

func newLearned(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "learned",
		Short: "Show or forget which tools were called after which queries",
		Long: `Learned lists what toolfinch remembers if the configuration has learn: true: which tool
was called after which query, and its weight today. A weight halves every 30 days.
Nothing leaves the store.`,
		Example: `  toolfinch learned
  toolfinch learned --json | jq -r '.learned[].query'
  toolfinch learned forget --tool github.create_issue`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd, false, func(ctx context.Context, config *configs.Config, db *store.Store) error {
				rows, err := learnedRows(ctx, db.Usage(), time.Now())
				if err != nil {
					return err
				}
				t := &table{head: []string{"WEIGHT", "LAST USED", "TOOL", "QUERY"}}
				by := slices.ContainsFunc(rows, func(row learnedRow) bool { return row.Principal != "" })
				if by {
					t.head = append(t.head, "PRINCIPAL")
				}
				for _, row := range rows {
					cells := []string{fmt.Sprintf("%.2f", row.Weight), minute(row.LastUsed), row.id, row.Query}
					if by {
						cells = append(cells, orDash(row.Principal))
					}
					t.add(cells...)
				}
				err = show(cmd, struct {
					Learning bool         `json:"learning"`
					Learned  []learnedRow `json:"learned"`
				}{config.Learn, rows}, t, "nothing has been learned")
				if !config.Learn {
					fmt.Fprintln(cmd.ErrOrStderr(), "learning is off: nothing is added and nothing applied (learn: true turns it on)")
				}
				return err
			})
		},
	}
	withJSON(cmd, "print one JSON object")
	cmd.AddCommand(newLearnedForget(s))
	return cmd
}

func newLearnedForget(s *settings) *cobra.Command {
	var tool, query string
	var all bool
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Forget what was learned, or a part of it",
		Long: `Forget deletes what was learned for a tool, from matching queries, or, with both flags,
for that tool from those queries, and prints the count. It does not ask. With SQLite, a
running toolfinch keeps using the old data until it restarts.`,
		Example: `  toolfinch learned forget --tool github.create_issue
  toolfinch learned forget --query "salary of"
  toolfinch learned forget --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch chosen := tool != "" || query != ""; {
			case all && chosen:
				return &exitError{exitUsage, errors.New("--all forgets everything: leave out --tool and --query")}
			case !all && !chosen:
				return &exitError{exitUsage, fmt.Errorf("say what to forget: --tool, --query or --all\n\n%s", cmd.UsageString())}
			}
			return s.withStore(cmd, true, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
				n, err := db.Usage().ForgetLearned(ctx, query, tool)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "forgot %d\n", n)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&tool, "tool", "", "forget this tool, `SERVER.NAME`")
	cmd.Flags().StringVar(&query, "query", "", "forget the queries that contain `TEXT`, ignoring case")
	cmd.Flags().BoolVar(&all, "all", false, "forget everything that was learned")
	return cmd
}

// learnedRow is a query and a tool that was called after it.
type learnedRow struct {
	Principal string    `json:"principal,omitempty"` // the principal that learned it
	Query     string    `json:"query"`
	Server    string    `json:"server"`
	Tool      string    `json:"tool"`   // the server's name for it
	Weight    float64   `json:"weight"` // after decay
	LastUsed  time.Time `json:"last_used"`

	id string // server.name
}

func learnedRows(ctx context.Context, stored *store.Usage, now time.Time) ([]learnedRow, error) {
	uses, err := stored.Learned(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]learnedRow, len(uses))
	for i, use := range uses {
		rows[i] = learnedRow{
			Principal: use.Principal, Query: use.Query, Server: use.Tool.Server, Tool: use.Tool.Name, id: use.Tool.String(),
			Weight: retrieve.Use(use).Weight(now), LastUsed: use.At.UTC(),
		}
	}
	slices.SortStableFunc(rows, func(a, b learnedRow) int { return cmp.Compare(b.Weight, a.Weight) })
	return rows, nil
}
