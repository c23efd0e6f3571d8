package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/store"
)

func newSavings(s *settings) *cobra.Command {
	var since string
	var reset, asJSON bool
	cmd := &cobra.Command{
		Use:   "savings",
		Short: "Show how many tokens retrieval has saved",
		Long: `Savings prints, by view, how many tokens models read less because they were not
listed every tool. Days are those of UTC.

FULL is what listing every tool of the view would have cost, once a session.
LISTED is what tools/list cost: a definition counts when it was not in the
session's list before. RETRIEVALS are searches for tools, and ANSWERS is what the
answers of retrieve_tools and the other meta-tools cost that find and describe
tools. Saved is FULL without LISTED and ANSWERS; below zero, listing everything
would have been cheaper. Results of called tools and answers that failed are not
counted, nor are clients that never list tools, nor toolfinch bench.

A 2026-07-28 client has no sessions: clients of one name count as one session a
day. --reset forgets all that was counted.`,
		Example: `  toolfinch savings
  toolfinch savings --since 7d
  toolfinch savings --since 2026-11-01 --json
  toolfinch savings --reset`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := sinceDay(since, time.Now())
			switch {
			case err != nil:
				return &exitError{exitUsage, fmt.Errorf("--since: %w", err)}
			case reset && cmd.Flags().Changed("since"):
				return &exitError{exitUsage, errors.New("--reset forgets every day: leave out --since")}
			}
			return s.withStore(cmd, reset, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
				if reset {
					return db.ResetSavings(ctx)
				}
				days, err := db.Savings(ctx, from)
				if err != nil {
					return err
				}
				return printSavings(cmd, days, from.Format(time.DateOnly), asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "30d", "from when on: a number of days, today's counted, or a `DAY` like 2026-11-01")
	cmd.Flags().BoolVar(&reset, "reset", false, "forget all that was counted")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// maxSince is how many days --since may reach back: more than any store has.
const maxSince = 36_500

// sinceDay is the day, in UTC, from which on savings are shown.
func sinceDay(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 1 && n <= maxSince {
			return now.UTC().AddDate(0, 0, 1-n).Truncate(24 * time.Hour), nil
		}
	} else if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a number of days like 30d nor a day like 2026-11-01", text)
}

// savingsRow is what was saved, in tokens.
type savingsRow struct {
	View       string   `json:"view,omitempty"` // "" in a total
	Sessions   int      `json:"sessions"`
	Retrievals int      `json:"retrievals"`
	Full       int64    `json:"full"`    // listing every tool
	Listed     int64    `json:"listed"`  // definitions that were listed
	Answers    int64    `json:"answers"` // of meta-tools that find and describe tools
	Saved      int64    `json:"saved"`
	Percent    *float64 `json:"percent"` // of Full; null where that is 0
}

func savingsOf(s store.Savings) savingsRow {
	r := savingsRow{View: s.View, Sessions: s.Sessions, Retrievals: s.Retrievals, Full: s.Full, Listed: s.Listed, Answers: s.Answers,
		Saved: s.Full - s.Listed - s.Answers}
	if r.Full > 0 {
		percent := math.Round(1000*float64(r.Saved)/float64(r.Full)) / 10
		r.Percent = &percent
	}
	return r
}

func printSavings(cmd *cobra.Command, days []store.Savings, since string, asJSON bool) error {
	byView, total := map[string]store.Savings{}, store.Savings{}
	for _, day := range days {
		byView[day.View] = day.Plus(byView[day.View])
		total = total.Plus(day)
	}
	rows := []savingsRow{}
	for _, name := range slices.Sorted(maps.Keys(byView)) {
		rows = append(rows, savingsOf(byView[name]))
	}
	switch {
	case asJSON:
		return printJSON(cmd.OutOrStdout(), struct {
			Since   string       `json:"since"`
			Savings []savingsRow `json:"savings"`
			Total   savingsRow   `json:"total"`
		}{since, rows, savingsOf(total)})
	case len(rows) == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "no session has been counted since", since)
		return nil
	}
	return printSavingsTable(cmd.OutOrStdout(), rows, savingsOf(total))
}

func printSavingsTable(w io.Writer, rows []savingsRow, total savingsRow) error {
	t := table{head: []string{"VIEW", "SESSIONS", "RETRIEVALS", "FULL", "LISTED", "ANSWERS", "SAVED"}}
	for _, r := range rows {
		t.add(r.View, humanize.Comma(int64(r.Sessions)), humanize.Comma(int64(r.Retrievals)), humanize.Comma(r.Full), humanize.Comma(r.Listed), humanize.Comma(r.Answers), r.percent())
	}
	if err := t.print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", total)
	return err
}

// percent is the share that was saved, "-" where there was nothing to save.
func (r savingsRow) percent() string {
	if r.Percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*r.Percent, 'f', 1, 64) + " %"
}

// String says in a line what was saved.
func (r savingsRow) String() string {
	sessions := humanize.Comma(int64(r.Sessions)) + " sessions"
	if r.Sessions == 1 {
		sessions = "1 session"
	}
	share := "nothing"
	if r.Percent != nil {
		share = r.percent()
	}
	line := fmt.Sprintf("saved %s (%s of %s tokens in %s)", share, humanize.Comma(r.Saved), humanize.Comma(r.Full), sessions)
	if r.Saved < 0 {
		line += ": listing every tool would have been cheaper"
	}
	return line
}
